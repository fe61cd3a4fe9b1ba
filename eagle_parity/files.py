"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644

_NAME_KEPT = 40
"""Characters of the final name that its temporary name has: with all of them it could be longer than names may be."""

_MAX_LINKS = 40
"""As many links as Linux follows before it calls them a loop."""

_DESCRIPTORS = re.compile(r"/proc/(self|\d+)(/task/\d+)?/fd|/dev/fd")
"""Folders in which a name is a stream that is open already, such as ``/dev/stdout``."""


def write_atomically(path: str | Path, data: bytes, *, private: bool = False) -> None:
    """Writes to a temporary name beside the file, then renames.

    A link is followed: what it points to is replaced, the link stays. What exists and is no regular file (a pipe, a
    terminal, ``/dev/stdout``) is written to as it is, since renaming would put a file in its place.

    Args:
        path: the final name.
        data: the whole content.
        private: mode 0600, for files that hold prompts or states.

    Raises:
        InputError: the folder isn't there or can't be written to.
    """
    with replace_when_written(path, private=private) as temporary, Path(temporary).open("wb") as file:
        file.write(data)


@contextmanager
def replace_when_written(path: str | Path, *, private: bool = False) -> Iterator[str]:
    """A temporary name beside the file, for a writer that wants a name; renamed when the block ends without error.

    What is no regular file gets the bytes instead, as in ``write_atomically``.

    Args:
        path: the final name.
        private: mode 0600, for files that hold prompts or states.

    Raises:
        InputError: the folder isn't there or can't be written to.
    """
    temporary = ""
    try:
        target = _file_to_replace(path)
        folder = None if target is None else target.parent
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{Path(path).name[:_NAME_KEPT]}.", suffix=".part")
        os.close(handle)
        yield temporary
        if target is None:
            with Path(temporary).open("rb") as written, Path(path).open("ab") as stream:
                shutil.copyfileobj(written, stream)
        else:
            os.chmod(temporary, PRIVATE_MODE if private else PUBLIC_MODE)  # noqa: PTH101  mkstemp gives a string
            os.replace(temporary, target)  # noqa: PTH105  as above
    except OSError as error:
        raise InputError(path, f"can't be written ({error.strerror or error})") from error
    finally:
        # After the rename the name is gone; after any failure, Ctrl-C too, the half file must not stay.
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def is_folder(path: str | Path) -> bool:
    """Whether a folder is there and can be looked at; of a name that can't be one it isn't.

    ``Path.is_dir`` raises for a folder without permission and for a name that is too long, before Python 3.14.
    """
    return os.path.isdir(path)  # noqa: PTH112  as said


def is_same_place(one: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to one place, be it there or not.

    ``Path.resolve`` raises for links in a circle, before Python 3.13.
    """
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except (OSError, ValueError):  # a NUL in it, a name that is too long: of the path that is read, its reader says it
        return False


def _file_to_replace(path: str | Path) -> Path | None:
    """The file behind all links, be it there or not; None where the path is something else than a file.

    Raises:
        OSError: a folder, links in a circle, or a name that can't be one.
    """
    given = Path(path)
    if "\0" in str(given):
        raise OSError(errno.EINVAL, "a NUL in its name")
    if _is_stream(given):
        return None
    try:
        status = given.stat()
    except FileNotFoundError:
        return Path(os.path.realpath(given))  # of a link to nothing, what it points to is made
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory")
    return Path(os.path.realpath(given)) if stat.S_ISREG(status.st_mode) else None


def _is_stream(path: Path) -> bool:
    """Whether a path names a stream of a process, though a regular file may stand behind it.

    To rename over that file would take what stands in it already, and leave the stream with a file without a name.
    """
    for _ in range(_MAX_LINKS):
        if _DESCRIPTORS.fullmatch(os.path.realpath(path.parent)):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / path.readlink()
    return False
