"""Sizes and numbers of the loops, which those who call them have to know as well. Nothing here needs numba."""

from __future__ import annotations

TILE = 512
"""Places of a tile, of sums and of widened numbers: as many dimensions, or words of two."""
PRODUCT_TILE = 2048
"""Dimensions of a row that are gone through for each table, where they are taken two in a word: of eight states they
fill a first-level cache. Otherwise a tile."""
PADDING = 16
"""Numbers between two rows of a scratch array: rows that lie a multiple of 4 KiB apart are taken for one another by the
processor's load and store units, and the loop then runs at half its speed."""
GROUP = 4
"""Rows that are added up before the sums are touched: loading and storing those costs as much as a row."""
RIGHTS, LEFTS = 2, 4
"""Of a table of products: eight or nine running sums and the widened numbers are what 16 vector registers hold."""
PRODUCTS = RIGHTS * LEFTS + 1
"""Of a table: each right state's with the left ones, and that of the right ones with each other."""

ROWS_AT_ONCE = 32
"""Rows that are done with before the next ones are begun: of eight states of 1,536 dimensions they are 0.8 MB. They are
also the rows whose sums a dimension holds in float32. With 256, rows that repeat themselves were off by 1e-6, and
standard deviations of bfloat16 numbers by 3e-6; with 32 it takes rows that are made for it, one great among 31 small
ones, to be off by 2e-6."""

READ_BYTES, KEPT_BYTES = 768 * 1024, 1536 * 1024
"""Of files, at once: what is computed next finds them in a cache. More of those that are subtracted, since a few
rows' sums take as long as adding them to the float64 ones."""
CACHE_LINE = 64
AHEAD_BYTES = 1024 * 1024
"""Of rows in memory that are brought in at once. One row of a reference's 62 boundaries of 7,168 dimensions has 0.9 MB:
of 32 of them the first had left the caches again before it was looked at."""

HUGE, TINY = 1e30, 1e-24
"""Squared norms beyond these leave float32's range somewhere on the way; such rows are added up in float64."""

MANTISSA_SHIFT = 45
"""What is left of a float64 above it: the exponent and seven bits, that is steps of 0.4 to 0.8 %, less than a bin."""

SUMS = 6
"""Of a dimension: of x, y, x^2, y^2 and xy, all less the origins, and of ``(x - y)^2``."""
LARGEST, ORIGINS = SUMS, SUMS + 1
"""Rows of a tile's sums behind these: the largest square of a difference, and the origins of x and of y."""
TILE_SUMS = ORIGINS + 2

BFLOAT16, FLOAT32 = 0, 1
"""The dtypes of states."""

PITCH = 4
"""Of what is told of a source: where the bytes from row to row in memory are. See ``block.compare_block``."""

FIELDS = 3
"""Of an argument, as ``entries`` takes it: an array's address and its shape, or a number."""
