"""A capture of a running server: sends token sequences, gathers what every rank recorded of them, writes it down.

The workers' hooks record (``capture.sglang``, ``capture.vllm``), a ``Server`` is the way to them (``capture.servers``),
``capture.sending`` sends, ``capture.assembly`` puts rows together, ``capture.recorded`` writes them down. Rows belong
to a request by its id and to a place in it by their position; the order in which they were recorded means nothing.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.capture.assembly import SessionParts
from eagle_parity.capture.format import GENERATE
from eagle_parity.capture.recorded import write_recording
from eagle_parity.capture.sending import REQUESTS_NAME, Sent, read_sent, send_sequences
from eagle_parity.capture.servers.abandoned import remove_abandoned
from eagle_parity.capture.spool.limits import DISK_FULL, lacks_room
from eagle_parity.capture.writer import check_output
from eagle_parity.errors import InputError
from eagle_parity.files import is_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eagle_parity.capture.manifest import Manifest
    from eagle_parity.capture.prompts import TokenSource
    from eagle_parity.capture.sending import Condition, SentRequest
    from eagle_parity.capture.servers.server import Server

SETTLE_SECONDS = 20.0
"""A rank writes its part after the answer may have gone out; so long does a capture wait for rows that are missing."""
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class LiveCapture:
    """What a capture of a server did.

    Attributes:
        manifest: as written.
        sent: what it is a capture of.
        seconds: wall time.
        removed: sessions of former captures that were abandoned in the spool.
    """

    manifest: Manifest
    sent: Sent
    seconds: float
    removed: tuple[str, ...] = ()


def capture_live(
    server: Server,
    sequences: TokenSource,
    output: str | Path,
    *,
    engine: str | None = None,
    conditions: Sequence[Condition] = (),
    new_tokens: int = 16,
    temperature: float = 0.0,
    overwrite: bool = False,
    on_sequence: Callable[[str], None] = lambda _name: None,
) -> LiveCapture:
    """Records what a running server feeds its draft head, over some token sequences.

    Args:
        server: it.
        sequences: the tokens; a ``SkippedSequence`` among them is passed on.
        output: the capture's directory.
        engine: its name where the server's own isn't the whole truth, ``sglang@0.5.12:embedding-capture=patched``.
        conditions: recorded beside, each in a capture of its own.
        new_tokens: generated after each sequence; what the server counts of its drafts comes from them.
        temperature: at which they are generated; 0 is greedy.
        overwrite: see ``CaptureWriter``.
        on_sequence: called with a sequence's name before it is sent.

    Raises:
        InputError: the server doesn't answer, has no hook, or recorded not one sequence; or its parts are out of reach,
            and what was sent is kept in the output for ``capture_from_parts``.
    """
    started = time.perf_counter()
    check_output(output, overwrite=overwrite)
    removed = () if server.spool is None else tuple(remove_abandoned(server.spool, server.token))
    sent = send_sequences(
        server,
        sequences,
        conditions=conditions,
        new_tokens=new_tokens,
        temperature=temperature,
        on_sequence=on_sequence,
    )
    with tempfile.TemporaryDirectory(prefix="eagle-parity-") as copy:
        folder = _reach(server, sent, Path(copy), Path(output))
        parts = _settled(server, sent, folder, Path(copy))
        # Kept until the capture is written: the parts stay in the spool, so an interrupted command can be finished.
        sent.save(output)
        manifest = write_recording(sent, parts, output, engine=engine, overwrite=True)
        server.discard(sent.session)
        (Path(output) / REQUESTS_NAME).unlink(missing_ok=True)
    return LiveCapture(manifest, sent, time.perf_counter() - started, removed)


def capture_from_parts(parts: str | Path, output: str | Path, *, engine: str | None = None) -> LiveCapture:
    """The second half of a capture whose parts had to be copied from the server's host.

    Args:
        parts: the copy of ``<spool>/<session>``.
        output: where ``capture_live`` left what it had sent.
        engine: as there.

    Raises:
        InputError: the parts or the requests aren't there, or are of different sessions.
    """
    started = time.perf_counter()
    sent = read_sent(output)
    folder = Path(parts)
    if is_folder(folder / sent.session):
        folder /= sent.session
    found = SessionParts(folder)
    if not found.ranks or any(record.content["session"] != sent.session for record in found.ranks.values()):
        raise InputError(
            folder,
            "parts of another capture" if found.ranks else "no parts of a capture",
            expected=f"a copy of the folder {sent.session}",
        )
    manifest = write_recording(sent, found, output, engine=engine, overwrite=True)
    (Path(output) / REQUESTS_NAME).unlink(missing_ok=True)
    return LiveCapture(manifest, sent, time.perf_counter() - started)


def _reach(server: Server, sent: Sent, copy: Path, output: Path) -> Path:
    """Where the parts can be read; if nowhere, what was sent is kept."""
    try:
        return server.fetch(sent.session, copy / sent.session)
    except InputError:
        sent.save(output)
        raise


def _settled(server: Server, sent: Sent, folder: Path, copy: Path) -> SessionParts:
    """The parts, once every rank of a request's group has its rows, or has had the time."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        parts = SessionParts(folder)
        whole = all(_is_whole(parts, request) for request in sent.requests)
        if (whole and (GENERATE not in sent.conditions or _is_through(parts, sent))) or time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
        try:
            folder = server.fetch(sent.session, copy / sent.session)
        except InputError:
            break  # the server has died meanwhile: what was fetched before is what there is
    if not parts.ranks:
        raise InputError(
            folder,
            "no rank recorded anything" + (f": {DISK_FULL}" if lacks_room(folder) else ""),
            expected="parts of the requests that were sent",
            remedy="the hook isn't in this server's workers, or it writes to another folder: see the server's log for"
            " lines with eagle-parity",
        )
    return parts


def _is_through(parts: SessionParts, sent: Sent) -> bool:
    """Whether the ranks of each request recorded equally many forwards of generated tokens.

    How many rows of them each rank accepted is its own; that is what they are compared for.
    """
    return all(
        len({parts.generated_forwards(rank, request.number) for rank in parts.ranks_of(request.number)}) == 1
        for request in sent.that_generated()
    )


def _is_whole(parts: SessionParts, request: SentRequest) -> bool:
    ranks = parts.ranks_of(request.number)
    if not ranks or len(ranks) < parts.ranks[ranks[0]].group_size:
        return False
    tokens = len(request.token_ids)
    # Behind a warm prefix the first rows are in a cache: the last one tells that a rank is through.
    first = tokens - 1 if request.condition == "prefix" else 0
    return all(parts.is_whole(rank, request.number, tokens, first=first) for rank in ranks)
