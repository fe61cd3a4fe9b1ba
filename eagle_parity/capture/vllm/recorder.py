"""A worker's capture: switched on and off, for several sessions at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.hook_log import log_exception
from eagle_parity.capture.spool.folder import default_spool
from eagle_parity.capture.spool.limits import stated_max_tokens
from eagle_parity.capture.spool.request_ids import is_session
from eagle_parity.capture.spool.worker import Spool
from eagle_parity.capture.vllm.facts import parallel_facts, worker_facts
from eagle_parity.capture.vllm.live_objects import LiveObjects
from eagle_parity.capture.vllm.recording import Recording
from eagle_parity.capture.vllm.releases import CaptureError
from eagle_parity.capture.vllm.spooled_files import SpooledFiles
from eagle_parity.capture.vllm.wrapping import Wrappers
from eagle_parity.capture.worker_facts import rank_name

if TYPE_CHECKING:
    from collections.abc import Mapping

SILENT_SECONDS = 1200.0
"""A capture that recorded nothing for so long, twice what a client waits for an answer, was killed without a stop."""


class Recorder:
    """What one worker has while captures are made of it.

    Args:
        worker: vLLM's.

    Raises:
        OSError: the spool can't be used.
        ValueError: the environment states no limit that is one.
    """

    def __init__(self, worker: Any) -> None:
        self._live = LiveObjects(worker)
        self._parallel = parallel_facts(worker)
        self._spool = Spool(default_spool(), rank_name(self._parallel), max_tokens=stated_max_tokens())
        self._recording = Recording(self._live, self._spool, self.facts, self._heard)
        self._wrappers = Wrappers(self._fail, self._recording.forget)
        self._captures: dict[str, float] = {}  # the sessions that go on, and when each was last heard of
        self.spooled = SpooledFiles(self._spool.folder, self._spool.rank)

    def facts(self) -> dict[str, Any]:
        """What the live objects say.

        Raises:
            CaptureError: the server runs no EAGLE-3 head.
        """
        facts = worker_facts(self._live)
        return facts | {
            "rank": self._spool.rank,
            "spool": str(self._spool.folder),
            "capturing": bool(self._wrappers),
            "parallel": self._parallel,
            "variants": facts["variants"] | self._recording.variants(),
        }

    def start(self, *, generated: bool = False, session: str = "") -> dict[str, Any]:
        """Wraps, unless that is done.

        Args:
            generated: whether rows of generated tokens are recorded as well.
            session: that goes on from now.

        Raises:
            CaptureError: the server runs no EAGLE-3 head, or its release is unknown, or that is no session.
        """
        if session and not is_session(session):
            raise CaptureError(f"no session {session!r}")
        self._captures = self._heard_of_late()
        if generated and not self._recording.generated:
            self._remove()  # the methods have to be asked for more arguments
        if not self._wrappers:
            self._recording.generated = generated
            try:
                for owner, name, around, reads in self._recording.taps():
                    self._wrappers.wrap(owner, name, around, reads)
            except Exception:
                self._remove()
                raise
        self._captures[session] = time.monotonic()
        return self.facts()

    def stop(self, session: str = "") -> dict[str, Any]:
        """Unwraps, unless another session's capture goes on.

        Args:
            session: that ends; empty for all of them.
        """
        self._captures.pop(session, None)
        self._captures = self._heard_of_late() if session else {}
        if not self._captures:
            self._remove()
        return {"rank": self._spool.rank, "capturing": bool(self._wrappers)}

    def _heard_of_late(self) -> dict[str, float]:
        silent = time.monotonic() - SILENT_SECONDS
        return {name: heard for name, heard in self._captures.items() if heard > silent}

    def _heard(self, session: str) -> None:
        if session in self._captures:
            self._captures[session] = time.monotonic()

    def _remove(self) -> None:
        self._wrappers.remove()
        self._recording.forget()
        self._recording.generated = False

    def _fail(self, error: Exception, arguments: Mapping[str, Any]) -> None:
        try:
            self._recording.fail(error, arguments)
        except Exception:  # noqa: BLE001  nothing may reach the engine
            self._remove()
            log_exception("the capture hook failed; the server goes on without it")
