"""The first rows of several sequences in memory, one sequence behind the other.

A compiled loop reads those of files that are alike to where they will stay, and looks at them while they are in a
cache.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

from eagle_parity.numerics.file_rows import rows_at
from eagle_parity.numerics.loops.shapes import BFLOAT16

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from eagle_parity.numerics.located import Layout, LocatedPiece


ROOM_BYTES = 32 * 1024 * 1024
"""The first rows of a batch: of ten sequences of eight states of 1,536 bfloat16 numbers, say."""
_WIDEST_BYTES = 4
"""Of a number that loops take."""


class Room(NamedTuple):
    """Where rows that are read stay.

    Attributes:
        memory: uint8, of all sources.
        starts: of each source, the byte of it where the rows begin.
    """

    memory: torch.Tensor
    starts: tuple[int, ...]


class _Kept(threading.local):
    """A thread's memory, while nobody uses it: allocated anew for each batch it would be scattered over the heap."""

    def __init__(self) -> None:
        self.memory: torch.Tensor | None = None


_kept = _Kept()


class StackedRows:
    """Rows ``[R, D]`` of some states, as long as the context is entered: what comes next uses the same memory.

    Args:
        rows: R, of all sequences.
    """

    def __init__(self, rows: int) -> None:
        self._left = rows
        self._runs: list[_Run] = []
        self._memory: torch.Tensor | None = None

    def __enter__(self) -> Self:
        self._memory, _kept.memory = _kept.memory, None
        return self

    def __exit__(self, *_: object) -> None:
        _kept.memory = self._memory
        self._runs = []

    def add(self, states: list[torch.Tensor]) -> None:
        """Rows of one sequence that are in memory, which may be a map of a file: they are copied."""
        self._runs.append(_Run(None, states=[state.clone() for state in states]))
        self._left -= len(states[0])

    def room(self, pieces: Sequence[LocatedPiece], size: int) -> Room | None:
        """Room for rows of sequences whose states lie in their files alike; None where they don't.

        Args:
            pieces: of which all rows will be read there.
            size: D.
        """
        kind = _Kind(pieces[0].layout, tuple(pieces[0].addresses), size)
        if any((piece.layout, tuple(piece.addresses)) != kind[:2] for piece in pieces) or not kind.is_regular:
            return None
        if not self._runs or self._runs[-1].kind != kind:
            self._runs.append(_Run.begin(kind, self._left, self._room_of))
        run = self._runs[-1]
        starts = tuple(start + run.rows * pitch for start, pitch in zip(run.starts, kind.layout.pitches, strict=True))
        rows = sum(piece.rows for piece in pieces)
        run.rows += rows
        self._left -= rows
        return Room(run.memory, starts)

    def _room_of(self, size: int) -> torch.Tensor:
        """So many bytes, uint8: what the thread has, for those that ask first and don't want more."""
        if self._runs or size > ROOM_BYTES:
            return torch.empty(size, dtype=torch.uint8)
        if self._memory is None:
            self._memory = torch.empty(ROOM_BYTES, dtype=torch.uint8)
        return self._memory[:size]

    def states(self) -> list[torch.Tensor]:
        """All of them, in the stored dtypes; where sequences differ in theirs, in one that holds both."""
        runs = [run.tensors() for run in self._runs]
        return runs[0] if len(runs) == 1 else [torch.cat(parts) for parts in zip(*runs, strict=True)]


class _Kind(NamedTuple):
    """What sequences that are read to one place have in common.

    Attributes:
        layout: of their states.
        offsets: of each state, where it begins in its source's rows.
        size: D.
    """

    layout: Layout
    offsets: tuple[int, ...]
    size: int

    @property
    def is_regular(self) -> bool:
        """Whether all states are in files, and the numbers of all rows lie where numbers can."""
        return min(self.layout.sources) >= 0 and all(pitch % _WIDEST_BYTES == 0 for pitch in self.layout.pitches)


@dataclass(slots=True)
class _Run:
    """Sequences of one kind that follow each other, or one that was in memory.

    Attributes:
        kind: theirs; None of one in memory.
        memory: uint8, of all sources.
        starts: where each source's rows begin in it.
        rows: how many there are.
        states: of the one in memory.
    """

    kind: _Kind | None
    memory: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    starts: tuple[int, ...] = ()
    rows: int = 0
    states: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def begin(cls, kind: _Kind, rows: int, room_of: Callable[[int], torch.Tensor]) -> _Run:
        """Room for so many rows at most; what isn't written to takes no memory."""
        starts, end = [], 0
        for pitch in kind.layout.pitches:
            starts.append(end)
            end += rows * pitch
        return cls(kind, room_of(end), tuple(starts))

    def tensors(self) -> list[torch.Tensor]:
        if self.kind is None:
            return self.states
        codes, sources, pitches = self.kind.layout
        return [
            rows_at(
                self.memory[self.starts[source] : self.starts[source] + self.rows * pitches[source]],
                offset,
                pitches[source],
                (self.rows, self.kind.size),
                torch.bfloat16 if code == BFLOAT16 else torch.float32,
            )
            for code, source, offset in zip(codes, sources, self.kind.offsets, strict=True)
        ]
