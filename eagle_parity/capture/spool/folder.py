"""The spool's folder and its token: where they are, who may make them, and who may read them."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path

from eagle_parity.capture.spool.files import TOKEN_FILE

SPOOL_ENV = "EAGLE_PARITY_SPOOL"
"""Names the spool's folder where no option can: for hooks that are loaded as plugins."""
TOKEN_ENV = "EAGLE_PARITY_TOKEN"  # noqa: S105  a variable's name
"""Where a client is given the spool's token without its standing in the list of processes."""

_TOKEN_BYTES = 32
_TOKEN = re.compile(r"[0-9a-f]{64}")
_MAX_TOKEN_CHARS = 256
"""Read of a token file: more than it has, less than anything that stands there instead."""
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def default_spool() -> Path:
    """Where a spool lies that no option names: as the environment says, else a folder of this user's own."""
    named = os.environ.get(SPOOL_ENV)
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(named) if named else Path(tempfile.gettempdir()) / f"eagle-parity-{user}"


def read_token(folder: str | Path) -> str:
    """The spool's token.

    Raises:
        OSError: there is none, or it isn't ours to read.
        ValueError: what stands there is none.
    """
    # What a server names as its folder may hold anything under that name, a pipe too.
    handle = os.open(Path(folder) / TOKEN_FILE, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        text = file.read(_MAX_TOKEN_CHARS).decode("ascii").strip()
    if _TOKEN.fullmatch(text) is None:
        raise ValueError(f"{Path(folder) / TOKEN_FILE} holds no token")
    return text


def make_spool(folder: str | Path) -> str:
    """Makes the folder and its token where they aren't there, and gives the token.

    Several ranks come here at once: the token appears whole or not at all, and the first one stays.

    Raises:
        OSError: the folder can't be made, or belongs to another user, or others may write to it.
        ValueError: what stands there as a token is none.
    """
    folder = Path(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):
        # In a shared directory somebody else could have made it first, token included, or a link to a folder of ours.
        found = folder.stat()
        if not found.st_uid == folder.lstat().st_uid == os.getuid():
            raise PermissionError(f"{folder} belongs to another user")
        if found.st_mode & _OTHERS_MAY_WRITE:
            raise PermissionError(f"others may write to {folder}: name a folder in it, which will be made with 0700")
    path = folder / TOKEN_FILE
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".token-")  # mode 0600
        try:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_hex(_TOKEN_BYTES))
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)  # unlike a rename it leaves the one that is there
        finally:
            Path(temporary).unlink()
    return read_token(folder)
