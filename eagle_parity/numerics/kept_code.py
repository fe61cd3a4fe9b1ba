"""Machine code in a cache: where it may lie, and whose is run.

A file begins with a digest of what follows, so that half of one is none.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.errors import InputError
from eagle_parity.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER_ENV = "NUMBA_CACHE_DIR"
USER_CACHE_ENV = "XDG_CACHE_HOME"

MOST_BYTES = 16 * 1024 * 1024
"""Of a file that is read at all: two hundred times what the loops take."""
_MAGIC = b"eagle-parity machine code\n"
_START = len(_MAGIC) + hashlib.sha256().digest_size
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folders() -> Iterator[Path]:
    """Where it may lie: a folder that was named, beside the package's bytecode, the user's cache."""
    named = os.environ.get(FOLDER_ENV)
    if named:
        yield Path(named)
    with suppress(NotImplementedError):  # a Python that keeps no bytecode
        yield Path(importlib.util.cache_from_source(__file__)).parent
    user = os.environ.get(USER_CACHE_ENV, "")
    if Path(user).is_absolute():
        yield Path(user) / "eagle-parity"
        return
    with suppress(RuntimeError):  # nobody's home
        home = Path.home()
        if home.is_absolute():
            yield home / ".cache" / "eagle-parity"


def read(path: Path) -> bytes | None:
    """What is kept there; None where nothing is, not all of it, or what somebody else may have put there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # of a pipe: doesn't wait for a writer
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES or not _is_trusted(status):
                return None
            content = file.read(MOST_BYTES)
    except OSError:
        return None
    code = content[_START:]
    return code if content[:_START] == _MAGIC + hashlib.sha256(code).digest() else None


def keep(path: Path, code: bytes) -> bool:
    """Whether it could be kept there: whole, whoever else reads or writes meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            return False
        write_atomically(path, _MAGIC + hashlib.sha256(code).digest() + code)
    except (OSError, InputError):
        return False
    return True


def trusted_owners() -> set[int]:
    """Whose machine code is run: one's own, the administrator's, and that of whose Python code runs here anyway."""
    owners = {0, os.geteuid()}
    with suppress(OSError):  # in an archive
        owners.add(Path(__file__).stat().st_uid)
    return owners


def _is_trusted(status: os.stat_result) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid in trusted_owners() and not status.st_mode & _OTHERS_MAY_WRITE
