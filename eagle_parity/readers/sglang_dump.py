"""A folder of SGLang's dumper as sequences: the target's forwards over prompts, put together from a file a tensor.

A sequence is delivered where every row belongs to a known token: it begins at position 0, and what follows continues
it without a gap. So a prompt is delivered, whole or from its chunks; the rest is told and left out: requests whose
beginning came from the prefix cache, rows of decoded tokens, draft tokens under verification, the draft's own forwards.

Ranks count their forwards for themselves, and each rank's states are complete on their own (``sglang_forward``), so one
rank is read. Under attention data parallelism each rank has other requests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eagle_parity.errors import InputError
from eagle_parity.hidden_states import HiddenStates, LastStateRule, Layout, StateSequence, Unreadable
from eagle_parity.readers.containers import UnreadableFileError, read_table
from eagle_parity.readers.containers.stored_tensor import StoredRows, require_torch
from eagle_parity.readers.containers.tensor_table import shorten
from eagle_parity.readers.reader import LAYERS_NOT_RECORDED
from eagle_parity.readers.sglang_dumper import is_dumped, meta_of, parse_name
from eagle_parity.readers.sglang_forward import (
    Parts,
    Request,
    States,
    Whose,
    check_token_ids,
    is_relevant,
    read_batch,
    read_dumped,
    read_states,
    sort_parts,
)
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import torch

    from eagle_parity.hidden_states import Rows

FORMAT = "sglang-dumper"

LISTED = 64
LOOKED_INTO = 8
"""As many of a folder's first files are looked into, of as many whose names are looked at, before it is no dump: other
folders have a million files."""

_CACHED = (
    "came from the prefix cache, so that no file has their states: POST /flush_cache before the request, or start the"
    " server with --disable-radix-cache"
)
_NO_AUX = (
    "no forward with auxiliary states in it (non_intrusive__logits_processor.inputs.4): start the server with"
    " DUMPER_NON_INTRUSIVE_MODE=all and a draft, or with --enable-return-aux-hidden-states"
)


@dataclass(frozen=True, slots=True, order=True)
class _Forward:
    """Which forward: recordings of one folder count their own."""

    folder: str
    step: int


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some rows of one forward."""

    forward: _Forward
    start: int
    stop: int


@dataclass(slots=True)
class _Sequence:
    """A sequence that may go on in a later forward."""

    name: str
    chunks: list[_Chunk]

    @property
    def tokens(self) -> int:
        return sum(chunk.stop - chunk.start for chunk in self.chunks)


@dataclass(slots=True)
class _Found:
    """What the forwards of one rank amount to.

    Attributes:
        sequences: by name.
        unreadable: rows that are nobody's for certain, with the reason.
        left_out: rows and forwards that are no prompt's, by kind.
        states: of the first forward that is in a sequence.
    """

    sequences: dict[str, _Sequence] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    states: States | None = None


def is_dump(root: Path, names: Sequence[str], paths: Mapping[str, str]) -> bool:
    """Whether a folder is the dumper's: by what is in the first files that are named so.

    Args:
        root: the folder.
        names: of its files, below it.
        paths: for some names, the path as the system has it.
    """
    named = (name for name in names[:LISTED] if parse_name(name.rpartition("/")[2]) is not None)
    for _, name in zip(range(LOOKED_INTO), named, strict=False):
        try:
            if is_dumped(read_table(root / paths.get(name, name))):
                return True
        except UnreadableFileError:
            continue
    return False


def open_dump(root: Path, names: Sequence[str], paths: Mapping[str, str], rank: int | None = None) -> HiddenStates:
    """The sequences of one rank.

    Args:
        root: the folder.
        names: of its files, below it.
        paths: for some names, the path as the system has it.
        rank: in the world of all ranks; by default the lowest one that recorded auxiliary states.

    Raises:
        InputError: there is no sequence for certain, or no such rank.
    """
    by_rank, strangers = _sort(root, names, paths)
    recorded = sorted(r for r, forwards in by_rank.items() if any(parts.slots for parts in forwards.values()))
    if not recorded:
        raise InputError(root, _NO_AUX)
    if rank is not None and rank not in recorded:
        raise InputError(root, f"no auxiliary states of rank {rank}", expected=f"one of {recorded}")
    read = recorded[0] if rank is None else rank
    forwards = by_rank[read]
    found = _join(forwards)
    if found.states is None:
        reasons = [entry.reason for entry in found.unreadable[:1]]
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(found.left_out.items()))
        raise InputError(
            root,
            f"SGLang's dumper, {len(forwards):,} forwards of rank {read} and no prompt's rows among them"
            f" ({'; '.join([*reasons, told]) or 'empty'})",
        )
    opened = _Dump(forwards, found, root)
    return HiddenStates(
        path=root,
        layout=_layout(found, forwards, read, recorded),
        names=list(found.sequences),
        opener=opened.open,
        unreadable=(*strangers, *found.unreadable),
        counter=opened.count,
    )


