"""One worker's side of the spool: what the hooks of both engines use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.hook_log import LogOnce, text_of
from eagle_parity.capture.spool.folder import make_spool
from eagle_parity.capture.spool.limits import DEFAULT_MAX_TOKENS
from eagle_parity.capture.spool.request_ids import has_ours, is_signed, read_request_id
from eagle_parity.capture.spool.session import MAX_FAILURE_CHARS, Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from eagle_parity.capture.spool.request_ids import Mark, SignedMark

MAX_SESSIONS = 64
"""Sessions that a worker keeps counters of; the oldest goes first."""


class Spool:
    """One worker's side of the spool.

    Args:
        folder: the spool's.
        rank: a name of this worker that no other has, such as ``tp1`` or ``dp1.tp3``.
        max_tokens: rows that are stored a session.

    Raises:
        OSError: the folder can't be used.
    """

    def __init__(self, folder: str | Path, rank: str, *, max_tokens: int = DEFAULT_MAX_TOKENS) -> None:
        self.folder = Path(folder)
        self.rank = rank
        self.max_tokens = max_tokens
        self._token = make_spool(self.folder)
        self._sessions: dict[str, Session] = {}
        self._log = LogOnce()

    def marks(self, request_ids: Sequence[object]) -> list[Mark | None]:
        """Which of a batch's requests are ours; empty where none is, which is all that it costs a batch of others."""
        if not has_ours(request_ids):
            return []
        marks = [self._mark(identifier) for identifier in request_ids]
        return marks if any(mark is not None for mark in marks) else []

    def _mark(self, identifier: object) -> Mark | None:
        signed = read_request_id(identifier)
        if signed is None:
            return None
        # Each id is looked at by itself: a session's name is no secret, captures tell it.
        if signed.mark.session in self._sessions:
            return signed.mark if is_signed(signed, self._token) else None
        return signed.mark if self._begin(signed) else None

    def _begin(self, signed: SignedMark) -> bool:
        session = signed.mark.session
        if not is_signed(signed, self._token):
            self._log.warn(f"session {session}: a request is signed with another token than {self.folder} has")
            return False
        try:
            begun = Session(self.folder / session, self.rank, self.max_tokens)
        except OSError as error:
            # A full disk, mostly: other sessions, and this one's next request, may find room.
            self._log.warn(f"nothing can be recorded in {self.folder / session}: {error}")
            return False
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions))).close()
        self._sessions[session] = begun
        return True

    def describe(self, session: str, facts: Mapping[str, Any]) -> None:
        """Adds to what the rank's record says of the worker; JSON values only."""
        if session in self._sessions:
            self._sessions[session].describe(facts)

    def described(self, session: str, key: str) -> bool:
        """Whether a fact stands in the record already."""
        return session in self._sessions and key in self._sessions[session].facts

    def count(self, session: str, what: str, rows: int) -> None:
        """Counts rows that were seen and not stored; the record has the reason at once, and the sum within seconds."""
        if rows and session in self._sessions:
            self._sessions[session].count(what, rows)

    def write(
        self,
        kind: str,
        tensors: Mapping[str, torch.Tensor],
        marks: Sequence[Mark | None],
        spans: Sequence[slice],
        *,
        mode: str,
    ) -> None:
        """Stores the rows of our requests of one forward.

        Args:
            kind: ``aux``, ``draft`` or ``generated``.
            tensors: ``[n, ...]`` each, on any device: the whole batch, padding at its end perhaps.
            marks: one a request of the batch, as ``marks`` gave them.
            spans: the rows of each of these requests, start and stop both given; empty for one without any.
            mode: the engine's word for the forward.
        """
        for session in dict.fromkeys(mark.session for mark in marks if mark is not None):
            ours = [
                (mark.number, span)
                for mark, span in zip(marks, spans, strict=True)
                if mark is not None and mark.session == session and span.stop > span.start
            ]
            if session in self._sessions and ours:
                self._sessions[session].write(kind, tensors, ours, mode)

    def fail(self, marks: Sequence[Mark | None], error: BaseException | str) -> None:
        """Writes a failure down, for every session that it concerns.

        Args:
            marks: of the forward's requests; without any it concerns all sessions that are open, and the server's log
                where there is none.
            error: what is told.
        """
        concerned = {mark.session for mark in marks if mark is not None} & self._sessions.keys()
        sessions = sorted(concerned) or self._open_sessions()
        for session in sessions:
            self._sessions[session].fail(error)
        if not sessions:
            self._log.warn(f"the capture hook failed, the server goes on: {text_of(error, MAX_FAILURE_CHARS)}")

    def _open_sessions(self) -> list[str]:
        """Those whose folders the client hasn't removed."""
        closed = [name for name, session in self._sessions.items() if not session.folder.is_dir()]
        for name in closed:
            del self._sessions[name]
        return list(self._sessions)
