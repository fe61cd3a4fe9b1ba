"""From the parts that the workers left in a spool to whole sequences, by request and position, never by order.

Nothing is held but headers and ids: a rank's states of a sequence are read when they are asked for, a rank at a time.
The spool may be a copy that was fetched from another host.

Shape letters: T tokens of a sequence, H hidden size, K slots.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from eagle_parity.capture.part_files import MAX_STATES, PartFile, RequestRows, open_part
from eagle_parity.capture.rank_record import RankRecord, read_record
from eagle_parity.capture.spool.files import BOUNDARY_KEY, PART_NAME, RECORD_NAME
from eagle_parity.errors import InputError
from eagle_parity.quoting import one_line
from eagle_parity.wiring import EMBEDDING, MAX_BOUNDARIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import torch

_BESIDE = re.compile(rf"{re.escape(BOUNDARY_KEY)}[0-9]{{1,4}}")
_LAST_STATE = "last_state"
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
"""What safetensors calls them, as torch does; any other keeps its name."""

DraftInputState: TypeAlias = Literal["equal", "differs", "normed", "absent"]
MAX_RUNS_NAMED = 4
"""Gaps of a sequence that a message names."""


@dataclass(frozen=True)
class AssembledRank:
    """The states of one sequence as one rank recorded them.

    Attributes:
        slots: ``[T, H]`` each.
        last_state: ``[T, H]``.
        beside: boundaries that were recorded beside the slots, ``[T, H]`` each.
    """

    slots: tuple[torch.Tensor, ...]
    last_state: torch.Tensor | None
    beside: Mapping[int, torch.Tensor] = field(default_factory=dict)

    @property
    def states(self) -> tuple[torch.Tensor, ...]:
        """The slots, with the embedding in front of them and the last boundary behind where these are there."""
        first = (self.beside[EMBEDDING],) if EMBEDDING in self.beside else ()
        return (*first, *self.slots, *(self.beside[k] for k in sorted(self.beside) if k != EMBEDDING))


class _SlotPlace(NamedTuple):
    name: str
    columns: slice | None = None  # of one tensor that has all slots side by side


@dataclass(frozen=True)
class LocatedRank:
    """Where one sequence lies as one rank recorded it: its ids are here, its states in the files.

    Attributes:
        token_ids: int64 ``[T]``.
        sampled_ids: int64 ``[T]``, of generated rows the token that the rank chose behind each.
    """

    token_ids: torch.Tensor
    sampled_ids: torch.Tensor | None
    _rows: RequestRows
    _slots: tuple[_SlotPlace, ...]
    _draft_input: RequestRows | None = None

    @property
    def modes(self) -> tuple[str, ...]:
        """The engine's words for the forwards that it came from."""
        return tuple(dict.fromkeys(part.mode for part in self._rows.parts))

    @property
    def forwards(self) -> int:
        """How many there were."""
        return len(self._rows.parts)

    @property
    def dtype(self) -> str:
        """Of the states, by torch's name."""
        stored = self._rows.states[self._slots[0].name].dtype
        return _DTYPES.get(stored, stored)

    @property
    def hidden_size(self) -> int:
        """H, or a rank's share of it."""
        name, columns = self._slots[0]
        return self._rows.states[name].width if columns is None else columns.stop - columns.start

    @property
    def slots(self) -> int:
        """K."""
        return len(self._slots)

    @property
    def kind(self) -> str:
        """What the states are, in words: those of one capture are all alike."""
        last = ", a last state" if self.has_last_state else ""
        beside = f", boundaries {', '.join(map(str, self.beside))}" if self.beside else ""
        return f"{self.slots} slots of {self.hidden_size} {self.dtype} a row{last}{beside}"

    @property
    def beside(self) -> list[int]:
        """The boundaries that were recorded beside the slots."""
        names = (name for name in self._rows.states if _BESIDE.fullmatch(name))
        return sorted(map(_boundary_of, names))

    @property
    def has_last_state(self) -> bool:
        """False as well where it is of another width or dtype than the slots, beside which it has no place.

        So it is where they are shares of the hidden dimension.
        """
        stored = self._rows.states.get(_LAST_STATE)
        return stored is not None and stored == self._rows.states[self._slots[0].name]._replace(width=self.hidden_size)

    def lacks_last_state(self, *, beside: bool) -> str | None:
        """Why a last state isn't among the states, where one was recorded, or ``beside`` by another rank."""
        stored = self._rows.states.get(_LAST_STATE)
        if self.has_last_state or (stored is None and not beside):
            return None
        if stored is None:
            return "no last state, which another rank has"
        if stored.width != self.hidden_size and stored.width % self.hidden_size == 0:
            return None  # the slots are shares of the hidden dimension: that is what has to be told
        dtype = _DTYPES.get(stored.dtype, stored.dtype)
        return f"its last state, {stored.width} {dtype} a row, has no place beside {self.kind}"

    def read(self) -> AssembledRank:
        """The states. Where they are a share of the rows, they are given as they are.

        Raises:
            InputError: a part can't be read any more.
        """
        return AssembledRank(
            slots=tuple(self._rows.read(name, columns) for name, columns in self._slots),
            last_state=self._rows.read(_LAST_STATE) if self.has_last_state else None,
            beside={boundary: self._rows.read(f"{BOUNDARY_KEY}{boundary}") for boundary in self.beside},
        )

    def draft_input_state(self, slots: Sequence[torch.Tensor], *, normed: bool) -> DraftInputState:
        """Whether what the head's ``fc`` got is the slots side by side; it is as large as all, so read slot by slot.

        Args:
            slots: as ``read`` gave them.
            normed: whether the head normalises before ``fc``, and what was recorded stands behind that.

        Raises:
            InputError: a part can't be read any more.
        """
        rows = self._draft_input
        if rows is None:
            return "absent"
        if normed:
            return "normed"
        width = rows.states["draft_input"].width
        return (
            "equal" if is_side_by_side(slots, width, lambda columns: rows.read("draft_input", columns)) else "differs"
        )

    def draft_input(self) -> torch.Tensor | None:
        """``[T, K * H]``; None where the rank didn't record it whole.

        Raises:
            InputError: a part can't be read any more.
        """
        return None if self._draft_input is None else self._draft_input.read("draft_input")