def _sort(
    root: Path, names: Sequence[str], paths: Mapping[str, str]
) -> tuple[dict[int, dict[_Forward, Parts]], list[Unreadable]]:
    """The parts of each forward by rank, and the files that aren't the dumper's."""
    files: dict[int, dict[_Forward, list[tuple[str, Path]]]] = {}
    strangers: list[Unreadable] = []
    for name in names:
        folder, _, base = name.rpartition("/")
        parsed = parse_name(base)
        if parsed is None:
            strangers.append(Unreadable(name, "not one of the dumper's files, in a folder of them"))
        elif not parsed.context and is_relevant(parsed.name):
            of_rank = files.setdefault(parsed.rank, {})
            forward = of_rank.setdefault(_Forward(folder, parsed.step), [])
            forward.append((parsed.name, root / paths.get(name, name)))
    return {
        rank: {forward: sort_parts(listed) for forward, listed in sorted(forwards.items())}
        for rank, forwards in files.items()
    }, strangers


def _join(forwards: Mapping[_Forward, Parts]) -> _Found:
    """Goes through the forwards in their order and puts the rows of prompts together."""
    found = _Found()
    going_on: dict[tuple[str, str], _Sequence] = {}
    for forward, parts in forwards.items():
        if not parts.slots:
            found.left_out["forwards without auxiliary states"] += 1
            continue
        where = _where(forward)
        try:
            states = read_states(parts)
            if states.whose is Whose.ONE_STATE:
                found.left_out["forwards with one state as wide as the hidden state (the draft's)"] += 1
                continue
            batch = read_batch(parts, states.rows)
            if found.states is not None:
                _check_alike(found.states, states)
        except (UnreadableFileError, InputError) as error:
            found.unreadable.append(Unreadable(where, str(error)))
            continue
        if batch.verification:
            found.left_out["forwards that verify draft tokens"] += 1
        for number, request in enumerate(batch.requests):
            _add(found, going_on, forward, request, number)
            if found.states is None and found.sequences:
                found.states = states
    return found


def _add(
    found: _Found, going_on: dict[tuple[str, str], _Sequence], forward: _Forward, request: Request, number: int
) -> None:
    """The rows of one request in a forward: a new sequence, more of one, or nobody's."""
    chunk = _Chunk(forward, request.start, request.stop)
    name = f"{_where(forward)}___" + (f"request={number}" if request.rid is None else f"rid={shorten(request.rid)}")
    key = None if request.rid is None else (forward.folder, request.rid)
    former = None if key is None else going_on.get(key)
    if request.position == 0:
        if name in found.sequences:
            name = f"{name}#{number}"  # two ids that are alike as far as they are shown
        sequence = _Sequence(name, [chunk])
        found.sequences[name] = sequence
        if key is not None:
            going_on[key] = sequence
        return
    rows = request.stop - request.start
    if rows == 1:
        found.left_out["rows of decoded tokens"] += 1
    elif former is not None and former.tokens == request.position and request.prompt:
        former.chunks.append(chunk)
    else:
        found.unreadable.append(Unreadable(name, _why_left_out(former, request, rows)))


def _why_left_out(former: _Sequence | None, request: Request, rows: int) -> str:
    which = f"{rows} rows from position {request.position} on"
    if request.rid is None:
        return f"{which}, and no rids to say of which sequence"
    if former is None:
        return f"{which}: the tokens before them {_CACHED}"
    if former.tokens != request.position:
        return f"{which}, where {former.name} has {former.tokens}: some are missing"
    return (
        f"{which}, behind {former.name}: the rest of its prompt or draft tokens? Only"
        " logits_processor.output.next_token_logits would tell, and isn't in the dump"
    )


def _where(forward: _Forward) -> str:
    return f"{forward.folder}/step={forward.step}" if forward.folder else f"step={forward.step}"


def _check_alike(expected: States, states: States) -> None:
    for what, ours, theirs in (
        ("slots", len(expected.slots), len(states.slots)),
        ("hidden size", expected.hidden_size, states.hidden_size),
        ("dtype", expected.dtype, states.dtype),
        ("last state", expected.last_state is not None, states.last_state is not None),
    ):
        if ours != theirs:
            raise UnreadableFileError(
                f"it has {what} {theirs}, the forwards before have {ours}: read it apart from them"
            )


