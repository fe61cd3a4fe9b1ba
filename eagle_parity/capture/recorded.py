"""Writes down what the ranks recorded of the requests that were sent: one capture, and one for each condition."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from eagle_parity.capture.assembly import Incomplete, LocatedRank, SessionParts
from eagle_parity.capture.format import CONDITIONS_FOLDER, GENERATE, name_of, text_of
from eagle_parity.capture.launching import flags_against
from eagle_parity.capture.live_recording import IncompleteSequence, LiveRank, LiveRecording
from eagle_parity.capture.manifest import CapturedTarget, Manifest, Producer
from eagle_parity.capture.manifest_file import write_manifest
from eagle_parity.capture.sending import MAX_ARCHITECTURES, THE_REST
from eagle_parity.capture.spool.limits import DISK_FULL, lacks_room
from eagle_parity.capture.vllm.live_objects import EXTRACT
from eagle_parity.capture.writer import CaptureWriter, RankIds
from eagle_parity.engines import parse_engine
from eagle_parity.engines.engine import EngineName
from eagle_parity.engines.live_layers import live_boundaries, options_of
from eagle_parity.errors import InputError
from eagle_parity.wiring import EMBEDDING, POST_NORM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch

    from eagle_parity.capture.assembly import DraftInputState
    from eagle_parity.capture.rank_record import RankRecord
    from eagle_parity.capture.sending import Condition, Sent, SentRequest
    from eagle_parity.wiring import BoundaryEntry

_DTYPES: dict[str, Literal["bfloat16", "float16", "float32"]] = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "float32",
}


def write_recording(
    sent: Sent, parts: SessionParts, output: str | Path, *, engine: str | None, overwrite: bool
) -> Manifest:
    """Writes the capture.

    Args:
        sent: the requests.
        parts: what the ranks recorded of them.
        output: the capture's directory.
        engine: the engine's name where the server's own isn't the whole truth.
        overwrite: see ``CaptureWriter``.

    Returns:
        The manifest; the sequences that aren't whole are told in it.

    Raises:
        InputError: not one sequence is whole, or it can't be written.
    """
    output = Path(output)
    recording = _Recording(sent, parts, engine)
    lost = [_incomplete(name, reason) for name, reason in sent.lost]
    alone = ((request, 0) for request in sent.under(None))
    manifest = recording.write(alone, output, overwrite=overwrite, lost=lost)
    recorded: list[str] = []
    refused: dict[str, str] = {}
    for condition in sent.conditions:
        locating = recording.locate_generated if condition == GENERATE else recording.locate
        fulfilled = recording.fulfilled(condition)
        if not fulfilled:
            refused[condition] = recording.why_not(condition)
            continue
        folder = output / CONDITIONS_FOLDER / condition
        try:
            recording.write(fulfilled, folder, overwrite=True, locating=locating, lost=recording.lost(condition))
            recorded.append(condition)
        except InputError as error:
            refused[condition] = text_of(error.found)
    if sent.conditions and manifest.live is not None:
        live = msgspec.structs.replace(manifest.live, conditions=recorded, skipped_conditions=refused)
        manifest = msgspec.structs.replace(manifest, live=live)
        write_manifest(output, manifest)
    return manifest


class _Recording:
    """What the parts of one session say, ready to be written."""

    def __init__(self, sent: Sent, parts: SessionParts, engine: str | None) -> None:
        self.sent = sent
        self.parts = parts
        first = next((r for r in parts.ranks.values() if r.facts.get("target")), next(iter(parts.ranks.values())))
        self.facts = first.facts
        self.target: Mapping[str, Any] = _mapping(self.facts.get("target"))
        self.draft: Mapping[str, Any] = _mapping(self.facts.get("draft"))
        for record in parts.ranks.values():
            self.draft = self.draft or _mapping(record.facts.get("draft"))
        self.config = _mapping(self.target.get("config"))
        self.architectures = sent.architectures or _names(self.config.get("architectures"))
        version = name_of(_mapping(self.facts.get("engine")).get("version") or sent.version or "unknown")
        self.settings: dict[str, bool | int | float | str | None] = {
            name_of(name): value if not isinstance(value, int) or abs(value) <= 2**62 else name_of(value)
            for name, value in _mapping(self.facts.get("server")).items()
            if isinstance(value, bool | int | float | str)
        }
        options = tuple(sorted(options_of(sent.engine, self.settings).items()))
        self.settings["temperature"] = sent.temperature
        self.not_written: dict[str, str] = {}
        self.engine = parse_engine(engine) if engine else EngineName(sent.engine, version, options)

    @property
    def is_reference(self) -> bool:
        """Whether the server says that it captures for no draft; where it says nothing, there is taken to be one."""
        if self.draft or not _mapping(self.facts.get("server")):
            return False
        if self.sent.engine == "vllm":
            return self.settings.get("method") == EXTRACT
        # The mode without a draft keeps the name of the algorithm, by which its ids are read.
        return "speculative_draft_model_path" not in self.settings

    def write(
        self,
        requests: Iterable[tuple[SentRequest, int]],
        output: Path,
        *,
        overwrite: bool,
        lost: Sequence[IncompleteSequence] = (),
        locating: Callable[[SentRequest, int], dict[str, LocatedRank] | str] | None = None,
    ) -> Manifest:
        """One capture of these requests, each from a position on; the manifest tells which aren't whole.

        Args:
            requests: with the position of each.
            output: the capture's directory.
            overwrite: see ``CaptureWriter``.
            lost: sequences that were never sent or answered.
            locating: finds a request's rows; those of its prompt by default.
        """
        incomplete = list(lost)
        writer: CaptureWriter | None = None
        kind = example = ""
        with ExitStack() as stack:
            for request, first_position in requests:
                located = (locating or self.locate)(request, first_position)
                if isinstance(located, str):
                    incomplete.append(_incomplete(request.name, located))
                    continue
                own = next(iter(located.values()))
                if writer is None:
                    # What the states are like only the first of them says.
                    kind, example = own.kind, request.name
                    writer = self._writer(own, output, overwrite=overwrite)
                    stack.enter_context(writer)
                    writer.describe_live(self._live(incomplete))
                if own.kind != kind:
                    reason = f"its states are of another kind than those of {example}: {own.kind}, not {kind}"
                    incomplete.append(_incomplete(request.name, reason))
                    continue
                self._write_one(writer, request, located)
            if writer is None:
                reason = incomplete[0].reason if incomplete else "no requests"
                raise InputError(output, f"not one sequence was recorded whole; the first: {reason}")
            writer.describe_live(self._live(incomplete))
        return writer.manifest

    def _writer(self, first: LocatedRank, output: Path, *, overwrite: bool) -> CaptureWriter:
        dtype = first.dtype
        if dtype not in _DTYPES:
            raise InputError(self.sent.server, f"its hidden states are {dtype}", expected=" or ".join(_DTYPES))
        num_layers = self.target.get("num_layers")
        path = str(self.config.get("_name_or_path") or self.settings.get("model_path") or "target")
        return CaptureWriter(
            output,
            producer=Producer(
                engine=name_of(self.engine),
                dtype=name_of(self.target.get("dtype") or dtype),
                options={name: name_of(value) for name, value in self.settings.items()},
            ),
            target=CapturedTarget(
                name=name_of(Path(path).name),
                architectures=self.architectures,
                num_layers=num_layers if isinstance(num_layers, int) and num_layers > 0 else 1,
                hidden_size=first.hidden_size,
            ),
            slots=self._boundaries(first),
            last_state=POST_NORM if first.has_last_state else None,
            dtype=_DTYPES[dtype],
            overwrite=overwrite,
        )

    def _boundaries(self, first: LocatedRank) -> list[BoundaryEntry]:
        """What the live module's layer set means; unknown where it says nothing or another number of slots."""
        found = live_boundaries(
            self.engine.engine,
            self.engine.version,
            self.architectures,
            self.target.get("layer_set"),
            int(self.target.get("num_layers") or 0),
            {**{name: str(value) for name, value in self.settings.items()}, **dict(self.engine.options)},
            target_config=self.config or None,
        )
        listed = list(found) if found is not None and len(found) == first.slots else [None] * first.slots
        front = [EMBEDDING] if EMBEDDING in first.beside else []
        return [*front, *listed, *(boundary for boundary in first.beside if boundary != EMBEDDING)]

    def locate(self, request: SentRequest, first_position: int) -> dict[str, LocatedRank] | str:
        """Every rank that has the sequence whole, one with the ids that were sent first, or why there is none."""
        sent = request.token_ids[first_position:]
        whole: dict[str, LocatedRank] = {}
        others: dict[str, LocatedRank] = {}  # with other ids than were sent: a fault that the comparison names
        stopped = self._stopped_by()
        reason = "no rank recorded it" + (f": the hook stopped at its limit ({stopped})" if stopped else "")
        for rank in self.parts.ranks_of(request.number):
            located = self.parts.locate(rank, request.number, len(request.token_ids), first=first_position)
            if isinstance(located, Incomplete):
                reason = f"{rank}: {located}{self._hint(rank, located)}"
            elif located.token_ids.tolist() != sent:
                reason = f"{rank}: the server computed other token ids than were sent"
                others[rank] = located
            else:
                whole[rank] = located
        if not whole:
            failures = [failure for record in self.parts.ranks.values() for failure in record.failures]
            return f"{reason}; the hook: {failures[0]}" if failures else reason
        return whole | others

    def locate_generated(self, request: SentRequest, first_position: int) -> dict[str, LocatedRank] | str:
        """Every rank's own run of generated rows; first one whose tokens the server answered with."""
        output = request.output_ids or []
        answered: dict[str, LocatedRank] = {}
        others: dict[str, LocatedRank] = {}
        reason = "no rank recorded its generated tokens"
        for rank in self.parts.ranks_of(request.number):
            # The last token was chosen and never computed.
            located = self.parts.locate_generated(rank, request.number, first_position, len(output) - 1)
            if isinstance(located, Incomplete):
                reason = f"{rank}: {located}{self._hint(rank, located)}"
                continue
            rows = len(located.token_ids)
            chosen = [] if located.sampled_ids is None else located.sampled_ids.tolist()
            own = located.token_ids.tolist() == output[:rows] and chosen == output[1 : rows + 1]
            (answered if own else others)[rank] = located
        if others and not answered:
            return "no rank generated the tokens that the server answered with"
        return answered | others or reason

    def _stopped_by(self) -> str | None:
        """The limit that a rank ran into; where a full disk kept even that from being written, the disk."""
        stated = (record.content.get("limit") for record in self.parts.ranks.values())
        found: str | None = next((limit for limit in stated if limit), None)
        return found or (DISK_FULL if lacks_room(self.parts.folder) else None)

    def _hint(self, rank: str, incomplete: Incomplete) -> str:
        limit = self.parts.ranks[rank].content.get("limit")
        if limit:
            return f"; the hook stopped at its limit ({limit})"
        if incomplete.missing and incomplete.missing[0][0] == 0 and incomplete.rows:
            flag = flags_against(self.sent.engine, "prefix")
            return f"; the first ones came from the prefix cache: start the server with {flag}"
        return ""

    def _write_one(self, writer: CaptureWriter, request: SentRequest, located: Mapping[str, LocatedRank]) -> None:
        """Rank by rank: all ranks' states of a long sequence would be more than a machine has memory."""
        first, *others = located
        inputs = {rank: self._write_other(writer, rank, located[rank]) for rank in others}
        self._write_first(writer, request, first, located, inputs)

    def _write_other(self, writer: CaptureWriter, rank: str, located: LocatedRank) -> DraftInputState:
        assembled = located.read()
        writer.write_rank(rank, RankIds(located.token_ids, located.sampled_ids), assembled.states)
        return located.draft_input_state(assembled.slots, normed=self._is_normed)

    def _write_first(
        self,
        writer: CaptureWriter,
        request: SentRequest,
        rank: str,
        located: Mapping[str, LocatedRank],
        inputs: Mapping[str, DraftInputState],
    ) -> None:
        """The rank whose states any capture has, and the head's input of whichever rank got another one."""
        own = located[rank]
        assembled = own.read()
        for name, other in located.items():
            reason = other.lacks_last_state(beside=own.has_last_state and name != rank)
            if reason is not None:
                self.not_written.setdefault(name, text_of(f"{request.name}: {reason}"))
        inputs = {rank: own.draft_input_state(assembled.slots, normed=self._is_normed), **inputs}
        wrong = next((name for name, state in inputs.items() if state == "differs"), None)
        # Of a rank with a draft, which recorded no input of it whole, nothing is known, whatever others got.
        unseen = next((name for name, state in inputs.items() if state == "absent" and self._has_draft(name)), None)
        generated = own.sampled_ids is not None
        first_position = len(request.token_ids) - (0 if generated else len(own.token_ids))
        mask = None if generated else request.loss_mask
        writer.write(
            request.name,
            own.token_ids,
            assembled.states,
            last_state=assembled.last_state,
            loss_mask=None if mask is None else _tensor(mask[first_position:]),
            draft_input=None if wrong is None else located[wrong].draft_input(),
            draft_input_is=None if self.is_reference else inputs[wrong or unseen or rank],
            rank=rank,
            sampled_ids=own.sampled_ids,
            first_position=first_position,
            modes=own.modes,
            forwards=own.forwards,
        )

    def _has_draft(self, rank: str) -> bool:
        return bool(self.parts.ranks[rank].facts.get("draft"))

    @property
    def _is_normed(self) -> bool:
        return bool(self.draft.get("normed_before_fc"))

    def _live(self, incomplete: Sequence[IncompleteSequence]) -> LiveRecording:
        layers = self.target.get("layer_set")
        return LiveRecording(
            server=self.sent.server,
            session=self.sent.session,
            tap=str(self.facts.get("tap") or ""),
            target_class=self.target.get("model_class"),
            draft_class=self.draft.get("model_class"),
            layer_set={name_of(name): ids for name, ids in layers.items()} if isinstance(layers, dict) else None,
            draft_config=_mapping(self.draft.get("config")) or None,
            settings=self.settings,
            variants={name_of(name): text_of(way) for name, way in _mapping(self.facts.get("variants")).items()},
            ranks=[_live_rank(record) for record in self.parts.ranks.values()],
            incomplete=list(incomplete),
            acceptance=self.sent.acceptance,
            not_written=dict(self.not_written),
        )

    def fulfilled(self, condition: Condition) -> list[tuple[SentRequest, int]]:
        """The requests that were really computed under a condition, each with the position from which on."""
        if condition == GENERATE:
            return [
                (request, len(request.token_ids))
                for request in self.sent.that_generated()
                if any(self.parts.generated_forwards(r, request.number) for r in self.parts.ranks_of(request.number))
            ]
        chosen = []
        for request in self.sent.under(condition):
            ranks = self.parts.ranks_of(request.number)
            if ranks:
                forwards, first, alone = self.parts.shape_of(ranks[0], request.number)
                if {"batch": not alone, "chunk": forwards > 1, "prefix": first > 0}[condition]:
                    chosen.append((request, first if condition == "prefix" else 0))
        return chosen

    def lost(self, condition: Condition) -> list[IncompleteSequence]:
        """What of a condition wasn't sent, and what no rank has a row of."""
        reason = self.sent.cut_short.get(condition)
        unsent = [] if reason is None else [_incomplete(THE_REST, reason)]
        if condition == GENERATE:
            return unsent + self._without_generated_rows()
        nowhere = (request for request in self.sent.under(condition) if not self.parts.ranks_of(request.number))
        return unsent + [_incomplete(one.name, str(self.locate(one, 0))) for one in nowhere]

    def _without_generated_rows(self) -> list[IncompleteSequence]:
        """The sequences behind which no row was recorded: answers end where the model ends them."""
        fulfilled = {request.number for request, _ in self.fulfilled(GENERATE)}
        without = []
        for request in self.sent.under(None):
            if request.number not in fulfilled:
                tokens = len(request.output_ids or ())
                ended = f"its answer has {_tokens(tokens)}, and the last one is never computed"
                enough = request in self.sent.that_generated()
                without.append(_incomplete(request.name, "no rank recorded its rows" if enough else ended))
        return without

    def why_not(self, condition: Condition) -> str:
        """Why no request was."""
        if condition == GENERATE:
            if self.sent.engine != "vllm":
                return (
                    f"the hook in {self.sent.engine} records prompts' rows alone: decoding replays graphs, where no"
                    " hook fires, and what was accepted isn't known where it stands"
                )
            if not self.sent.that_generated():
                return "no answer has two generated tokens with their ids (--generate)"
            return "no rank recorded rows of generated tokens"
        if not self.sent.under(condition):
            reason = self.sent.cut_short.get(condition)
            return "no request of it was answered" + (f" ({reason})" if reason else "")
        if condition == "chunk":
            return f"the scheduler split no sequence: start the server with {flags_against(self.sent.engine, 'chunk')}"
        if condition == "prefix":
            return (
                "no prefix was found in a cache: the server keeps none, or in blocks longer than half of each sequence"
            )
        return "no two sequences were computed together"


def _live_rank(record: RankRecord) -> LiveRank:
    content = record.content
    skipped = _mapping(content.get("skipped"))
    return LiveRank(
        name=record.rank,
        group=record.group,
        group_size=record.group_size,
        parallel={name_of(name): size for name, size in record.parallel.items()},
        tokens=int(content.get("tokens") or 0),
        seconds=content.get("seconds"),
        limit=content.get("limit"),
        failures=record.failures,
        skipped={name_of(name): int(rows) for name, rows in skipped.items()},
    )


def _tokens(count: int) -> str:
    return "one token" if count == 1 else f"{count} tokens"


def _incomplete(name: str, reason: str) -> IncompleteSequence:
    return IncompleteSequence(name=name_of(name), reason=text_of(reason))


def _names(value: object) -> list[str]:
    return [name_of(name) for name in value[:MAX_ARCHITECTURES]] if isinstance(value, list) else []


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tensor(values: Sequence[int]) -> torch.Tensor:
    import torch

    return torch.tensor(values, dtype=torch.int64)