@dataclass(frozen=True)
class Incomplete:
    """Why a rank's rows are no whole sequence.

    Attributes:
        missing: runs of positions without a row, ends excluded.
        rows: rows that are there.
        reason: what else is wrong with them, where it isn't that any is missing.
    """

    missing: tuple[tuple[int, int], ...]
    rows: int
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        named = ", ".join(f"{start} to {stop - 1}" for start, stop in self.missing[:MAX_RUNS_NAMED])
        more = len(self.missing) - MAX_RUNS_NAMED
        return f"no rows of positions {named}" + (f" and {more} more gaps" if more > 0 else "")


class SessionParts:
    """The parts of one session.

    Args:
        folder: ``<spool>/<session>``.

    Attributes:
        ranks: the records, by rank name.

    Raises:
        InputError: there is no such folder, or a record is no record of this version of the hook.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ranks: dict[str, RankRecord] = {}
        self._parts: dict[tuple[str, str, int], list[PartFile]] = defaultdict(list)
        self._ranks: dict[tuple[str, int], set[str]] = defaultdict(set)  # by kind and request
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError as error:
            raise InputError(
                folder, error.strerror or str(error), expected="what the capture hook wrote for this session"
            ) from error
        for name in names:
            if match := RECORD_NAME.fullmatch(name):
                self.ranks[match["rank"]] = read_record(folder / name, match["rank"])
        matches = [
            match
            for name in names
            if (match := PART_NAME.fullmatch(name)) and match["rank"] in self.ranks and (folder / name).is_file()
        ]
        for match in sorted(matches, key=lambda match: int(match["part"])):  # the later row of a position counts
            self._index(folder / match[0], match["rank"], match["kind"])

    def ranks_of(self, number: int) -> list[str]:
        """The ranks that stored rows of a request, in natural order."""
        return sorted(self._ranks.get(("aux", number), ()), key=_natural)

    def shape_of(self, rank: str, number: int) -> tuple[int, int, bool]:
        """How a request was computed: in how many forwards, from which position on, and whether it was alone in all."""
        parts = self._parts.get((rank, "aux", number), [])
        first = min((int(part.min()) for part in self._positions(rank, "aux", number)), default=0)
        return len(parts), first, all(len(part.rows) == 1 for part in parts)

    def is_whole(self, rank: str, number: int, tokens: int, *, first: int = 0) -> bool:
        """Whether a rank has every row of a request, and every row of the head's input where it has any of that.

        Reads positions alone, so it may be asked again and again.

        Args:
            rank: whose rows.
            number: of the request.
            tokens: T, as it was sent.
            first: the position that the sequence begins with.
        """
        kinds = ("aux", "draft") if ("draft", number) in self._ranks else ("aux",)
        return all(self._order(rank, kind, number, tokens, first) for kind in kinds)

    def locate(self, rank: str, number: int, tokens: int, *, first: int = 0) -> LocatedRank | Incomplete:
        """One request's rows of one rank, in the order of their positions.

        Where a position was computed twice (an engine that preempted the request computes it again), the later row
        counts: it is the one that the head was fed.

        Args:
            rank: whose rows.
            number: of the request.
            tokens: T, as it was sent.
            first: the position that the sequence begins with; rows before it are neither needed nor given.
        """
        order = _latest(self._positions(rank, "aux", number), tokens)[first:]
        if (order < 0).any():
            runs = tuple((start + first, stop + first) for start, stop in _runs(order < 0))
            return Incomplete(runs, int((order >= 0).sum()))
        return self._located("aux", rank, number, order, self._draft_input(rank, number, tokens, first))

    def generated_forwards(self, rank: str, number: int) -> int:
        """In how many forwards a rank accepted rows of a request's generated tokens."""
        return len(self._parts.get((rank, "generated", number), []))

    def locate_generated(self, rank: str, number: int, first: int, tokens: int) -> LocatedRank | Incomplete:
        """One request's rows of generated tokens as one rank accepted them, from a position on until one is missing.

        Its token ids are the rank's own: ranks may choose different ones. Where they accepted different numbers of
        drafts too, rows are missing on the rank that accepted fewer.

        Args:
            rank: whose rows.
            number: of the request.
            first: the position of the first generated token, which is the prompt's length.
            tokens: rows that are wanted at most.
        """
        order = _latest(self._positions(rank, "generated", number), first + tokens)[first:]
        missing = (order < 0).nonzero().flatten()
        order = order[: int(missing[0])] if len(missing) else order
        if not len(order):
            return Incomplete((), 0, "no row of a generated token")
        return self._located("generated", rank, number, order, None)

    def _located(
        self, kind: str, rank: str, number: int, order: torch.Tensor, draft_input: RequestRows | None
    ) -> LocatedRank | Incomplete:
        rows = RequestRows(number, self._parts.get((rank, kind, number), []), order)
        reason = rows.unlike()
        slots = reason or _slot_places(rows, _hidden_size(self.ranks.get(rank)))
        if isinstance(slots, str):
            return Incomplete((), len(order), slots)
        return LocatedRank(
            token_ids=rows.read("token_ids").to(_int64()),
            sampled_ids=rows.read("sampled_ids").to(_int64()) if kind == "generated" else None,
            _rows=rows,
            _slots=slots,
            _draft_input=draft_input,
        )

    def _order(self, rank: str, kind: str, number: int, tokens: int, first: int) -> bool:
        return bool((_latest(self._positions(rank, kind, number), tokens)[first:] >= 0).all())

    def _draft_input(self, rank: str, number: int, tokens: int, first: int) -> RequestRows | None:
        parts = self._parts.get((rank, "draft", number), [])
        order = _latest(self._positions(rank, "draft", number), tokens)[first:]
        rows = RequestRows(number, parts, order)
        return None if not parts or parts[0].share or (order < 0).any() or rows.unlike() else rows

    def _positions(self, rank: str, kind: str, number: int) -> list[torch.Tensor]:
        return [part.read("positions")[part.rows[number]] for part in self._parts.get((rank, kind, number), ())]

    def _index(self, path: Path, rank: str, kind: str) -> None:
        from safetensors import SafetensorError

        try:
            part = open_part(path, kind)
            layers = _num_layers(self.ranks[rank])
            beyond = [name for name in part.states if _BESIDE.fullmatch(name) and _boundary_of(name) > layers]
            if beyond:
                raise ValueError(f"{beyond[0]}, of a target of {layers} layers")  # noqa: TRY301
        except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
            self.ranks[rank].unreadable.append(f"{path.name} can't be read ({one_line(error)})")
            return
        for number in part.rows:
            self._parts[rank, kind, number].append(part)
            self._ranks[kind, number].add(rank)