def _layout(found: _Found, forwards: Mapping[_Forward, Parts], rank: int, recorded: Sequence[int]) -> Layout:
    states = found.states
    assert states is not None  # noqa: S101  checked by the caller
    has_last = states.last_state is not None
    return Layout(
        format=FORMAT,
        description=(
            f"SGLang's dumper, rank {rank} of {len(recorded)} recorded: {len(states.slots)} auxiliary states"
            f" [T, {states.hidden_size}] of the target's prompts"
            + (" and the state after the final norm" if has_last else "")
        ),
        slots=len(states.slots),
        hidden_size=states.hidden_size,
        dtype=states.dtype,
        last_state=LastStateRule.STORED if has_last else LastStateRule.ABSENT,
        last_state_boundary=POST_NORM if has_last else None,
        unknown=(LAYERS_NOT_RECORDED,),
        facts={
            "order": "ascending layers, as SGLang concatenates them",
            "rank": rank,
            "ranks_recorded": list(recorded),
            **_ranks(states),
            "forwards": len(forwards),
            **({"left_out": dict(sorted(found.left_out.items()))} if found.left_out else {}),
        },
    )


def _ranks(states: States) -> dict[str, Any]:
    """The sizes of the world that recorded, as one file tells them."""
    table = states.slots[0].source
    path = getattr(table, "path", None)
    try:
        meta = meta_of(read_dumped(path)) if path is not None else {}
    except UnreadableFileError:
        return {}
    info = meta.get("sglang_parallel_info")
    told = {"world_size": meta.get("world_size")}
    for key in ("tp_size", "pp_size", "attn_dp_size"):
        told[key] = info.get(key) if isinstance(info, dict) else None
    return {key: value for key, value in told.items() if type(value) is int}


@dataclass(frozen=True, slots=True)
class _JoinedRows:
    """One state of a sequence whose rows lie in several files."""

    parts: tuple[StoredRows, ...]

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)

    @property
    def hidden_size(self) -> int:
        return self.parts[0].hidden_size

    @property
    def dtype(self) -> str:
        return self.parts[0].dtype

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Rows ``start`` to ``stop``; raises as the stored rows do."""
        import torch

        if not 0 <= start <= stop <= self.tokens:
            raise IndexError(f"rows {start} to {stop} of {self.tokens}")
        return torch.cat([part.read(first, last) for part, first, last in self._inside(start, stop)])

    def _inside(self, start: int, stop: int) -> Iterator[tuple[StoredRows, int, int]]:
        offset = 0
        for part in self.parts:
            first, last = max(0, start - offset), min(part.tokens, stop - offset)
            # An empty block has a part too, for its width and dtype.
            if first < last or (start == stop and first == last):
                yield part, first, last
            offset += part.tokens


@dataclass(frozen=True, slots=True)
class _Dump:
    """The files of one rank, and how a sequence of them is read."""

    forwards: Mapping[_Forward, Parts]
    found: _Found
    root: Path

    def count(self, name: str) -> int | Unreadable:
        sequence = self.found.sequences.get(name)
        return Unreadable(name, "no such sequence") if sequence is None else sequence.tokens

    def open(self, name: str) -> StateSequence | Unreadable:
        require_torch()
        sequence = self.found.sequences.get(name)
        if sequence is None:
            return Unreadable(name, "no such sequence")
        try:
            return self._read(sequence)
        except (UnreadableFileError, InputError) as error:
            return Unreadable(name, str(error))

    def _read(self, sequence: _Sequence) -> StateSequence:
        import torch

        first = self.found.states
        assert first is not None  # noqa: S101  there is a sequence
        ids: list[int] = []
        states: list[tuple[_Chunk, States]] = []
        for chunk in sequence.chunks:
            parts = self.forwards[chunk.forward]
            states.append((chunk, read_states(parts)))
            _check_alike(first, states[-1][1])
            of_forward = check_token_ids(parts)
            if len(of_forward) != states[-1][1].rows or chunk.stop > len(of_forward):
                raise UnreadableFileError("its files were written again since they were listed")
            ids += of_forward[chunk.start : chunk.stop]

        def rows(which: Iterable[tuple[_Chunk, Any]]) -> Rows:
            kept = (
                StoredRows(placed.source, placed.stored.between(0, chunk.start, chunk.stop)) for chunk, placed in which
            )
            return _JoinedRows(tuple(kept))

        return StateSequence(
            name=sequence.name,
            token_ids=torch.tensor(ids, dtype=torch.int64),
            slots=tuple(rows((chunk, found.slots[k]) for chunk, found in states) for k in range(len(first.slots))),
            last_state=(
                rows((chunk, found.last_state) for chunk, found in states) if first.last_state is not None else None
            ),
        )
