"""A capture of a running server: sends token sequences, gathers what every rank recorded of them, writes it down.

The workers' hooks record (``capture.sglang``, ``capture.vllm``), a ``Server`` is the way to them, ``SessionParts`` puts
their rows together. Rows belong to a request by its id and to a place in it by their position; the order in which they
were recorded means nothing.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from eagle_parity.capture.assembly import AssembledRank, Incomplete, SessionParts, draft_input_state
from eagle_parity.capture.format import (
    CONDITIONS_FOLDER,
    Acceptance,
    CapturedTarget,
    CaptureWriter,
    IncompleteSequence,
    LiveRank,
    LiveRecording,
    Manifest,
    Producer,
    check_output,
    write_manifest,
)
from eagle_parity.capture.prompts import SkippedSequence, TokenSequence
from eagle_parity.capture.spool import new_session, request_id
from eagle_parity.errors import InputError, ParityError
from eagle_parity.quoting import one_line
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch

    from eagle_parity.capture.assembly import RankRecord
    from eagle_parity.capture.prompts import TokenSource
    from eagle_parity.capture.servers.server import Generation, Server
    from eagle_parity.wiring import BoundaryEntry

Condition: TypeAlias = Literal["alone", "batch", "chunk", "prefix"]
CONDITIONS: tuple[Condition, ...] = ("batch", "chunk", "prefix")
"""What can be recorded beside the sequences alone: together at once, split by the scheduler, behind a warm prefix."""

CONCURRENT_REQUESTS = 8
"""Of the conditions that want a full batch: below any engine's limit of running requests."""
SETTLE_SECONDS = 20.0
"""A rank writes its part after the answer may have gone out; so long does a capture wait for rows that are missing."""
_POLL_SECONDS = 0.25
_DTYPES: dict[str, Literal["bfloat16", "float16", "float32"]] = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "float32",
}
MIN_PREFIX_TOKENS = 2
"""A warm prefix needs a token before the rows that are compared, and these need one."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One request of a session.

    Attributes:
        number: in its id.
        sequence: what was sent.
        condition: under which.
        first_position: rows from here on are wanted; before it lies the warm prefix.
    """

    number: int
    sequence: TokenSequence
    condition: Condition
    first_position: int = 0


@dataclass
class LiveCapture:
    """What a capture of a server did.

    Attributes:
        manifest: as written.
        skipped: sequences that were not sent, or not answered.
        seconds: wall time.
    """

    manifest: Manifest
    skipped: tuple[SkippedSequence, ...]
    seconds: float


@dataclass
class _Run:
    """The requests of a session, as far as they have got."""

    server: Server
    session: str
    new_tokens: int
    sent: list[SentRequest] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    skipped: list[SkippedSequence] = field(default_factory=list)
    numbers: int = 0

    def prepare(self, sequence: TokenSequence, condition: Condition, first_position: int = 0) -> SentRequest:
        request = SentRequest(self.numbers, sequence, condition, first_position)
        self.numbers += 1
        return request

    def send(self, request: SentRequest) -> str | None:
        """Why it wasn't answered, or None. A salt of its own keeps other requests' cached prefixes out."""
        salt = f"{self.session}.{request.number}"
        mark = request_id(self.server.token, self.session, request.number)
        try:
            if request.first_position:
                # The prefix goes by another number: its rows are of no interest, that they are cached is.
                warm = request_id(self.server.token, self.session, self.prepare(request.sequence, "prefix").number)
                prefix = request.sequence.token_ids[: request.first_position]
                self.server.generate(prefix, request_id=warm, salt=salt, new_tokens=1)
            generation = self.server.generate(
                request.sequence.token_ids, request_id=mark, salt=salt, new_tokens=self.new_tokens
            )
        except ParityError as error:
            return one_line(error)
        self.sent.append(request)
        self.generations.append(generation)
        return None


