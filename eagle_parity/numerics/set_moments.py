"""Moments of a whole set of sequences, as small states that merge: per state, per dimension.

They are kept apart in two ways at once. *Groups* are random sixteenths of the files, by a digest of the name:
how far they are from each other says how far chance alone takes a part of the set. *Ranges* are consecutive parts
of the files: how far they are from the whole, measured by what the groups show, is drift.

Shape letters: T rows, S states (slots, and the last state behind them), H hidden size, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

GROUPS = 16
RANGES = 16

Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]


@dataclass
class Sums:
    """Of some rows: how many they are, their sums and those of their squares.

    Attributes:
        files, rows: that were added.
        sums_2SH: float64, of x and of x^2.
    """

    sums_2SH: Float64
    files: int = 0
    rows: int = 0

    @classmethod
    def zeros(cls, states: int, hidden_size: int) -> Sums:
        """Of nothing."""
        return cls(np.zeros((2, states, hidden_size)))

    def merge(self, other: Sums) -> Sums:
        """Adds what another has of other files."""
        self.sums_2SH += other.sums_2SH
        self.files += other.files
        self.rows += other.rows
        return self

    @property
    def mean_SH(self) -> Float64:
        """NaN where there is no row."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_SH: Float64 = self.sums_2SH[0] / np.float64(self.rows)
        return mean_SH

    @property
    def variance_SH(self) -> Float64:
        """Of the rows themselves (divided by their number); NaN where there is none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            variance_SH: Float64 = np.maximum(self.sums_2SH[1] / np.float64(self.rows) - self.mean_SH**2, 0)
        return variance_SH


@dataclass
class SetMoments:
    """Of all files of one layout.

    Attributes:
        groups: ``GROUPS`` of them.
        ranges: by the number of the range; those that have files.
        least_SH, greatest_SH: float32, the extremes.
    """

    groups: list[Sums]
    least_SH: Float32
    greatest_SH: Float32
    ranges: dict[int, Sums] = field(default_factory=dict)

    @classmethod
    def zeros(cls, states: int, hidden_size: int) -> SetMoments:
        """Of nothing."""
        shape = (states, hidden_size)
        return cls(
            [Sums.zeros(*shape) for _ in range(GROUPS)],
            np.full(shape, np.inf, np.float32),
            np.full(shape, -np.inf, np.float32),
        )

    def update(self, group: int, sums: Sums, least_SH: Float32, greatest_SH: Float32) -> None:
        """Adds one file, which belongs to a group; its range is added by ``close_range``."""
        self.groups[group].merge(sums)
        np.minimum(self.least_SH, least_SH, out=self.least_SH)
        np.maximum(self.greatest_SH, greatest_SH, out=self.greatest_SH)

    def close_range(self, number: int) -> None:
        """Says that all that was added so far is of one range."""
        self.ranges = {number: self.total()}

    def merge(self, other: SetMoments) -> SetMoments:
        """Adds what another has of other files."""
        for mine, theirs in zip(self.groups, other.groups, strict=True):
            mine.merge(theirs)
        for number, sums in other.ranges.items():
            if number in self.ranges:
                self.ranges[number].merge(sums)
            else:
                self.ranges[number] = Sums(sums.sums_2SH.copy(), sums.files, sums.rows)
        np.minimum(self.least_SH, other.least_SH, out=self.least_SH)
        np.maximum(self.greatest_SH, other.greatest_SH, out=self.greatest_SH)
        return self

    def total(self) -> Sums:
        """Of all files."""
        total = Sums.zeros(*self.least_SH.shape)
        for group in self.groups:
            total.merge(group)
        return total
