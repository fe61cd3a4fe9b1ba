"""Whether the hooks store no more of a session, as far as that can be seen in a spool on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.capture.rank_record import read_record
from eagle_parity.capture.servers.spool_token import is_spool_here
from eagle_parity.capture.spool.files import RECORD_NAME
from eagle_parity.capture.spool.limits import DISK_FULL, has_room
from eagle_parity.errors import InputError
from eagle_parity.quoting import plain

if TYPE_CHECKING:
    from pathlib import Path


def spooled_limit(spool: Path, session: str, token: str) -> str | None:
    """The limit that a rank has reached, or that the disk sets; None where there is none, or it can't be seen.

    A rank that reached one stores nothing of the session any more. Where the disk is so full that no record could be
    written, the disk itself says it.

    Args:
        spool: the folder as the server names it, which may be another one here.
        session: whose records are asked.
        token: of the server's spool: of the disk that a folder without it lies on nothing follows.
    """
    folder = spool / session
    try:
        names = sorted(path.name for path in folder.iterdir())
    except (OSError, ValueError):
        names = []  # the hook has made none yet, perhaps for want of room
    for name in names:
        if match := RECORD_NAME.fullmatch(name):
            try:
                limit = read_record(folder / name, match["rank"]).limit
            except InputError:
                continue  # whoever gathers the parts says what is wrong with it
            if limit:
                return plain(limit)
    try:
        # Not the session's folder: on a full disk there may be none.
        return DISK_FULL if is_spool_here(spool, token) and not has_room(spool, 0) else None
    except (OSError, ValueError):
        return None