def capture_live(
    server: Server,
    sequences: TokenSource,
    output: str | Path,
    *,
    engine: str | None = None,
    conditions: Sequence[Condition] = (),
    new_tokens: int = 16,
    overwrite: bool = False,
    on_sequence: Callable[[str], None] | None = None,
) -> LiveCapture:
    """Records what a running server feeds its draft head, over some token sequences.

    Args:
        server: it.
        sequences: the tokens; a ``SkippedSequence`` among them is passed on.
        output: the capture's directory.
        engine: its name where the server's own isn't the whole truth, ``sglang@0.5.12:embedding-capture=patched``.
        conditions: recorded beside, each in a capture of its own.
        new_tokens: generated after each sequence; what the server counts of its drafts comes from them.
        overwrite: see ``CaptureWriter``.
        on_sequence: called with a sequence's name before it is sent.

    Raises:
        InputError: the server doesn't answer, has no hook, or recorded not one sequence.
    """
    started = time.perf_counter()
    check_output(output, overwrite=overwrite)
    run = _Run(server, new_session(), new_tokens)
    before = server.counters()
    with server.recording():
        usable = _send_alone(run, sequences, on_sequence)
        for condition in conditions:
            _send_under(run, condition, usable, on_sequence)
    acceptance = _acceptance(run, before)
    with tempfile.TemporaryDirectory(prefix="eagle-parity-") as copy:
        parts, folder = _gather(run, Path(copy))
        recording = _Recording(run, parts, engine, acceptance)
        manifest = _write(run, recording, Path(output), conditions, overwrite=overwrite)
        if folder.parent != Path(copy):
            server.discard(run.session)
    return LiveCapture(manifest, tuple(run.skipped), time.perf_counter() - started)


# Sending ------------------------------------------------------------------------------------------------------------


def _send_alone(run: _Run, sequences: TokenSource, on_sequence: Callable[[str], None] | None) -> list[TokenSequence]:
    """Sends each sequence by itself; the ones that were answered."""
    longest = run.server.max_tokens()
    answered: list[TokenSequence] = []
    failure = ""
    for sequence in sequences:
        if isinstance(sequence, SkippedSequence):
            run.skipped.append(sequence)
            continue
        if on_sequence is not None:
            on_sequence(sequence.name)
        if not sequence.token_ids:
            run.skipped.append(SkippedSequence(sequence.name, "no tokens"))
            continue
        if longest is not None and len(sequence.token_ids) > longest:
            reason = f"{len(sequence.token_ids):,} tokens; the server takes {longest:,}: pass --max-tokens"
            run.skipped.append(SkippedSequence(sequence.name, reason))
            continue
        refusal = run.send(run.prepare(sequence, "alone"))
        if refusal is None:
            answered.append(sequence)
            failure = ""
            continue
        run.skipped.append(SkippedSequence(sequence.name, refusal))
        if failure == refusal:
            break  # the server is gone: the others would say the same
        failure = refusal
    if not answered:
        told = f"; the first: {run.skipped[0].name}: {run.skipped[0].reason}" if run.skipped else ""
        raise InputError(
            run.server.url,
            f"nothing was captured, {len(run.skipped)} sequences were skipped{told}",
            expected="token sequences that the server answers",
        )
    return answered


