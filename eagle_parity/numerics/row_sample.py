"""A sample of rows that comes out the same however the set was split and merged: a quantile sketch of every dimension.

Each row has a priority, a digest of where it stands. The sample is the rows of the lowest priorities, which is a
uniform sample without replacement, and one that merges: the lowest of two samples are the lowest of both sets. Where a
row stands decides, not when it was seen, so that any order and any split give the same sample, bit for bit.

Within n sampled rows the rank of any quantile is off by more than e with a probability of at most
``2 exp(-2 n e^2)`` (Dvoretzky, Kiefer and Wolfowitz, with Massart's constant; sampling without replacement is no
worse), for each dimension.

Shape letters: N rows, S states, H hidden size.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

CAPACITY = 256

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def priorities_of(seed: int, positions_N: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The priorities of rows of one sequence: uint64 ``[N]`` (SplitMix64's finaliser).

    Args:
        seed: 64 bits that no other sequence has.
        positions_N: of the rows.
    """
    with np.errstate(over="ignore"):
        mixed = np.uint64(seed) + (positions_N.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        mixed ^= mixed >> np.uint64(31)
    return mixed


class RowSample:
    """The rows of the lowest priorities.

    Args:
        states, hidden_size: S and H.
        capacity: how many rows are kept.

    Attributes:
        seen: rows that were offered.
    """

    def __init__(self, states: int, hidden_size: int, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.seen = 0
        self._priorities_N = np.zeros(0, np.uint64)
        self._rows_NSH = np.zeros((0, states, hidden_size), np.float32)
        self._waiting: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32]]] = []
        self._waiting_rows = 0

    @property
    def priorities_N(self) -> npt.NDArray[np.uint64]:
        """Ascending, uint64, at most ``capacity``."""
        self._settle()
        return self._priorities_N

    @property
    def rows_NSH(self) -> npt.NDArray[np.float32]:
        """The rows, in the order of their priorities."""
        self._settle()
        return self._rows_NSH

    def wanted(self, priorities_N: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which rows can still get in: bool ``[N]``; the others needn't be offered, only counted as seen."""
        if len(self._priorities_N) < self.capacity:
            return np.ones(len(priorities_N), np.bool_)
        wanted_N: npt.NDArray[np.bool_] = priorities_N < self._priorities_N[-1]
        return wanted_N

    def update(
        self, priorities_N: npt.NDArray[np.uint64], rows_NSH: npt.NDArray[np.float32], *, seen: int
    ) -> RowSample:
        """Offers rows.

        Args:
            priorities_N: of the rows.
            rows_NSH: the rows.
            seen: how many there were, those that were not wanted included.
        """
        self.seen += seen
        if len(priorities_N):
            self._waiting.append((priorities_N, rows_NSH))
            self._waiting_rows += len(priorities_N)
            if self._waiting_rows >= self.capacity:
                self._settle()
        return self

    def merge(self, other: RowSample) -> RowSample:
        """Adds what another has of other sequences."""
        wanted_N = self.wanted(other.priorities_N)
        return self.update(other.priorities_N[wanted_N], other.rows_NSH[wanted_N], seen=other.seen)

    def quantiles(self, shares: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Quantiles of every dimension: float64 ``[len(shares), S, H]``; NaN of an empty sample."""
        shares = np.asarray(shares, np.float64)
        if not len(self.rows_NSH):
            return np.full((len(shares), *self._rows_NSH.shape[1:]), np.nan)
        found: npt.NDArray[np.float64] = np.quantile(self.rows_NSH, shares, axis=0, method="inverted_cdf")
        return found.astype(np.float64)

    def rank_error(self, doubt: float = 0.01) -> float:
        """By how much a quantile's rank is off at most, but for this probability; 0 where every row is kept."""
        kept = len(self.priorities_N)
        return 0.0 if self.seen <= kept else math.sqrt(math.log(2 / doubt) / (2 * kept))

    def __getstate__(self) -> dict[str, object]:
        """Without what waits, which would be sent along."""
        self._settle()
        return self.__dict__

    def _settle(self) -> None:
        """Sorts in what waits: together, because the rows are copied each time."""
        if not self._waiting:
            return
        both_N = np.concatenate([self._priorities_N, *(priorities for priorities, _ in self._waiting)])
        # Of equal priorities, which only one and the same row has, the order says nothing.
        kept = np.argsort(both_N, kind="stable")[: self.capacity]
        self._rows_NSH = np.concatenate([self._rows_NSH, *(rows for _, rows in self._waiting)])[kept]
        self._priorities_N = both_N[kept]
        self._waiting, self._waiting_rows = [], 0
