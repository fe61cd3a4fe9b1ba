"""Hidden states of many sequences, read lazily: what every reader gives and every comparison takes.

Nothing here holds a tensor longer than its caller does: a sequence is opened when it is asked for, a state is read row
by row. A capture larger than memory can be opened, listed and streamed.

Shape letters: T tokens of one sequence, H hidden size of the target.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from eagle_parity.wiring import BoundaryEntry, Wiring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import torch

    from eagle_parity.open_files import Stamp


@runtime_checkable
class Rows(Protocol):
    """One state of one sequence: ``[T, H]``, read in blocks of rows.

    Attributes:
        tokens: number of rows T.
        hidden_size: H.
        dtype: as stored: ``bfloat16``, ``float16``, ``float32``, ``float64``; ``float8_e4m3fn`` and ``float8_e5m2``
            with scales beside them.
    """

    @property
    def tokens(self) -> int:
        """T."""
        ...

    @property
    def hidden_size(self) -> int:
        """H."""
        ...

    @property
    def dtype(self) -> str:
        """The stored dtype's name."""
        ...

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Rows ``start`` to ``stop`` as ``[stop - start, H]``; 0 <= start <= stop <= T.

        In the stored dtype; what is stored with scales comes dequantised, as float32.
        """
        ...


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where rows ``[T, H]`` lie in a file, each without gaps.

    Attributes:
        path: of the file.
        size: its bytes when its header was read.
        start: the byte of the first number.
        step: bytes from row to row: 0 or more, and it may be less than a row has.
        shape: T and H.
        dtype: as stored.
        stamp: what the file was when its header was read, if that is known.
    """

    path: Path
    size: int
    start: int
    step: int
    shape: tuple[int, int]
    dtype: str
    stamp: Stamp | None = None


class PlacedRows(Rows, Protocol):
    """``Rows`` that may say where they lie, for whoever can compute with them there."""

    def place(self, start: int, stop: int) -> FilePlace | None:
        """Of rows ``start`` to ``stop``; None where they have to be read."""
        ...


def place_of(rows: Rows | PlacedRows, start: int, stop: int) -> FilePlace | None:
    """Where some rows lie; None where they have to be read."""
    # Not isinstance: of a protocol that takes longer than the place itself.
    place: Callable[[int, int], FilePlace | None] | None = getattr(rows, "place", None)
    return None if place is None else place(start, stop)


class LastStateRule(StrEnum):
    """What a layout says of the last hidden state, which is kept for the loss and is no slot."""

    ABSENT = "absent"
    STORED = "stored"
    """It has a place of its own."""
    UNDECIDED = "undecided"
    """The states come as one list, and whether its final entry is a slot or the last state isn't recorded."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a reader knows, before any tensor is read, of the files it has recognised.

    Attributes:
        format: the reader's name, such as ``specforge`` or ``capture``.
        description: one line for ``inspect``.
        slots: number of slots; where ``last_state`` is undecided, the number of states.
        hidden_size: H.
        dtype: of the states, as stored.
        last_state: see there.
        last_state_boundary: the boundary of a stored last state where the layout settles it.
        declared: the wiring that the files themselves state, already in boundaries; None where they state none.
        declared_by: where it is stated, ``data_config.json: hidden_states.layer_ids [2, 5, 7, 9]``.
        unknown: what the files can't say, one sentence each, with the command or option that finds it out.
        facts: what else is worth telling: versions, model, padding.
        first_token: whether the token that each sequence begins with is known. Where it isn't, its row is left out, and
            no forward over the ids gives the states of the others.
    """

    format: str
    description: str
    slots: int
    hidden_size: int
    dtype: str
    last_state: LastStateRule = LastStateRule.ABSENT
    last_state_boundary: BoundaryEntry = None
    declared: Wiring | None = None
    declared_by: str | None = None
    unknown: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    first_token: bool = True


