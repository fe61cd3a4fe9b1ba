"""The files of a session, as one rank gives them out or removes them: a capture on another host fetches them so."""

from __future__ import annotations

import base64
import shutil
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.spool.files import is_spooled_name
from eagle_parity.capture.spool.request_ids import is_session
from eagle_parity.capture.vllm.releases import CaptureError

if TYPE_CHECKING:
    from pathlib import Path

MAX_CHUNK_BYTES = 8 * 1024 * 1024
"""Of a file that comes back over the server: as much as one answer holds."""


class SpooledFiles:
    """Those of one rank.

    Args:
        spool: the folder.
        rank: the worker's name.
    """

    def __init__(self, spool: Path, rank: str) -> None:
        self._spool = spool
        self._rank = rank

    def files(self, session: str = "") -> dict[str, Any]:
        """Their names and sizes."""
        folder = self._session_folder(session)
        names = [path for path in folder.iterdir() if is_spooled_name(path.name, self._rank)]
        return {"rank": self._rank, "files": {path.name: path.stat().st_size for path in sorted(names)}}

    def read(self, session: str = "", name: str = "", offset: int = 0) -> dict[str, Any]:
        """A piece of one of them; none where it is another rank's."""
        if not is_spooled_name(name, self._rank):
            return {"rank": self._rank}
        with (self._session_folder(session) / name).open("rb") as file:
            file.seek(offset)
            return {"rank": self._rank, "data": base64.b64encode(file.read(MAX_CHUNK_BYTES)).decode("ascii")}

    def discard(self, session: str = "") -> dict[str, Any]:
        """Removes the session's folder."""
        shutil.rmtree(self._session_folder(session), ignore_errors=True)  # ranks of one host come here together
        return {"rank": self._rank}

    def _session_folder(self, session: str) -> Path:
        if not is_session(session):
            raise CaptureError(f"no session {session!r}")
        return self._spool / session
