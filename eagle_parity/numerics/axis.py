"""The logarithmic axis on which relative errors are counted; saved results are judged by it, without torch."""

from __future__ import annotations

LOWEST = 1e-9
"""Below this relative error two rows count as equal: a thousandth of what float32 can tell apart."""
DECADES = 18
"""Up to 1e9: norms of rows are counted as well, and those of deep layers exceed ten thousand."""
BINS_PER_DECADE = 200
BINS = DECADES * BINS_PER_DECADE
RELATIVE_RESOLUTION = 10 ** (1 / BINS_PER_DECADE) - 1
"""1.2 %: the width of a bin, and so the bound on a quantile's relative error."""
BINS_PER_STEP = 4
STEP_RATIO = 10 ** (BINS_PER_STEP / BINS_PER_DECADE)
"""1.047: how far apart the edges of ``survival`` are, and so how well a later limit can be applied."""
