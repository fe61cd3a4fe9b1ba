"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644


def write_atomically(path: str | Path, data: bytes, *, private: bool = False) -> None:
    """Writes to a temporary name in the same folder, then renames.

    Args:
        path: the final name.
        data: the whole content.
        private: mode 0600, for files that hold prompts or states.

    Raises:
        InputError: the folder isn't there or can't be written to.
    """
    target = Path(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, PRIVATE_MODE if private else PUBLIC_MODE)  # noqa: PTH101  mkstemp gives a string
        os.replace(temporary, target)  # noqa: PTH105  as above
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(target, f"can't be written ({error.strerror or error})") from error


@contextmanager
def replace_when_written(path: str | Path, *, private: bool = False) -> Iterator[str]:
    """A temporary name in the same folder, for a writer that wants a name; renamed when the block ends without error.

    Args:
        path: the final name.
        private: mode 0600, for files that hold prompts or states.

    Raises:
        InputError: the folder isn't there or can't be written to.
    """
    target = Path(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        os.close(handle)
        yield temporary
        os.chmod(temporary, PRIVATE_MODE if private else PUBLIC_MODE)  # noqa: PTH101  mkstemp gives a string
        os.replace(temporary, target)  # noqa: PTH105  as above
    except OSError as error:
        raise InputError(target, f"can't be written ({error.strerror or error})") from error
    finally:
        # After the rename the name is gone; after any failure, Ctrl-C too, the half file must not stay.
        if temporary:
            Path(temporary).unlink(missing_ok=True)
