"""Robust statistics of per-token errors without keeping them: histograms on a logarithmic axis.

A median over a training set can't be kept as a list. Counts on fixed logarithmic bins merge by addition, need a few
kilobytes for any number of tokens, and give every quantile within the width of a bin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from eagle_parity.numerics.axis import BINS, BINS_PER_DECADE, BINS_PER_STEP, LOWEST
from eagle_parity.numerics.whole_arrays import WholeArrays

if TYPE_CHECKING:
    from eagle_parity.numerics.arithmetic import Arithmetic

EDGES = LOWEST * 10.0 ** (torch.arange(BINS + 1, dtype=torch.float64) / BINS_PER_DECADE)
"""Of the bins, float64 ``[BINS + 1]``: bin b, counted from 1, is from ``EDGES[b - 1]`` to below ``EDGES[b]``."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """What a histogram says of its values.

    Attributes:
        count: values that went in, without NaN.
        median, p90, p99: within one bin; 0 for exact equality, NaN where nothing went in.
        largest: the upper edge of the highest bin that holds a value.
    """

    count: int
    median: float
    p90: float
    p99: float
    largest: float


class ErrorHistograms:
    """Counts of relative errors for P pairs of states; ``counts_PB`` is int64 ``[P, 1 + BINS + 1]``.

    Bin 0 holds values under ``LOWEST``, the last bin values beyond the axis and infinite ones.
    """

    def __init__(self, pairs: int) -> None:
        self.counts_PB = torch.zeros((pairs, BINS + 2), dtype=torch.int64)

    def update(
        self, errors_PT: torch.Tensor, keep_T: torch.Tensor | None = None, arithmetic: Arithmetic | None = None
    ) -> ErrorHistograms:
        """Adds errors >= 0, float ``[P, T]``. NaN is left out: the caller counts non-finite rows.

        Args:
            errors_PT: the errors.
            keep_T: bool, which of them; all by default.
            arithmetic: how.
        """
        if errors_PT.shape[0] != self.counts_PB.shape[0]:
            raise ValueError(f"{self.counts_PB.shape[0]} pairs expected, got {errors_PT.shape[0]}")
        keep_T = torch.ones(errors_PT.shape[1], dtype=torch.bool) if keep_T is None else keep_T
        (arithmetic or WholeArrays()).count_errors(
            errors_PT, range(len(errors_PT)), keep_T, EDGES, list(self.counts_PB)
        )
        return self

    def merge(self, other: ErrorHistograms) -> ErrorHistograms:
        """Adds what another state has seen."""
        self.counts_PB += other.counts_PB
        return self

    def quantiles(self, pair: int) -> Quantiles:
        """Quantiles of one pair."""
        return _quantiles_of(self.counts_PB[pair : pair + 1])[0]

    def all_quantiles(self) -> list[Quantiles]:
        """Those of every pair, in their order."""
        return _quantiles_of(self.counts_PB)

    def survival(self, pair: int) -> list[tuple[float, int]]:
        """``(upper edge, count)`` of every step that holds values, ascending: for the result file.

        A step reaches from its upper edge divided by ``STEP_RATIO`` to the edge.
        """
        counts_B = self.counts_PB[pair]
        coarse: dict[float, int] = {}
        for index in counts_B.nonzero().flatten().tolist():
            edge = _upper_edge(index if index in {0, BINS + 1} else ((index - 1) // BINS_PER_STEP + 1) * BINS_PER_STEP)
            coarse[edge] = coarse.get(edge, 0) + int(counts_B[index])
        return sorted(coarse.items())


def _quantiles_of(counts_PB: torch.Tensor) -> list[Quantiles]:
    """Of all pairs together: one by one, those of 62 candidates take as long as a tenth of a gigabyte."""
    cumulative_PB = counts_PB.cumsum(1)
    count_P = cumulative_PB[:, -1]
    places = [_rank_places(cumulative_PB, count_P, percent) for percent in (50, 90, 99, 100)]
    return [
        Quantiles(count, _middle(median), _middle(p90), _middle(p99), _upper_edge(largest))
        if count
        else Quantiles(0, math.nan, math.nan, math.nan, math.nan)
        for count, median, p90, p99, largest in zip(count_P.tolist(), *places, strict=True)
    ]


def _rank_places(cumulative_PB: torch.Tensor, count_P: torch.Tensor, percent: int) -> list[int]:
    """The bins in which that share of the values is reached."""
    # Rounded up, in integers.
    rank_P = (-(-percent * count_P // 100)).clamp_min(1)
    places: list[int] = torch.searchsorted(cumulative_PB, rank_P[:, None]).flatten().tolist()
    return places


def _upper_edge(index: int) -> float:
    if index == 0:
        return 0.0
    return math.inf if index == BINS + 1 else LOWEST * 10 ** (index / BINS_PER_DECADE)


def _middle(index: int) -> float:
    if index == 0:
        return 0.0
    return math.inf if index == BINS + 1 else LOWEST * 10 ** ((index - 0.5) / BINS_PER_DECADE)
