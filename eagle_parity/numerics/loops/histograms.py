"""Errors counted in the bins of histograms."""

from __future__ import annotations

import numba
import numpy as np

from eagle_parity.numerics.loops.shapes import MANTISSA_SHIFT
from eagle_parity.numerics.loops.stored import inner, pointer


@inner
def _upper_bits(number):
    return np.int64(np.float64(number).view(np.uint64) >> np.uint64(MANTISSA_SHIFT))


@inner
def count_errors(errors_PT, rows_R, keep_T, edges_B, first_bins, counts_R):
    """Counts errors in the bins of ``ErrorHistograms``; NaN isn't counted.

    Args:
        errors_PT: float64, >= 0.
        rows_R: int64, which of them.
        keep_T: bool, which columns.
        edges_B: float64, ascending, the lower edges of all bins but the first.
        first_bins: int32, for the upper bits of a float64 (``MANTISSA_SHIFT``) the bin of the least number that begins
            with them, from those of the lowest edge to those of the highest one. Numbers that share them are at most
            0.8 % apart, so there is an edge at most left to look at, as histograms have them.
        counts_R: uint64, the addresses of int64 vectors one longer than the edges, which are added to.
    """
    last = len(edges_B)
    base = _upper_bits(edges_B[0])
    for r in range(len(rows_R)):
        counts_B = numba.carray(pointer(counts_R[r]), (last + 1,), np.int64)
        errors_T = errors_PT[rows_R[r]]
        for t in range(len(errors_T)):
            error = errors_T[t]
            if not keep_T[t] or np.isnan(error):
                continue
            place = _upper_bits(error) - base
            if place < 0 or error <= 0:  # a negative zero's bits are those of a large number
                counts_B[0] += 1
                continue
            found = first_bins[place] if place < len(first_bins) else last
            # Added, not asked: half of all errors are beyond the edge, and no processor can tell which.
            found += np.int64(edges_B[min(found, last - 1)] <= error) if found < last else 0
            while found < last and edges_B[found] <= error:
                found += 1
            counts_B[found] += 1