def _send_under(
    run: _Run, condition: Condition, sequences: Sequence[TokenSequence], on_sequence: Callable[[str], None] | None
) -> None:
    if condition == "prefix":
        for sequence in sequences:
            if len(sequence.token_ids) >= MIN_PREFIX_TOKENS:
                if on_sequence is not None:
                    on_sequence(f"{sequence.name} behind a warm prefix")
                run.send(run.prepare(sequence, "prefix", len(sequence.token_ids) // 2))
        return
    requests = [run.prepare(sequence, condition) for sequence in sequences]
    if on_sequence is not None:
        on_sequence(f"{len(requests)} sequences at once")
    with ThreadPoolExecutor(max_workers=CONCURRENT_REQUESTS) as pool:
        list(pool.map(run.send, requests))


def _acceptance(run: _Run, before: Any) -> Acceptance | None:
    output_tokens = sum(generation.output_tokens for generation in run.generations)
    if before is not None:
        with suppress(ParityError):
            after = run.server.counters()
            if after is not None:
                counted: Acceptance = before.until(after, output_tokens=output_tokens)
                return counted
    own = [g for g in run.generations if g.drafts is not None and g.accepted_tokens is not None]
    if not own:
        return None
    drafted = [g.draft_tokens for g in own if g.draft_tokens is not None]
    return Acceptance(
        drafts=sum(g.drafts or 0 for g in own),
        draft_tokens=sum(drafted) if len(drafted) == len(own) else None,
        accepted_tokens=sum(g.accepted_tokens or 0 for g in own),
        output_tokens=sum(g.output_tokens for g in own),
        source="each answer's meta_info: spec_*",
        other_traffic=False,
    )


# Gathering ----------------------------------------------------------------------------------------------------------


def _gather(run: _Run, copy: Path) -> tuple[SessionParts, Path]:
    """The parts, once every rank that belongs to a request has its rows, or has had the time."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        try:
            folder = run.server.fetch(run.session, copy / run.session)
            parts = SessionParts(folder)
            if parts.ranks and all(_is_whole(parts, request) for request in run.sent):
                return parts, folder
        except InputError:
            if time.monotonic() > deadline:
                raise
        else:
            if time.monotonic() > deadline:
                break
        time.sleep(_POLL_SECONDS)
    if not parts.ranks:
        raise InputError(
            folder,
            "no rank recorded anything",
            expected="parts of the requests that were sent",
            remedy="the hook isn't in this server's workers, or it writes to another folder: see the server's log for"
            " lines with eagle-parity",
        )
    return parts, folder


def _is_whole(parts: SessionParts, request: SentRequest) -> bool:
    ranks = parts.ranks_of(request.number)
    if not ranks or len(ranks) < parts.ranks[ranks[0]].group_size:
        return False
    return not any(
        isinstance(parts.assemble(rank, request.number, len(request.sequence.token_ids)), Incomplete)
        for rank in ranks
        if not request.first_position
    )


# Writing ------------------------------------------------------------------------------------------------------------


def _write(
    run: _Run, recording: _Recording, output: Path, conditions: Sequence[Condition], *, overwrite: bool
) -> Manifest:
    main = [request for request in run.sent if request.condition == "alone"]
    manifest = recording.write(main, output, overwrite=overwrite)
    if not manifest.sequences:
        reason = manifest.live.incomplete[0].reason if manifest.live and manifest.live.incomplete else "no rows"
        raise InputError(output, f"not one sequence was recorded whole; the first: {reason}")
    recorded: list[str] = []
    refused: dict[str, str] = {}
    for condition in conditions:
        requests = [request for request in run.sent if request.condition == condition]
        told = recording.why_not(condition, requests)
        if told:
            refused[condition] = told
            continue
        recording.write(recording.split(condition, requests), output / CONDITIONS_FOLDER / condition, overwrite=True)
        recorded.append(condition)
    if conditions and manifest.live is not None:
        live = msgspec.structs.replace(manifest.live, conditions=recorded, skipped_conditions=refused)
        manifest = msgspec.structs.replace(manifest, live=live)
        write_manifest(output, manifest)
    return manifest


class _Recording:
    """What the parts of one session say, ready to be written."""

    def __init__(self, run: _Run, parts: SessionParts, engine: str | None, acceptance: Acceptance | None) -> None:
        self.run = run
        self.parts = parts
        self.acceptance = acceptance
        first = next((r for r in parts.ranks.values() if r.facts.get("target")), next(iter(parts.ranks.values())))
        self.facts = first.facts
        self.target: Mapping[str, Any] = _mapping(self.facts.get("target"))
        self.draft: Mapping[str, Any] = _mapping(self.facts.get("draft"))
        for record in parts.ranks.values():
            self.draft = self.draft or _mapping(record.facts.get("draft"))
        self.config = _mapping(self.target.get("config"))
        version = str(_mapping(self.facts.get("engine")).get("version") or run.server.version or "unknown")
        self.engine = engine or f"{run.server.engine}@{version}"
        self.version = version
        self.settings: dict[str, bool | int | float | str | None] = {
            str(name): value
            for name, value in _mapping(self.facts.get("server")).items()
            if isinstance(value, bool | int | float | str)
        }

    def write(self, requests: Iterable[SentRequest], output: Path, *, overwrite: bool) -> Manifest:
        """One capture of these requests; the ones that aren't whole are told in its manifest."""
        incomplete: list[IncompleteSequence] = []
        writer: CaptureWriter | None = None
        try:
            for request in requests:
                assembled = self._assemble(request)
                if isinstance(assembled, str):
                    incomplete.append(IncompleteSequence(name=request.sequence.name, reason=assembled))
                    continue
                first = next(iter(assembled.values()))
                if writer is None:
                    writer = self._writer(first, output, overwrite=overwrite)
                    writer.__enter__()
                    writer.describe_live(self._live(incomplete))
                self._write_one(writer, request, assembled)
        except BaseException as error:
            if writer is not None:
                writer.__exit__(type(error), error, error.__traceback__)
            raise
        if writer is None:
            reason = incomplete[0].reason if incomplete else "no requests"
            raise InputError(output, f"not one sequence was recorded whole; the first: {reason}")
        writer.describe_live(self._live(incomplete))
        writer.__exit__(None, None, None)
        return writer.manifest

    def _writer(self, first: AssembledRank, output: Path, *, overwrite: bool) -> CaptureWriter:
        dtype = str(first.slots[0].dtype).removeprefix("torch.")
        if dtype not in _DTYPES:
            raise InputError(self.run.server.url, f"its hidden states are {dtype}", expected=" or ".join(_DTYPES))
        hidden_size = int(first.slots[0].shape[1])
        num_layers = self.target.get("num_layers")
        return CaptureWriter(
            output,
            producer=Producer(
                engine=self.engine,
                dtype=str(self.target.get("dtype") or dtype),
                options={name: str(value) for name, value in self.settings.items()},
            ),
            target=CapturedTarget(
                name=Path(str(self.config.get("_name_or_path") or self.settings.get("model_path") or "target")).name,
                architectures=[str(name) for name in self.config.get("architectures") or []],
                num_layers=num_layers if isinstance(num_layers, int) and num_layers > 0 else 1,
                hidden_size=hidden_size,
            ),
            slots=self._boundaries(len(first.slots)),
            last_state=None if first.last_state is None else POST_NORM,
            dtype=_DTYPES[dtype],
            overwrite=overwrite,
        )

    def _boundaries(self, slots: int) -> list[BoundaryEntry]:
        """What the live module's layer set means; unknown where it says nothing or another number of slots."""
        from eagle_parity.engines.live_layers import live_boundaries

        found = live_boundaries(
            self.run.server.engine,
            self.version,
            [str(name) for name in self.config.get("architectures") or []],
            self.target.get("layer_set"),
            int(self.target.get("num_layers") or 0),
            {name: str(value) for name, value in self.settings.items()},
            target_config=self.config or None,
        )
        return list(found) if found is not None and len(found) == slots else [None] * slots

    def _assemble(self, request: SentRequest) -> dict[str, AssembledRank] | str:
        """Every rank that has the sequence whole, or why not one has."""
        import torch

        tokens = len(request.sequence.token_ids)
        whole: dict[str, AssembledRank] = {}
        reason = "no rank recorded it"
        for rank in self.parts.ranks_of(request.number):
            assembled = self.parts.assemble(rank, request.number, tokens, first=request.first_position)
            if isinstance(assembled, Incomplete):
                reason = f"{rank}: {assembled}{self._hint(rank, assembled)}"
            elif not torch.equal(
                assembled.token_ids, torch.tensor(request.sequence.token_ids[tokens - len(assembled.token_ids) :])
            ):
                reason = f"{rank}: the server computed other token ids than were sent"
            else:
                whole[rank] = assembled
        if not whole:
            failures = [f for record in self.parts.ranks.values() for f in record.content.get("failures", [])]
            return f"{reason}; the hook: {failures[0]}" if failures else reason
        return whole

    def _hint(self, rank: str, incomplete: Incomplete) -> str:
        limit = self.parts.ranks[rank].content.get("limit")
        if limit:
            return f"; the hook stopped at its limit ({limit})"
        if incomplete.missing and incomplete.missing[0][0] == 0 and incomplete.rows:
            flag = self.run.server.flags_for("prefix")
            return f"; the first ones came from the prefix cache: start the server with {flag}"
        return ""

    def _write_one(self, writer: CaptureWriter, request: SentRequest, whole: Mapping[str, AssembledRank]) -> None:
        first = next(iter(whole.values()))
        normed = bool(self.draft.get("normed_before_fc"))
        states = [draft_input_state(rank, normed=normed) for rank in whole.values()]
        # What any rank's fc got wrong counts.
        state = next((s for s in states if s == "differs"), states[0])
        at = states.index(state)
        different = list(whole.values())[at].draft_input if state == "differs" else None
        mask = request.sequence.loss_mask
        writer.write(
            request.sequence.name,
            first.token_ids,
            first.slots,
            last_state=first.last_state,
            loss_mask=None if mask is None or request.first_position else _tensor(mask),
            draft_input=different,
            draft_input_is=state,
            ranks={name: rank.slots for name, rank in whole.items()},
            first_position=len(request.sequence.token_ids) - len(first.token_ids),
        )

    def _live(self, incomplete: Sequence[IncompleteSequence]) -> LiveRecording:
        layers = self.target.get("layer_set")
        return LiveRecording(
            server=self.run.server.url,
            session=self.run.session,
            tap=str(self.facts.get("tap") or ""),
            target_class=self.target.get("model_class"),
            draft_class=self.draft.get("model_class"),
            layer_set=layers if isinstance(layers, dict) else None,
            draft_config=_mapping(self.draft.get("config")) or None,
            settings=self.settings,
            ranks=[_live_rank(record) for record in self.parts.ranks.values()],
            incomplete=list(incomplete),
            acceptance=self.acceptance,
        )

    def why_not(self, condition: Condition, requests: Sequence[SentRequest]) -> str:
        """Why a condition could not be recorded; empty where it could."""
        if not requests:
            return "no request of it was answered"
        if self.split(condition, requests):
            return ""
        if condition == "chunk":
            return f"the scheduler split no sequence: start the server with {self.run.server.flags_for('chunk')}"
        if condition == "prefix":
            return "no prefix was found in a cache: the server keeps none"
        return "no two sequences were computed together"

    def split(self, condition: Condition, requests: Sequence[SentRequest]) -> list[SentRequest]:
        """The requests that were really computed under the condition."""
        chosen = []
        for request in requests:
            ranks = self.parts.ranks_of(request.number)
            if not ranks:
                continue
            forwards, first, alone = self.parts.shape_of(ranks[0], request.number)
            fulfilled = {"batch": not alone, "chunk": forwards > 1, "prefix": first > 0, "alone": True}[condition]
            if fulfilled:
                chosen.append(
                    SentRequest(request.number, request.sequence, condition, first if condition == "prefix" else 0)
                )
        return chosen


def _live_rank(record: RankRecord) -> LiveRank:
    content = record.content
    skipped = _mapping(content.get("skipped"))
    return LiveRank(
        name=record.rank,
        group=record.group,
        group_size=record.group_size,
        parallel=record.parallel,
        tokens=int(content.get("tokens") or 0),
        limit=content.get("limit"),
        failures=[str(failure) for failure in content.get("failures") or []],
        skipped={str(name): int(rows) for name, rows in skipped.items()},
    )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tensor(values: Sequence[int]) -> torch.Tensor:
    import torch

    return torch.tensor(values, dtype=torch.int64)
