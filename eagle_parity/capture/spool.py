"""What a capture hook leaves on disk from inside an engine's worker: one small file a forward, and one about the rank.

This runs inside somebody's server. It imports torch, safetensors and the standard library only, does nothing until a
request of ours comes by, keeps no tensor beyond one forward, and whatever fails is written down, never raised.

A request says by its id that it is ours: ``eagle-parity.<session>.<signature>.<number>``. Every rank of every engine
sees request ids, so this is the switch that needs neither a restart nor a listener, and the hook records the rows of
these requests alone, never those of anybody else's traffic. The signature proves knowledge of the token that lies, mode
0600, in the spool's folder: a stranger's request with such an id makes no file.

The spool, one folder for all ranks of a host, made with mode 0700, its files with 0600::

    <spool>/token                                 what signatures are made with
    <spool>/<session>/<rank>.json                 what the worker says of itself: ``rank_record``
    <spool>/<session>/<rank>-000004-aux.safetensors

A part file holds the rows of one forward, n of them, of several requests perhaps:

=================  ===========  =====================================================================
``token_ids``      int64        ``[n]``
``positions``      int64        ``[n]``, of each row within its request
``sampled_ids``    int64        ``[n]``, the token that this rank chose behind each row; kind ``generated``
``request``        int64        ``[n]``, index into ``requests`` of the header
``slot.0`` ...     as computed  ``[n, H]`` each, in the order in which the engine concatenates them
``packed``         as computed  ``[n, K * H]`` instead, where the engine never has them apart
``boundary.0``     as computed  ``[n, H]``, a boundary that was recorded beside the list, which doesn't reach it
``last_state``     as computed  ``[n, H]``, what the language model's head receives
``draft_input``    as computed  ``[n, K * H]``, what the draft's ``fc`` receives; kind ``draft``, no slots
=================  ===========  =====================================================================

There are three kinds: ``aux``, the prompts' rows; ``draft``, of the same rows what the head got; ``generated``, rows of
generated tokens that this rank accepted, with the same states as ``aux``, where a capture asks for them.

The header (safetensors metadata) has ``requests``, a JSON list of request numbers, ``mode``, the engine's word for the
kind of forward, and ``forward``, a number that grows.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

SPOOL_VERSION = 1
"""Of the layout above; hook and client refuse each other's when it differs."""
SPOOL_ENV = "EAGLE_PARITY_SPOOL"
"""Names the spool's folder where no option can: for hooks that are loaded as plugins."""
MAX_TOKENS_ENV = "EAGLE_PARITY_MAX_TOKENS"
TOKEN_ENV = "EAGLE_PARITY_TOKEN"  # noqa: S105  a variable's name
"""Where a client is given the spool's token without its standing in the list of processes."""

REQUEST_PREFIX = "eagle-parity."
# An engine puts its own words around it: vLLM makes cmpl-<id>-0-1a2b3c4d of it.
_REQUEST = re.compile(r"eagle-parity\.([0-9a-f]{12})\.([0-9a-f]{24})\.([0-9]{1,7})(?![0-9a-f])")

DEFAULT_MAX_TOKENS = 65_536
"""Rows that one rank stores in one session: of a target with H = 7168 in bf16 and three slots about 6 GB."""
MIN_FREE_BYTES = 2 * 1024**3
"""A server that fills its disk dies: below this the hook stops recording."""
DISK_FULL = f"less than {MIN_FREE_BYTES >> 30} GiB free where the spool lies"
"""The limit that a record states then."""
MAX_SESSIONS = 64
"""Sessions that a worker keeps counters of; the oldest goes first."""
MAX_FAILURES = 10
"""Failures that are written down; a broken hook would add one every forward."""

MAX_FAILURE_CHARS = 500

COUNTED_KINDS = frozenset({"aux", "generated"})
"""Of parts whose rows count against the limit; those of ``draft`` are the same rows again."""
PER_TOKEN = frozenset({"token_ids", "positions", "sampled_ids"})
"""A part's tensors that are no states."""
BOUNDARY_KEY = "boundary."
"""Of a part's tensors that are no slots: ``boundary.0``."""

TOKEN_FILE = "token"  # noqa: S105  a file's name
_TOKEN_BYTES = 32
_TOKEN = re.compile(r"[0-9a-f]{64}")
_MAX_TOKEN_CHARS = 256
"""Read of a token file: more than it has, less than anything that stands there instead."""
_SESSION = re.compile(r"[0-9a-f]{12}")
PART_NAME = re.compile(r"(?P<rank>[a-z0-9.]{1,40})-(?P<part>[0-9]{6,})-(?P<kind>aux|draft|generated)\.safetensors")
RECORD_NAME = re.compile(r"(?P<rank>[a-z0-9.]{1,40})\.json")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

logger = logging.getLogger("eagle_parity.capture")


class Mark(NamedTuple):
    """A request of ours."""

    session: str
    number: int


def new_session() -> str:
    """A session's name: 12 hex digits that no other has."""
    return secrets.token_hex(6)