@dataclass(frozen=True, slots=True)
class StateSequence:
    """The states of one sequence, open for reading.

    Attributes:
        name: unique within its ``HiddenStates``: the path below the opened folder, ``rows_0-2000/data_3.ckpt``, with
            the number within the file where that holds several, ``shard-000000.safetensors#1``.
        token_ids: int64 ``[T]``; None where the file has none.
        slots: one ``Rows`` a slot, in concatenation order. Their T is that of the file: a truncated file has fewer
            rows than tokens.
        last_state: the last state's rows, if stored.
        loss_mask: ``[T]``, 0 where a row isn't trained on; None where the file has none.
        no_loss_mask: why there is none, where masks are kept beside the files and this one's doesn't belong to it.
    """

    name: str
    token_ids: torch.Tensor | None
    slots: tuple[Rows, ...]
    last_state: Rows | None = None
    loss_mask: torch.Tensor | None = None
    no_loss_mask: str = ""

    @property
    def rows(self) -> int:
        """The number of rows that every slot has; where there is no slot, those of the last state."""
        return min((slot.tokens for slot in self.slots), default=self.last_state.tokens if self.last_state else 0)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that can't be read: a value, so that the others still are.

    Attributes:
        name: as for a sequence.
        reason: one line: what was expected, what was found.
    """

    name: str
    reason: str


@dataclass(frozen=True)
class HiddenStates:
    """A shard directory, a capture, or a single file of either.

    Attributes:
        path: as it was given.
        layout: what the reader recognised.
        names: the sequences, in natural order (``data_2`` before ``data_10``). Listing them reads no tensor.
        opener: opens one sequence by name, or says why it can't be read. It never raises for a bad file.
        unreadable: files that were found not to belong or to be broken while listing; ``names`` doesn't have them.
        counter: the tokens of one sequence, from its header alone; None where only opening tells.
        files_left_out: of a folder whose files hold several sequences each, how many files were left out of ``names``
            because their caller wanted a sample.
    """

    path: Path
    layout: Layout
    names: Sequence[str]
    opener: Callable[[str], StateSequence | Unreadable]
    unreadable: tuple[Unreadable, ...] = ()
    counter: Callable[[str], int | Unreadable] | None = None
    files_left_out: int = 0

    def open(self, name: str) -> StateSequence | Unreadable:
        """One sequence; close to free until its rows are read."""
        return self.opener(name)

    def count_tokens(self, name: str) -> int | Unreadable:
        """The token ids that one sequence has, its rows where it has none; needs no torch where there is a counter."""
        if self.counter is not None:
            return self.counter(name)
        sequence = self.open(name)
        if isinstance(sequence, Unreadable):
            return sequence
        return sequence.rows if sequence.token_ids is None else int(sequence.token_ids.shape[0])

    def __iter__(self) -> Iterator[StateSequence | Unreadable]:
        return (self.open(name) for name in self.names)

    def decide_last_state(self, *, stored: bool) -> HiddenStates:
        """This, with an undecided final state made the last state (``stored``) or a slot."""
        if self.layout.last_state is not LastStateRule.UNDECIDED:
            return self
        if not stored:
            return replace(self, layout=replace(self.layout, last_state=LastStateRule.ABSENT))
        declared = self.layout.declared
        layout = replace(
            self.layout,
            slots=self.layout.slots - 1,
            last_state=LastStateRule.STORED,
            declared=None if declared is None else Wiring(declared.slots[:-1], declared.slots[-1]),
        )
        return replace(self, layout=layout, opener=_split_last_state(self.opener))

    def select(self, names: Sequence[str]) -> HiddenStates:
        """The same, restricted to some sequences."""
        return replace(self, names=tuple(names))


def _split_last_state(
    opener: Callable[[str], StateSequence | Unreadable],
) -> Callable[[str], StateSequence | Unreadable]:
    def split(name: str) -> StateSequence | Unreadable:
        sequence = opener(name)
        if isinstance(sequence, Unreadable):
            return sequence
        return replace(sequence, slots=sequence.slots[:-1], last_state=sequence.slots[-1])

    return split