def _int64() -> torch.dtype:
    import torch

    return torch.int64


def is_side_by_side(slots: Sequence[torch.Tensor], width: int, columns_of: Callable[[slice], torch.Tensor]) -> bool:
    """Whether a head's input is the slots side by side, bit for bit, in the dtype that the head has.

    Args:
        slots: ``[T, H]`` each.
        width: of the input.
        columns_of: gives some of its columns.
    """
    ends = [sum(slot.shape[1] for slot in slots[: index + 1]) for index in range(len(slots))]
    return width == ends[-1] and all(
        _is_same(slot, columns_of(slice(end - slot.shape[1], end))) for slot, end in zip(slots, ends, strict=True)
    )


def _is_same(slot: torch.Tensor, chunk: torch.Tensor) -> bool:
    import torch

    if slot.shape != chunk.shape:
        return False
    # A head of another dtype than the target's gets the states cast; a NaN that it gets is the target's fault.
    cast = slot.to(chunk.dtype)
    if torch.equal(cast, chunk):  # the normal case, without masks as large as the states
        return True
    return bool(((cast == chunk) | (cast.isnan() & chunk.isnan())).all())


def _slot_places(rows: RequestRows, hidden_size: int | None) -> tuple[_SlotPlace, ...] | str:
    """Where the slots are, or why they can't be told apart."""
    if "packed" in rows.states:
        width = rows.states["packed"].width
        if hidden_size is None or width % hidden_size:
            return f"its states are one tensor of {width} values a row, no multiple of {hidden_size or 'H'}"
        if width > MAX_STATES * hidden_size:
            return f"its states are one tensor of {width // hidden_size} states; expected {MAX_STATES} at most"
        return tuple(_SlotPlace("packed", slice(at, at + hidden_size)) for at in range(0, width, hidden_size))
    slots = sorted((name for name in rows.states if name.startswith("slot.")), key=_natural)
    if slots != [f"slot.{index}" for index in range(len(slots))]:
        return f"its slots are {', '.join(slots[:MAX_RUNS_NAMED])}" + (", ..." if len(slots) > MAX_RUNS_NAMED else "")
    return tuple(_SlotPlace(name) for name in slots)


