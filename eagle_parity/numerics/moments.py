"""Per-dimension statistics of a pair of states, as a state that merges.

Shards, ranks, workers and blocks of rows are one problem: ``merge`` of parts equals one pass over the whole, up to the
rounding of float64 sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

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

    The sums are taken around the first block's means: a dimension that sits at 1,000 and moves by 0.01 would lose its
    variance to cancellation otherwise. A merge moves the other state's sums to this one's origin.
    """

    def __init__(self, hidden_size: int) -> None:
        self.rows = 0
        self.origin_x_D = torch.zeros(hidden_size, dtype=torch.float64)
        self.origin_y_D = torch.zeros(hidden_size, dtype=torch.float64)
        self.sum_x_D = torch.zeros(hidden_size, dtype=torch.float64)
        self.sum_y_D = torch.zeros(hidden_size, dtype=torch.float64)
        self.sum_xx_D = torch.zeros(hidden_size, dtype=torch.float64)
        self.sum_yy_D = torch.zeros(hidden_size, dtype=torch.float64)
        self.sum_xy_D = torch.zeros(hidden_size, dtype=torch.float64)
        self.sum_squared_difference_D = torch.zeros(hidden_size, dtype=torch.float64)
        self.max_difference_D = torch.zeros(hidden_size, dtype=torch.float64)

    def update(self, x_TD: torch.Tensor, y_TD: torch.Tensor) -> PairMoments:
        """Adds rows: both ``[T, D]``, finite, any float dtype."""
        if x_TD.shape != y_TD.shape:
            raise ValueError(f"rows of one shape expected, got {tuple(x_TD.shape)} and {tuple(y_TD.shape)}")
        if x_TD.shape[0] == 0:
            return self
        x_TD, y_TD = x_TD.double(), y_TD.double()
        if self.rows == 0:
            self.origin_x_D, self.origin_y_D = x_TD.mean(0), y_TD.mean(0)
        difference_TD = x_TD - y_TD
        x_TD, y_TD = x_TD - self.origin_x_D, y_TD - self.origin_y_D
        self.rows += x_TD.shape[0]
        self.sum_x_D += x_TD.sum(0)
        self.sum_y_D += y_TD.sum(0)
        self.sum_xx_D += (x_TD * x_TD).sum(0)
        self.sum_yy_D += (y_TD * y_TD).sum(0)
        self.sum_xy_D += (x_TD * y_TD).sum(0)
        self.sum_squared_difference_D += (difference_TD * difference_TD).sum(0)
        self.max_difference_D = torch.maximum(self.max_difference_D, difference_TD.abs().amax(0))
        return self

    def merge(self, other: PairMoments) -> PairMoments:
        """Adds what another state has seen."""
        if other.rows == 0:
            return self
        if self.rows == 0:
            self.origin_x_D, self.origin_y_D = other.origin_x_D.clone(), other.origin_y_D.clone()
        shift_x_D = other.origin_x_D - self.origin_x_D
        shift_y_D = other.origin_y_D - self.origin_y_D
        n = other.rows
        self.rows += n
        self.sum_x_D += other.sum_x_D + n * shift_x_D
        self.sum_y_D += other.sum_y_D + n * shift_y_D
        self.sum_xx_D += other.sum_xx_D + 2 * shift_x_D * other.sum_x_D + n * shift_x_D**2
        self.sum_yy_D += other.sum_yy_D + 2 * shift_y_D * other.sum_y_D + n * shift_y_D**2
        self.sum_xy_D += (
            other.sum_xy_D + shift_x_D * other.sum_y_D + shift_y_D * other.sum_x_D + n * shift_x_D * shift_y_D
        )
        self.sum_squared_difference_D += other.sum_squared_difference_D
        self.max_difference_D = torch.maximum(self.max_difference_D, other.max_difference_D)
        return self

    def compute(self) -> DimensionStatistics:
        """The statistics of all rows so far.

        Raises:
            ValueError: no rows went in.
        """
        n = self.rows
        if n == 0:
            raise ValueError("no rows")
        mean_x_D, mean_y_D = self.sum_x_D / n, self.sum_y_D / n
        var_x_D = (self.sum_xx_D / n - mean_x_D**2).clamp_min(0)
        var_y_D = (self.sum_yy_D / n - mean_y_D**2).clamp_min(0)
        covariance_D = self.sum_xy_D / n - mean_x_D * mean_y_D
        std_x_D, std_y_D = var_x_D.sqrt(), var_y_D.sqrt()
        moving_D = (std_x_D > CONSTANT_RATIO * (mean_x_D + self.origin_x_D).abs()) & (
            std_y_D > CONSTANT_RATIO * (mean_y_D + self.origin_y_D).abs()
        )
        # Divided one by one: the product of two small deviations can be zero where neither is.
        quotient_D = covariance_D / std_x_D / std_y_D
        correlation_D = torch.where(moving_D, quotient_D, torch.zeros_like(quotient_D))
        return DimensionStatistics(
            rows=n,
            mean_x_D=mean_x_D + self.origin_x_D,
            mean_y_D=mean_y_D + self.origin_y_D,
            std_x_D=std_x_D,
            std_y_D=std_y_D,
            max_difference_D=self.max_difference_D.clone(),
            rms_difference_D=(self.sum_squared_difference_D / n).sqrt(),
            correlation_D=correlation_D.clamp(-1, 1),
        )
