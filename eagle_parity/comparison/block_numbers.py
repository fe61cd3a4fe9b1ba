"""The numbers of rows that were compared: where they are, and what becomes of them.

Shape letters: T rows, N states, R rows of ``errors_RT``.
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
    from collections.abc import Sequence

    from eagle_parity.comparison.batch import RowsOf
    from eagle_parity.numerics.arithmetic import Arithmetic, Compared, Pairs
    from eagle_parity.numerics.file_rows import BlockState
    from eagle_parity.numerics.moments import PairMoments


_ROWS_ADDED = 256
"""Of a block at once, of two states: it may be longer than what should be in memory."""

Targets: TypeAlias = "list[tuple[int, torch.Tensor]]"
"""Rows of a block's errors, and the counts of a histogram that each goes into."""


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """What was computed of some rows of a batch.

    Attributes:
        sequence_T, row_T: int64, which ones they are.
        squares_NT, errors_RT, standing_T: see ``arithmetic.Compared``.
    """

    sequence_T: torch.Tensor
    row_T: torch.Tensor
    squares_NT: torch.Tensor
    errors_RT: torch.Tensor
    standing_T: torch.Tensor

    @classmethod
    def of(cls, rows: RowsOf, compared: Compared) -> RowNumbers:
        """Of the rows of a block."""
        return cls(rows.sequence_T, rows.row_T, compared.squares_NT, compared.errors_RT, compared.standing_T)

    def chosen(self, places: torch.Tensor) -> RowNumbers:
        """Some of them, by their places."""
        return RowNumbers(
            self.sequence_T[places],
            self.row_T[places],
            self.squares_NT[:, places],
            self.errors_RT[:, places],
            self.standing_T[places],
        )

    @classmethod
    def join(cls, parts: Sequence[RowNumbers]) -> RowNumbers:
        """Those of several blocks."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            torch.cat([part.sequence_T for part in parts]),
            torch.cat([part.row_T for part in parts]),
            torch.cat([part.squares_NT for part in parts], dim=1),
            torch.cat([part.errors_RT for part in parts], dim=1),
            torch.cat([part.standing_T for part in parts]),
        )


def neighbour_errors(
    arithmetic: Arithmetic,
    states: Sequence[torch.Tensor],
    squares_NT: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
) -> torch.Tensor:
    """Errors of rows ``second`` of each state against rows ``first`` of it: float64 ``[N, rows]``.

    Args:
        arithmetic: how.
        states: ``[T, D]`` each.
        squares_NT: their squared norms.
        first: int64.
        second: likewise, as many.
    """
    squared_NT = arithmetic.squared_differences(states, [(place, place) for place in range(len(states))], second, first)
    expected_NT = squares_NT[:, first]
    return torch.where((expected_NT == 0) & (squared_NT == 0), 0.0, (squared_NT / expected_NT).sqrt())


def add_block(
    arithmetic: Arithmetic,
    moments: PairMoments,
    states: tuple[BlockState, BlockState],
    squares: tuple[torch.Tensor, torch.Tensor],
    keep_T: torch.Tensor,
) -> None:
    """Adds the kept rows of a block that are numbers to a pair's sums, the first state as x.

    Args:
        arithmetic: how.
        moments: the sums.
        states: ``[T, D]`` each.
        squares: float64 ``[T]``, their squared norms.
        keep_T: bool.
    """
    for low in range(0, len(keep_T), _ROWS_ADDED):
        high = min(low + _ROWS_ADDED, len(keep_T))
        kept = keep_T[low:high].nonzero().flatten()
        x, y = (
            (rows[kept], squares_T[low:high][kept])
            for squares_T, rows in zip(squares, rows_between(states, low, high), strict=True)
        )
        add_rows(arithmetic, moments, x, y)


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
