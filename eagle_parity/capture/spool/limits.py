"""How much a hook may leave in a spool: rows, and room on the disk."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from eagle_parity.capture.spool.files import TOKEN_FILE

if TYPE_CHECKING:
    from pathlib import Path

MAX_TOKENS_ENV = "EAGLE_PARITY_MAX_TOKENS"
DEFAULT_MAX_TOKENS = 65_536
"""Rows that one rank stores in one session: of a target with H = 7168 in bf16 and three slots about 6 GB."""
MIN_FREE_BYTES = 2 * 1024**3
"""A server that fills its disk dies: below this the hook stops recording."""
DISK_FULL = f"less than {MIN_FREE_BYTES >> 30} GiB free where the spool lies"
"""The limit that a record states then."""


def stated_max_tokens(stated: object = None) -> int:
    """The limit in rows, as the hook's config states it, else the environment.

    Raises:
        ValueError: what is stated is no number of rows.
    """
    stated = stated or os.environ.get(MAX_TOKENS_ENV) or DEFAULT_MAX_TOKENS
    if not isinstance(stated, int | str) or not str(stated).strip().isdecimal():
        raise ValueError(f"max_tokens or {MAX_TOKENS_ENV} is {str(stated)[:40]!r}, not a number of rows")
    return int(stated)


def has_room(folder: Path, size: int) -> bool:
    """Whether so many bytes can be written to a folder without filling the disk.

    Raises:
        OSError: the folder isn't there.
    """
    return shutil.disk_usage(folder).free >= MIN_FREE_BYTES + size


def lacks_room(session_folder: Path) -> bool:
    """Whether a session can't be recorded for want of room; of a copy, which has no token beside it, it can't be told.

    Raises:
        OSError: the folder isn't there.
    """
    is_spooled = (session_folder.parent / TOKEN_FILE).is_file()
    return is_spooled and not has_room(session_folder, 0)