def request_id(token: str, session: str, number: int) -> str:
    """The id that makes a request one of ours.

    Args:
        token: of the spool.
        session: as ``new_session`` makes it.
        number: of the request within the session, below ten million.
    """
    return f"{REQUEST_PREFIX}{session}.{_signature(token, session)}.{number}"


def _signature(token: str, session: str) -> str:
    # The token itself would stand in the server's request log.
    return hmac.new(token.encode(), session.encode(), hashlib.sha256).hexdigest()[:24]


def is_session(name: object) -> bool:
    """Whether a text is a session's name, and so a folder of the spool and nothing else."""
    return isinstance(name, str) and _SESSION.fullmatch(name) is not None


def is_spooled_name(name: object, rank: str) -> bool:
    """Whether a session's folder may have a file of a rank by this name: a plain one of the spool's own making."""
    if not isinstance(name, str):
        return False
    match = PART_NAME.fullmatch(name) or RECORD_NAME.fullmatch(name)
    return match is not None and match["rank"] == rank


def lacks_room(session_folder: Path) -> bool:
    """Whether a session can't be recorded for want of room; of a copy, which has no token beside it, it can't be told.

    Raises:
        OSError: the folder isn't there.
    """
    is_spooled = (session_folder.parent / TOKEN_FILE).is_file()
    return is_spooled and shutil.disk_usage(session_folder).free < MIN_FREE_BYTES


def proof(token: str, verb: str, body: bytes) -> str:
    """What a request to a control channel carries instead of the token: good for this call alone.

    Args:
        token: of the spool.
        verb: that is called.
        body: of the call.
    """
    return hmac.new(token.encode(), verb.encode() + b"\n" + body, hashlib.sha256).hexdigest()


def default_spool() -> Path:
    """Where a spool lies that no option names: as the environment says, else a folder of this user's own."""
    named = os.environ.get(SPOOL_ENV)
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(named) if named else Path(tempfile.gettempdir()) / f"eagle-parity-{user}"


def stated_max_tokens(stated: object = None) -> int:
    """The limit in rows, as the hook's config states it, else the environment.

    Raises:
        ValueError: what is stated is no number of rows.
    """
    stated = stated or os.environ.get(MAX_TOKENS_ENV) or DEFAULT_MAX_TOKENS
    if not isinstance(stated, int | str) or not str(stated).strip().isdecimal():
        raise ValueError(f"max_tokens or {MAX_TOKENS_ENV} is {str(stated)[:40]!r}, not a number of rows")
    return int(stated)


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
        self._sessions: dict[str, _Session] = {}
        self._refused: set[str] = set()

    def marks(self, request_ids: Sequence[object]) -> list[Mark | None]:
        """Which of a batch's requests are ours; empty where none is, which is all that it costs a batch of others."""
        if not any(isinstance(identifier, str) and REQUEST_PREFIX in identifier for identifier in request_ids):
            return []
        marks = [self._mark(identifier) for identifier in request_ids]
        return marks if any(mark is not None for mark in marks) else []

    def _mark(self, identifier: object) -> Mark | None:
        if not isinstance(identifier, str) or REQUEST_PREFIX not in identifier:
            return None
        match = _REQUEST.search(identifier)
        if match is None:
            return None
        session, signature, number = match.groups()
        if session not in self._sessions and not self._begin(session, signature):
            return None
        return Mark(session, int(number))

    def _begin(self, session: str, signature: str) -> bool:
        if not hmac.compare_digest(signature, _signature(self._token, session)):
            self._refuse(session, f"a request is signed with another token than {self.folder} has")
            return False
        try:
            begun = _Session(self.folder / session, self.rank, self.max_tokens)
        except OSError as error:
            # A full disk, mostly: other sessions, and this one's next request, may find room.
            self._refuse(session, f"nothing can be recorded in {self.folder / session}: {error}")
            return False
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[session] = begun
        return True

    def _refuse(self, session: str, reason: str) -> None:
        if session not in self._refused and len(self._refused) < MAX_SESSIONS:
            self._refused.add(session)
            logger.warning("eagle-parity: %s", reason)

    def describe(self, session: str, facts: Mapping[str, Any]) -> None:
        """Adds to what the rank's record says of the worker; JSON values only."""
        if session in self._sessions:
            self._sessions[session].describe(facts)

    def described(self, session: str, key: str) -> bool:
        """Whether a fact stands in the record already."""
        return session in self._sessions and key in self._sessions[session].facts

    def count(self, session: str, what: str, rows: int) -> None:
        """Counts rows that were seen and not stored; the record has the reason at once, the sum after the next part."""
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
        """Writes a failure down, for every session that it concerns."""
        for session in dict.fromkeys(mark.session for mark in marks if mark is not None):
            if session in self._sessions:
                self._sessions[session].fail(error)


