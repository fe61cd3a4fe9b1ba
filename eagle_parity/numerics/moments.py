"""Per-dimension statistics of a pair of states, as a state that merges.

Shards, ranks, workers and blocks of rows are one problem: ``merge`` of parts equals one pass over the whole, up to the
rounding of float64 sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from eagle_parity.numerics.arithmetic import PairSums
from eagle_parity.numerics.whole_arrays import WholeArrays

if TYPE_CHECKING:
    from eagle_parity.numerics.arithmetic import Arithmetic

ORIGIN_ROWS = 32
"""Rows whose means are good enough to take sums around: less than a standard deviation off is near."""
CONSTANT_RATIO = 1e-13
"""A standard deviation below this part of the mean is the rounding of a float64 mean, and the dimension a constant: one
step of a float32 value, in one of 1e8 rows, makes more."""


@dataclass(frozen=True, slots=True)
class DimensionStatistics:
    """What was computed for each dimension, all float64 ``[D]``.

    Attributes:
        rows: number of rows that went in.
        mean_x_D, mean_y_D: means of the two sides.
        std_x_D, std_y_D: population standard deviations.
        max_difference_D: the greatest ``|x - y|``.
        rms_difference_D: the root mean square of ``x - y``.
        correlation_D: Pearson's r; 0 where a side is constant.
    """

    rows: int
    mean_x_D: torch.Tensor
    mean_y_D: torch.Tensor
    std_x_D: torch.Tensor
    std_y_D: torch.Tensor
    max_difference_D: torch.Tensor
    rms_difference_D: torch.Tensor
    correlation_D: torch.Tensor


class PairMoments:
    """Running sums over rows of two aligned states.

    The sums are taken around origins, the means of the first rows: a dimension that sits at 1,000 and moves by 0.01
    would lose its variance to cancellation otherwise. A merge moves the other state's sums to this one's origins.

    Attributes:
        rows: that went in.
        sums: float64 ``[D]`` and ``[6, D]``.
    """

    def __init__(self, hidden_size: int) -> None:
        self.rows = 0
        self.sums = PairSums.zeros(hidden_size)

    def update(self, x_TD: torch.Tensor, y_TD: torch.Tensor) -> PairMoments:
        """Adds rows: both ``[T, D]``, finite, any float dtype."""
        return self.add(WholeArrays(), x_TD, y_TD, torch.arange(len(x_TD)))

    def add(self, arithmetic: Arithmetic, x_TD: torch.Tensor, y_TD: torch.Tensor, rows: torch.Tensor) -> PairMoments:
        """Adds some rows of a block: int64 ``rows`` of ``[T, D]`` states of any float dtype, finite on both sides."""
        if x_TD.shape != y_TD.shape:
            raise ValueError(f"rows of one shape expected, got {tuple(x_TD.shape)} and {tuple(y_TD.shape)}")
        if not len(rows):
            return self
        self.begin(x_TD, y_TD, rows)
        self.rows += len(rows)
        arithmetic.add_pair_sums(x_TD, y_TD, rows, self.sums)
        return self

    def begin(self, x_TD: torch.Tensor, y_TD: torch.Tensor, rows: torch.Tensor) -> bool:
        """Takes the origins from the first of some rows, where none have been added yet; whether there are any."""
        if self.rows == 0 and len(rows):
            first = rows[:ORIGIN_ROWS]
            x_D, y_D = (
                side_TD.index_select(0, first).mean(0, dtype=torch.float64).float().double() for side_TD in (x_TD, y_TD)
            )
            self.sums = self.sums._replace(origin_x_D=x_D, origin_y_D=y_D)
        return self.rows > 0 or len(rows) > 0

    def merge(self, other: PairMoments) -> PairMoments:
        """Adds what another state has seen."""
        if other.rows == 0:
            return self
        if self.rows == 0:
            x_D, y_D = other.sums.origin_x_D.clone(), other.sums.origin_y_D.clone()
            self.sums = self.sums._replace(origin_x_D=x_D, origin_y_D=y_D)
        n = other.rows
        x_D = other.sums.origin_x_D - self.sums.origin_x_D
        y_D = other.sums.origin_y_D - self.sums.origin_y_D
        sum_x_D, sum_y_D = other.sums.sums_6D[:2]
        self.rows += n
        sums_6D = self.sums.sums_6D
        sums_6D += other.sums.sums_6D
        # Moved to this one's origins.
        sums_6D[0] += n * x_D
        sums_6D[1] += n * y_D
        sums_6D[2] += x_D * (2 * sum_x_D + n * x_D)
        sums_6D[3] += y_D * (2 * sum_y_D + n * y_D)
        sums_6D[4] += x_D * sum_y_D + y_D * (sum_x_D + n * x_D)
        torch.maximum(self.sums.largest_D, other.sums.largest_D, out=self.sums.largest_D)
        return self

    def compute(self) -> DimensionStatistics:
        """The statistics of all rows so far.

        Raises:
            ValueError: no rows went in.
        """
        n = self.rows
        if n == 0:
            raise ValueError("no rows")
        mean_x_D, mean_y_D, mean_xx_D, mean_yy_D, mean_xy_D, mean_squared_difference_D = self.sums.sums_6D / n
        var_x_D = (mean_xx_D - mean_x_D**2).clamp_min(0)
        var_y_D = (mean_yy_D - mean_y_D**2).clamp_min(0)
        covariance_D = mean_xy_D - mean_x_D * mean_y_D
        std_x_D, std_y_D = var_x_D.sqrt(), var_y_D.sqrt()
        moving_D = (std_x_D > CONSTANT_RATIO * (mean_x_D + self.sums.origin_x_D).abs()) & (
            std_y_D > CONSTANT_RATIO * (mean_y_D + self.sums.origin_y_D).abs()
        )
        # Divided one by one: the product of two small deviations can be zero where neither is.
        quotient_D = covariance_D / std_x_D / std_y_D
        correlation_D = torch.where(moving_D, quotient_D, torch.zeros_like(quotient_D))
        return DimensionStatistics(
            rows=n,
            mean_x_D=mean_x_D + self.sums.origin_x_D,
            mean_y_D=mean_y_D + self.sums.origin_y_D,
            std_x_D=std_x_D,
            std_y_D=std_y_D,
            max_difference_D=self.sums.largest_D.clone(),
            rms_difference_D=mean_squared_difference_D.sqrt(),
            correlation_D=correlation_D.clamp(-1, 1),
        )
