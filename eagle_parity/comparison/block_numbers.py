"""What is known of one block of rows: norms, which rows are numbers, and how far states are from each other.

Shape letters: T rows of the block, N states, R rows of ``errors_RT``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

from eagle_parity.numerics.file_rows import rows_between
from eagle_parity.numerics.histogram import EDGES
from eagle_parity.numerics.loops.shapes import HUGE
from eagle_parity.numerics.whole_arrays import WholeArrays

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eagle_parity.numerics.arithmetic import Arithmetic, Pairs
    from eagle_parity.numerics.file_rows import BlockState
    from eagle_parity.numerics.moments import PairMoments


_ROWS_ADDED = 256
"""Of a block at once, of two states: it may be longer than what should be in memory."""

Targets: TypeAlias = "list[tuple[int, torch.Tensor]]"
"""Rows of a block's errors, and the counts of a histogram that each goes into."""


class BlockNumbers:
    """The numbers of a block.

    Args:
        states: ``[T, D]`` each, as stored.
        pairs: places of states whose errors will be asked for.
        arithmetic: how.
        limits: float64, the norms beyond which a row stands out, of so many states, the first ones.
        moments: of the subtracted pairs, the first ones, to which all rows are added that don't stand out.
        first: first rows in memory of some of the states, by their places.
    """

    def __init__(
        self,
        states: Sequence[BlockState],
        pairs: Pairs,
        arithmetic: Arithmetic,
        limits: torch.Tensor | None = None,
        moments: Sequence[PairMoments | None] = (),
        *,
        first: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        self.states = states
        self._first = first or {}
        self.pairs = pairs
        self.arithmetic = arithmetic
        sums = [None if each is None else each.sums for each in moments]
        compared = arithmetic.compare(states, pairs, limits, sums)
        self.squares_NT, self.errors_RT, self.standing_T, added = compared
        for each, rows in zip(moments, added, strict=False):
            if each is not None:
                each.rows += rows
        self.finite_NT = self.squares_NT.isfinite()

    @property
    def rows(self) -> int:
        """T."""
        return self.squares_NT.shape[1]

    def errors(self, subject: int, expected: int) -> torch.Tensor:
        """``|subject - expected| / |expected|`` a row: float64 ``[T]``.

        Inf where only ``expected`` is zero, NaN where either row isn't finite: a row that isn't there is no match.
        """
        return self.errors_RT[error_row(self.pairs, subject, expected)]

    def neighbour_errors(self, states: Sequence[int], first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Errors of rows ``second`` of each state against rows ``first`` of it: float64 ``[states, rows]``.

        Args:
            states: their places.
            first: int64, rows of the block, up to the last of which it is read.
            second: likewise.
        """
        if not len(first):
            return torch.zeros((len(states), 0), dtype=torch.float64)
        stop = 1 + int(torch.maximum(first, second).max())
        known = [self._first.get(place) for place in states]
        rows = [
            self.states[place] if state is None or len(state) < stop else state
            for place, state in zip(states, known, strict=True)
        ]
        squared_NT = self.arithmetic.squared_differences(
            rows_between(rows, 0, stop), [(place, place) for place in range(len(states))], second, first
        )
        expected_NT = self.squares_NT[list(states)][:, first]
        return torch.where((expected_NT == 0) & (squared_NT == 0), 0.0, (squared_NT / expected_NT).sqrt())

    def add_to(self, moments: PairMoments, subject: int, expected: int, keep_T: torch.Tensor) -> None:
        """Adds the kept rows that are numbers to a pair's sums, ``expected`` as x and ``subject`` as y."""
        for low in range(0, self.rows, _ROWS_ADDED):
            high = min(low + _ROWS_ADDED, self.rows)
            kept = keep_T[low:high].nonzero().flatten()
            x, y = (
                (rows[kept], self.squares_NT[state, low:high][kept])
                for state, rows in zip(
                    (expected, subject),
                    rows_between([self.states[expected], self.states[subject]], low, high),
                    strict=True,
                )
            )
            add_rows(self.arithmetic, moments, x, y)


@dataclass(frozen=True, slots=True)
class RowsAside:
    """Rows of a sequence that stand out, until it is known which of them are sinks.

    Attributes:
        rows_T: int64, which ones.
        squares_NT, errors_RT: their numbers, as a block's.
    """

    rows_T: torch.Tensor
    squares_NT: torch.Tensor
    errors_RT: torch.Tensor

    @classmethod
    def of(cls, numbers: BlockNumbers, low: int) -> RowsAside:
        """Those of a block that begins at row ``low``."""
        rows_T = numbers.standing_T.nonzero().flatten()
        return cls(rows_T + low, numbers.squares_NT[:, rows_T], numbers.errors_RT[:, rows_T])

    @classmethod
    def join(cls, parts: Sequence[RowsAside]) -> RowsAside:
        """Those of several blocks of a sequence."""
        return cls(
            torch.cat([part.rows_T for part in parts]),
            torch.cat([part.squares_NT for part in parts], dim=1),
            torch.cat([part.errors_RT for part in parts], dim=1),
        )


def add_rows(
    arithmetic: Arithmetic,
    moments: PairMoments,
    x: tuple[torch.Tensor, torch.Tensor],
    y: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """Adds rows ``[T, D]`` of two states, each with its squared norms ``[T]``, where both are numbers."""
    finite_T = x[1].isfinite() & y[1].isfinite()
    huge_T = (x[1] > HUGE) | (y[1] > HUGE)
    for way, chosen_T in ((arithmetic, finite_T & ~huge_T), (WholeArrays(), finite_T & huge_T)):
        moments.add(way, x[0], y[0], chosen_T.nonzero().flatten())


def count_rows(arithmetic: Arithmetic, errors_RT: torch.Tensor, targets: Targets, keep_T: torch.Tensor) -> None:
    """Adds rows of errors to histograms' counts, where they are kept and no NaN."""
    arithmetic.count_errors(
        errors_RT, [row for row, _ in targets], keep_T, EDGES, [counts_B for _, counts_B in targets]
    )


def error_row(pairs: Pairs, subject: int, expected: int) -> int:
    """Which row of ``errors_RT`` a pair's errors are."""
    pair = (subject, expected)
    if pair in pairs.subtracted:
        return len(pairs.by_products) + pairs.subtracted.index(pair)
    return pairs.by_products.index(pair)


def norm_row(pairs: Pairs, state: int) -> int:
    """Which row of ``errors_RT`` a state's norms are; NaN where it isn't finite."""
    return len(pairs.by_products) + len(pairs.subtracted) + state
