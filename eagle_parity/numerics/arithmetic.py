"""What a comparison computes of a block of rows, in two ways that agree.

``WholeArrays`` is plain torch in float64: the reference, the choice for little data, and what runs on a GPU.
``Compiled`` is ``loops``: one pass over cache-sized tiles of the stored numbers, some twenty times faster.

Distances between states that are compared with many others come from inner products, one for each two states and row:
``|x - y|^2 = |x|^2 + |y|^2 - 2xy``. Where the two are close that difference is mostly rounding, so there, and for the
slots of one place on both sides, the rows are subtracted instead.

Shape letters: T rows, D dimensions, N states, P pairs of states by products, Q by subtraction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from eagle_parity.numerics.loops.shapes import SUMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.numerics.file_rows import BlockState
    from eagle_parity.numerics.stacked_rows import StackedRows

SUBTRACTED_BELOW = 0.03
"""Relative errors under this are measured by subtraction: by inner products with float32 sums within a tile, a relative
error e is known to about 1e-7 / e, here a tenth of a bin of the histograms."""


class Pairs(NamedTuple):
    """Which states of a block are compared, by their places; (subject, expected) each.

    Attributes:
        by_products: those that are one of many comparisons.
        subtracted: those that are subtracted throughout.
    """

    by_products: tuple[tuple[int, int], ...] = ()
    subtracted: tuple[tuple[int, int], ...] = ()


class Limits(NamedTuple):
    """Norms beyond which a row stands out.

    Attributes:
        norms_SN: float64, those of S sequences and of so many states, the first ones of a block.
        sequence_T: int64, the sequence that each row of a block is of.
    """

    norms_SN: torch.Tensor
    sequence_T: torch.Tensor


class Compared(NamedTuple):
    """What was computed of a block.

    Attributes:
        squares_NT: float64, squared norms. NaN or infinite where a row isn't finite.
        errors_RT: float64 ``[P + Q + N, T]``: ``|subject - expected| / |expected|`` of the pairs by products and of the
            subtracted ones, then the norms of the states. Inf where only ``expected`` is zero, NaN where either row
            isn't finite: a row that isn't there is no match.
        standing_T: bool, which rows stand out.
        added: how many rows went into the sums of each subtracted pair.
    """

    squares_NT: torch.Tensor
    errors_RT: torch.Tensor
    standing_T: torch.Tensor
    added: list[int]


class PairSums(NamedTuple):
    """Sums over rows of two states, dimension by dimension; all float64, added to in place.

    Attributes:
        origin_x_D, origin_y_D: around which the sums are taken; of values that float32 holds as well.
        sums_6D: of x, y, x^2, y^2 and xy, all less the origins, and of ``(x - y)^2``.
        largest_D: the greatest ``|x - y|``.
    """

    origin_x_D: torch.Tensor
    origin_y_D: torch.Tensor
    sums_6D: torch.Tensor
    largest_D: torch.Tensor

    @classmethod
    def zeros(cls, hidden_size: int) -> PairSums:
        """Of no rows, around zero."""
        x_D, y_D, largest_D = (torch.zeros(hidden_size, dtype=torch.float64) for _ in range(3))
        return cls(x_D, y_D, torch.zeros((SUMS, hidden_size), dtype=torch.float64), largest_D)


class Arithmetic(Protocol):
    """What both ways offer. States are ``[T, D]`` with stride 1 along D, in any float dtype.

    Attributes:
        in_files: names of dtypes in which ``compare`` takes states that are still in their files.
        first_bytes: of sequences' first rows that should be in memory together.
    """

    in_files: frozenset[str]
    first_bytes: int

    def block_rows(self, row_bytes: int) -> int:
        """How many rows a block should have, if a row of all states has so many bytes."""
        ...

    def compare(
        self,
        pieces: Sequence[Sequence[BlockState]],
        pairs: Pairs,
        limits: Limits | None = None,
        sums: Sequence[PairSums | None] = (),
    ) -> Compared:
        """Everything about a block.

        Args:
            pieces: the states of some rows each, which are the block's one behind the other; in files where
                ``in_files`` has their dtype.
            pairs: which of them are compared.
            limits: beyond which rows stand out.
            sums: of the subtracted pairs, the first ones, with ``expected`` as x: rows that don't stand out and are
                numbers on both sides are added to them.

        Raises:
            InputError: a state can't be read any more.
        """
        ...

    def read_first(self, pieces: Sequence[Sequence[BlockState]], stacked: StackedRows) -> torch.Tensor:
        """Brings rows into memory, and gives the squared norms: float64 ``[N, T]``.

        Args:
            pieces: the states of some rows of a sequence each; in files where ``in_files`` has their dtype.
            stacked: to which they are added.

        Raises:
            InputError: a state can't be read any more.
        """
        ...

    def squared_differences(
        self,
        states: Sequence[torch.Tensor],
        pairs: Sequence[tuple[int, int]],
        x_rows: torch.Tensor,
        y_rows: torch.Tensor,
    ) -> torch.Tensor:
        """``|x[x_rows] - y[y_rows]|^2`` for pairs (x, y): float64 ``[Q, T]``; rows are int64 vectors of one length."""
        ...

    def add_pair_sums(
        self,
        x_TD: torch.Tensor,
        y_TD: torch.Tensor,
        rows: torch.Tensor,
        sums: PairSums,
    ) -> None:
        """Adds rows (int64) to the sums of each dimension."""
        ...

    def count_errors(
        self,
        errors_RT: torch.Tensor,
        rows: Sequence[int],
        keep_T: torch.Tensor,
        edges_B: torch.Tensor,
        counts: Sequence[torch.Tensor],
    ) -> None:
        """Adds errors to histograms; NaN is left out.

        Args:
            errors_RT: float, >= 0.
            rows: which rows of them.
            keep_T: bool, which columns.
            edges_B: float64, ascending, the lower edges of all bins but the first.
            counts: int64 ``[B + 1]``, one for each of ``rows``, a bin more than there are edges; are added to.
        """
        ...
