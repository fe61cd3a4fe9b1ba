"""Sessions that a killed client left in a spool: removed by the next one that sees the spool on its host.

The spool is somebody's folder on a disk that may hold anything: nothing goes that isn't a session by its name, this
user's own, and made of files that the spool itself names; links are neither followed nor removed.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from eagle_parity.capture.spool.files import PART_NAME, RECORD_NAME, TEMPORARY_NAME
from eagle_parity.capture.spool.folder import read_token
from eagle_parity.capture.spool.request_ids import is_session

if TYPE_CHECKING:
    from pathlib import Path

ABANDONED_SECONDS = 7 * 24 * 3600.0
"""Since the newest file: no capture is silent for so long, and parts that somebody means to copy have had the time."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def remove_abandoned(spool: Path, token: str) -> list[str]:
    """Removes the sessions in which nothing was written for ``ABANDONED_SECONDS``.

    Args:
        spool: the folder as the server names it, which may be another one here.
        token: of the server's spool: a folder that hasn't got the same is another one, and is left alone.

    Returns:
        The sessions that are gone; what can't be removed stays, and is no error.
    """
    if not hasattr(os, "getuid") or not {os.open, os.unlink, os.rmdir, os.stat} <= os.supports_dir_fd:
        return []  # without these a link could be put in a session's place meanwhile
    try:
        if read_token(spool) != token:
            return []
        handle = os.open(spool, _FOLDER)
    except (OSError, ValueError):
        return []
    try:
        return [name for name in sorted(os.listdir(handle)) if is_session(name) and _remove(handle, name)]  # noqa: PTH208  of a handle
    except OSError:
        return []
    finally:
        os.close(handle)


def _remove(spool: int, session: str) -> bool:
    try:
        folder = os.open(session, _FOLDER, dir_fd=spool)
    except OSError:
        return False
    try:
        names = os.listdir(folder)  # noqa: PTH208  of a handle
        if not _is_abandoned(folder, names):
            return False
        for name in names:
            os.unlink(name, dir_fd=folder)
        os.rmdir(session, dir_fd=spool)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(folder)


def _is_abandoned(folder: int, names: list[str]) -> bool:
    found = [os.fstat(folder), *(os.stat(name, dir_fd=folder, follow_symlinks=False) for name in names)]
    if any(one.st_uid != os.getuid() for one in found) or not all(stat.S_ISREG(one.st_mode) for one in found[1:]):
        return False
    if not all(any(pattern.fullmatch(name) for pattern in (PART_NAME, RECORD_NAME, TEMPORARY_NAME)) for name in names):
        return False
    return max(one.st_mtime for one in found) < time.time() - ABANDONED_SECONDS