def _boundary_of(name: str) -> int:
    return int(name.removeprefix(BOUNDARY_KEY))


def _num_layers(record: RankRecord) -> int:
    target = record.facts.get("target")
    layers = target.get("num_layers") if isinstance(target, dict) else None
    return layers if isinstance(layers, int) else MAX_BOUNDARIES


def _hidden_size(record: RankRecord | None) -> int | None:
    target = record.facts.get("target") if record is not None else None
    size = target.get("hidden_size") if isinstance(target, dict) else None
    return size if isinstance(size, int) and size > 0 else None


def _latest(pieces: Sequence[torch.Tensor], tokens: int) -> torch.Tensor:
    """For each position below ``tokens`` the index of its last row; -1 where there is none."""
    import torch

    positions = torch.cat(list(pieces)) if pieces else torch.empty(0).long()
    order = torch.full((tokens,), -1)
    inside = ((positions >= 0) & (positions < tokens)).nonzero().flatten()
    # An indexed assignment with repeated indices keeps any of them; the greatest is the latest.
    return order.scatter_reduce(0, positions[inside].long(), inside, reduce="amax")


def _runs(missing: torch.Tensor) -> tuple[tuple[int, int], ...]:
    return tuple(_consecutive(missing.nonzero().flatten().tolist()))


def _consecutive(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = previous = None
    for position in positions:
        if previous is None or position != previous + 1:
            if start is not None and previous is not None:
                yield start, previous + 1
            start = position
        previous = position
    if start is not None and previous is not None:
        yield start, previous + 1


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", name) if piece)