class _Session:
    """What one worker stores for one session."""

    def __init__(self, folder: Path, rank: str, max_tokens: int) -> None:
        self.folder = folder
        self.rank = rank
        self.max_tokens = max_tokens
        self.facts: dict[str, Any] = {}
        self.skipped: dict[str, int] = {}
        self.failures: list[str] = []
        self.limit: str | None = None
        self.parts = 0
        self.seconds = 0.0  # spent copying and writing: what the server waited for
        self.tokens = 0
        folder.mkdir(mode=0o700, exist_ok=True)
        self._go_on()
        self._replace_record()

    def _go_on(self) -> None:
        """Where this rank recorded for the session before, as a worker that was restarted has, what it told stays."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            former = json.loads((self.folder / f"{self.rank}.json").read_bytes())
            self.parts, self.tokens = int(former["parts"]), int(former["tokens"])
            self.seconds = float(former["seconds"])
            self.skipped = {str(what): int(rows) for what, rows in former["skipped"].items()}
            self.failures = [str(failure) for failure in former["failures"]][:MAX_FAILURES]

    def describe(self, facts: Mapping[str, Any]) -> None:
        self.facts.update(facts)
        self._write_record()

    def count(self, what: str, rows: int) -> None:
        is_new = what not in self.skipped
        self.skipped[what] = self.skipped.get(what, 0) + rows
        if is_new:
            self._write_record()

    def fail(self, error: BaseException | str) -> None:
        text = (error if isinstance(error, str) else f"{type(error).__name__}: {error}")[:MAX_FAILURE_CHARS]
        if text not in self.failures and len(self.failures) < MAX_FAILURES:
            self.failures.append(text)
            logger.warning("eagle-parity: the capture hook failed, the server goes on: %s", text)
            self._write_record()

    def write(
        self, kind: str, tensors: Mapping[str, torch.Tensor], ours: Sequence[tuple[int, slice]], mode: str
    ) -> None:
        import torch
        from safetensors.torch import save_file

        started = time.perf_counter()
        rows = sum(where.stop - where.start for _, where in ours)
        end = max(where.stop for _, where in ours)
        _check_rows(tensors, end, alone=len(ours) == 1 and ours[0][1].start == 0)
        if self._is_full(kind, rows, sum(_row_bytes(tensor) for tensor in tensors.values())):
            return
        stored = {name: _rows(tensor, [where for _, where in ours]) for name, tensor in tensors.items()}
        stored["request"] = torch.cat(
            [torch.full((where.stop - where.start,), index) for index, (_, where) in enumerate(ours)]
        )
        header = {"requests": json.dumps([number for number, _ in ours]), "mode": mode, "forward": str(self.parts)}
        with _replacing(self.folder / f"{self.rank}-{self.parts:06d}-{kind}.safetensors") as temporary:
            save_file(stored, temporary, metadata=header)
        self.parts += 1
        if kind in COUNTED_KINDS:
            self.tokens += rows
        self.seconds += time.perf_counter() - started
        self._write_record()

    def _is_full(self, kind: str, rows: int, row_bytes: int) -> bool:
        if self.limit is None and kind in COUNTED_KINDS and self.tokens + rows > self.max_tokens:
            self.limit = f"max_tokens={self.max_tokens}"
        elif self.limit is None and shutil.disk_usage(self.folder).free < MIN_FREE_BYTES + rows * row_bytes:
            self.limit = DISK_FULL
        else:
            return self.limit is not None
        self._write_record()
        return True

    def _write_record(self) -> None:
        try:
            self._replace_record()
        except OSError as error:
            # The former record stands. What has filled the disk may go, and the next part brings it up to date.
            logger.warning("eagle-parity: the record of %s can't be written: %s", self.rank, error)

    def _replace_record(self) -> None:
        record = rank_record(self)
        with _replacing(self.folder / f"{self.rank}.json") as temporary:
            temporary.write_text(json.dumps(record), "utf-8")


def rank_record(session: _Session) -> dict[str, Any]:
    """The record of one rank: JSON values, read back by ``eagle_parity.capture.rank_record``."""
    return {
        "spool_version": SPOOL_VERSION,
        "rank": session.rank,
        "session": session.folder.name,
        "pid": os.getpid(),
        "parts": session.parts,
        "tokens": session.tokens,
        "seconds": round(session.seconds, 6),
        "limit": session.limit,
        "skipped": session.skipped,
        "failures": session.failures,
        "facts": session.facts,
    }


def _check_rows(tensors: Mapping[str, torch.Tensor], end: int, *, alone: bool) -> None:
    for name, tensor in tensors.items():
        per_token = name in PER_TOKEN
        # A state may be a rank's share of the rows: of one request that can be told, of several it can't.
        if tensor.ndim != (1 if per_token else 2) or (tensor.shape[0] < end and (per_token or not alone)):
            raise ValueError(f"{name} is {tuple(tensor.shape)}, and the batch has {end} rows or more")


def _row_bytes(tensor: torch.Tensor) -> int:
    return tensor.element_size() * (tensor.numel() // max(1, tensor.shape[0]))


def _rows(tensor: torch.Tensor, where: Sequence[slice]) -> torch.Tensor:
    """The rows in memory of their own: the engine uses its buffers again with the next forward."""
    import torch

    picked = tensor.detach()[where[0]] if len(where) == 1 else torch.cat([tensor.detach()[one] for one in where])
    return picked.to("cpu", copy=True).contiguous()


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary file, 0600, that takes the name when it is whole: a killed server leaves no half file of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
