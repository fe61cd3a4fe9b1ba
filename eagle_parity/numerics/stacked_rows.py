"""The first rows of several sequences in memory, one sequence behind the other.

A compiled loop reads those of files that are alike to where they will stay, and looks at them while they are in a
cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

from eagle_parity.numerics.file_rows import rows_at
from eagle_parity.numerics.loops.shapes import BFLOAT16

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.numerics.located import Layout, LocatedPiece


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


class StackedRows:
    """Rows ``[R, D]`` of some states.

    Args:
        rows: R, of all sequences.
    """

    def __init__(self, rows: int) -> None:
        self._left = rows
        self._runs: list[_Run] = []

    def add(self, states: list[torch.Tensor]) -> None:
        """Rows of one sequence that are in memory."""
        self._runs.append(_Run(None, states=states))
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
            self._runs.append(_Run.begin(kind, self._left))
        run = self._runs[-1]
        starts = tuple(start + run.rows * pitch for start, pitch in zip(run.starts, kind.layout.pitches, strict=True))
        rows = sum(piece.rows for piece in pieces)
        run.rows += rows
        self._left -= rows
        return Room(run.memory, starts)

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
    def begin(cls, kind: _Kind, rows: int) -> _Run:
        """Room for so many rows at most; what isn't written to takes no memory."""
        starts, end = [], 0
        for pitch in kind.layout.pitches:
            starts.append(end)
            end += rows * pitch
        return cls(kind, torch.empty(end, dtype=torch.uint8), tuple(starts))

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
