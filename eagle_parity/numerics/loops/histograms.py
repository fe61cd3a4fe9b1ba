"""Errors counted in the bins of histograms."""

from __future__ import annotations

import numba
import numpy as np

from eagle_parity.numerics.loops.shapes import MANTISSA_SHIFT
from eagle_parity.numerics.loops.stored import inner, pointer


@inner
def count_errors(errors_PT, rows_R, keep_T, edges_B, first_bins, counts_R):
    """Counts errors in the bins of ``ErrorHistograms``; NaN isn't counted.

    Args:
        errors_PT: float64, >= 0.
        rows_R: int64, which of them.
        keep_T: bool, which columns.
        edges_B: float64, ascending, the lower edges of all bins but the first.
        first_bins: int32, for the upper bits of a float64 (``MANTISSA_SHIFT``) the bin of the least number that begins
            with them: numbers that share these are at most 1.6 % apart, so an edge or two are left to look at.
        counts_R: uint64, the addresses of int64 vectors one longer than the edges, which are added to.
    """
    last = len(edges_B)
    for r in range(len(rows_R)):
        counts_B = numba.carray(pointer(counts_R[r]), (last + 1,), np.int64)
        errors_T = errors_PT[rows_R[r]]
        for t in range(len(errors_T)):
            error = errors_T[t]
            if not keep_T[t] or np.isnan(error):
                continue
            upper = np.int64(np.float64(error).view(np.uint64) >> np.uint64(MANTISSA_SHIFT))
            low = first_bins[upper] if upper < len(first_bins) else last  # infinite
            high = first_bins[upper + 1] if upper + 1 < len(first_bins) else last
            # The number of edges that aren't above the error.
            while low < high:
                middle = (low + high) // 2
                if edges_B[middle] <= error:
                    low = middle + 1
                else:
                    high = middle
            counts_B[low] += 1
