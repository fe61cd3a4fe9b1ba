"""Compiled loops over rows as they are stored: what a comparison does to every number, in one pass over each block.

Why these are compiled: a block of bfloat16 rows has to be widened, and every number enters a dozen sums. Written with
whole-array operations each of them is a pass over memory; here a tile of 512 dimensions stays in the first-level cache
while all of it happens. Measured on one core of an EPYC 9R14: see docs/numbers.md.

Rows are addressed within a flat array of the file's numbers (``start`` and ``step`` in numbers), so that a slot which
lies between others is read where it lies. bfloat16 comes as uint16, whose bits are the upper half of a float32.

Sums within a tile are float32 (a few hundred terms at most before they are added to float64 ones). NaN and infinities
go through them as they should: of LLVM's fast-math flags only those are on that reorder and contract.

Shape letters: T rows, D dimensions, N states, P pairs of states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

if TYPE_CHECKING:
    from collections.abc import Callable

TILE = 512
PADDING = 16
"""Numbers between two rows of a scratch array: rows that lie a multiple of 4 KiB apart are taken for one another by the
processor's load and store units, and the loop then runs at half its speed."""
GROUP = 4
"""Rows that are added up before the sums are touched: loading and storing those costs as much as a row."""

ROWS_OF_FLOAT32_SUMS = 32
"""Rows whose sums a dimension holds in float32 before they are added to float64: eight groups of four. With 256, rows
that repeat themselves were off by 1e-6, and standard deviations of bfloat16 numbers by 3e-6."""

MANTISSA_SHIFT = 46
"""What is left of a float64 above it: the exponent and six bits, that is steps of 1 to 2 %, about a bin."""

BFLOAT16, FLOAT32 = 0, 1
"""What ``codes`` says of a state."""

_ALGEBRA = {"reassoc", "contract", "nsz"}
_compiled: Callable[..., Any] = numba.njit(fastmath=_ALGEBRA, nogil=True, cache=True)


@intrinsic
def _pointer(_context: Any, address: Any) -> Any:
    """The address as a pointer, so that one compiled loop takes any number of states."""

    def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), generate


def _widened(number):
    """A stored number as float32."""
    raise NotImplementedError  # compiled code has the overload alone


@overload(_widened, inline="always")
def _widened_overload(number):
    if number == types.uint16:
        return lambda number: np.uint32(np.uint32(number) << np.uint32(16)).view(np.float32)
    return lambda number: number


@_compiled
def _stage(stored, tile, width):
    for k in range(width):
        tile[k] = _widened(stored[k])


@_compiled
def _square(stored, width):
    total = np.float32(0)
    for k in range(width):
        number = _widened(stored[k])
        total += number * number
    return total


@_compiled
def _square_and_products(stored, first, second, third, width):
    """Three at once: the numbers are widened once, and four sums keep the adders busy."""
    square, one, two, three = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for k in range(width):
        number = _widened(stored[k])
        square += number * number
        one += number * first[k]
        two += number * second[k]
        three += number * third[k]
    return square, one, two, three


@_compiled
def row_products(addresses, steps, codes, staged, lefts, begins, rows, size, squares_NT, products_PT):
    """Squared norms of all rows, and products of those that are compared.

    Args:
        addresses: uint64 ``[N]``, of each state's first row.
        steps: uint64 ``[N]``, bytes from row to row.
        codes: int64 ``[N]``, ``BFLOAT16`` or ``FLOAT32``.
        staged: bool ``[N]``, whether a state is the left one of a pair.
        lefts: int64 ``[P]``, the left state of each pair, ordered by the right one.
        begins: int64 ``[N + 1]``: the pairs of right state s are ``begins[s]`` to before ``begins[s + 1]``.
        rows: T.
        size: D.
        squares_NT: float64 ``[N, T]``, is filled.
        products_PT: float64 ``[P, T]``, is filled.
    """
    states = len(addresses)
    tiles = np.zeros((states + 1, TILE + PADDING), np.float32)
    nothing = tiles[states]
    squares_NT[:] = 0
    products_PT[:] = 0
    for t in range(rows):
        for low in range(0, size, TILE):
            width = min(TILE, size - low)
            for s in range(states):
                if staged[s]:
                    row = addresses[s] + np.uint64(t) * steps[s]
                    if codes[s] == BFLOAT16:
                        halves = numba.carray(_pointer(row + np.uint64(2 * low)), (width,), np.uint16)
                        _stage(halves, tiles[s], width)
                    else:
                        floats = numba.carray(_pointer(row + np.uint64(4 * low)), (width,), np.float32)
                        _stage(floats, tiles[s], width)
            for s in range(states):
                row = addresses[s] + np.uint64(t) * steps[s]
                halves = numba.carray(_pointer(row + np.uint64(2 * low)), (width,), np.uint16)
                floats = numba.carray(_pointer(row + np.uint64(4 * low)), (width,), np.float32)
                p = begins[s]
                stop = begins[s + 1]
                if p == stop:
                    squares_NT[s, t] += _square(halves, width) if codes[s] == BFLOAT16 else _square(floats, width)
                while p < stop:
                    first = tiles[lefts[p]]
                    second = tiles[lefts[p + 1]] if p + 1 < stop else nothing
                    third = tiles[lefts[p + 2]] if p + 2 < stop else nothing
                    if codes[s] == BFLOAT16:
                        square, one, two, three = _square_and_products(halves, first, second, third, width)
                    else:
                        square, one, two, three = _square_and_products(floats, first, second, third, width)
                    if p == begins[s]:
                        squares_NT[s, t] += square
                    products_PT[p, t] += one
                    if p + 1 < stop:
                        products_PT[p + 1, t] += two
                    if p + 2 < stop:
                        products_PT[p + 2, t] += three
                    p += 3


@_compiled
def count_errors(errors_T, keep_T, edges_B, first_bins, counts_B):
    """Counts errors in the bins of an ``ErrorHistograms``; NaN isn't counted.

    Args:
        errors_T: float64 ``[T]``, >= 0.
        keep_T: bool ``[T]``, which of them.
        edges_B: float64, ascending, the lower edges of all bins but the first.
        first_bins: int32, for the upper bits of a float64 (``MANTISSA_SHIFT``) the bin of the least number that begins
            with them: numbers that share these are at most 1.6 % apart, so an edge or two are left to look at.
        counts_B: int64, one longer than the edges; is added to.
    """
    last = len(edges_B)
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


@_compiled
def squared_differences(x, x_start, x_step, x_rows, y, y_start, y_step, y_rows, size, out_T):
    """The squared distance of row ``x_rows[t]`` of one state from row ``y_rows[t]`` of another.

    Args:
        x, x_start, x_step: a state: flat numbers, where its first row begins, and how far the next one is.
        x_rows: int64 ``[T]``.
        y, y_start, y_step, y_rows: likewise.
        size: D.
        out_T: float64 ``[T]``, is filled.
    """
    for t in range(len(out_T)):
        total = 0.0
        for low in range(0, size, TILE):
            width = min(TILE, size - low)
            at = x_start + x_rows[t] * x_step + low
            a = x[at : at + width]
            at = y_start + y_rows[t] * y_step + low
            b = y[at : at + width]
            part = np.float32(0)
            for k in range(width):
                difference = _widened(a[k]) - _widened(b[k])
                part += difference * difference
            total += part
        out_T[t] = total


@_compiled
def pair_sums(x, x_start, x_step, y, y_start, y_step, rows, size, x_origin_D, y_origin_D, sums_6D, largest_D):
    """Adds the rows of two states to the sums of each dimension.

    Args:
        x, x_start, x_step, y, y_start, y_step, size: see ``squared_differences``.
        rows: int64, which ones.
        x_origin_D, y_origin_D: float32 ``[D]``, around which sums are taken.
        sums_6D: float64 ``[6, D]``: of x, y, their squares, their product (all less the origins), and of the squared
            differences.
        largest_D: float64 ``[D]``, the greatest ``|x - y|``.
    """
    scratch = np.empty((7, TILE + PADDING), np.float32)
    sx, sy, xx, yy = scratch[0], scratch[1], scratch[2], scratch[3]
    xy, dd, top = scratch[4], scratch[5], scratch[6]
    for low in range(0, size, TILE):
        width = min(TILE, size - low)
        x_origin, y_origin = x_origin_D[low : low + width], y_origin_D[low : low + width]
        greatest = largest_D[low : low + width]
        for begin in range(0, len(rows), ROWS_OF_FLOAT32_SUMS):
            stop = min(begin + ROWS_OF_FLOAT32_SUMS, len(rows))
            scratch[:] = 0
            i = begin
            while i + GROUP <= stop:
                at = x_start + rows[i] * x_step + low
                x_first = x[at : at + width]
                at = x_start + rows[i + 1] * x_step + low
                x_second = x[at : at + width]
                at = x_start + rows[i + 2] * x_step + low
                x_third = x[at : at + width]
                at = x_start + rows[i + 3] * x_step + low
                x_fourth = x[at : at + width]
                at = y_start + rows[i] * y_step + low
                y_first = y[at : at + width]
                at = y_start + rows[i + 1] * y_step + low
                y_second = y[at : at + width]
                at = y_start + rows[i + 2] * y_step + low
                y_third = y[at : at + width]
                at = y_start + rows[i + 3] * y_step + low
                y_fourth = y[at : at + width]
                for k in range(width):
                    a, b, c, d = (
                        _widened(x_first[k]),
                        _widened(x_second[k]),
                        _widened(x_third[k]),
                        _widened(x_fourth[k]),
                    )
                    e, f, g, h = (
                        _widened(y_first[k]),
                        _widened(y_second[k]),
                        _widened(y_third[k]),
                        _widened(y_fourth[k]),
                    )
                    p, q, r, s = a - e, b - f, c - g, d - h
                    dd[k] += (p * p + q * q) + (r * r + s * s)
                    top[k] = max(top[k], max(max(abs(p), abs(q)), max(abs(r), abs(s))))
                    origin = x_origin[k]
                    a, b, c, d = a - origin, b - origin, c - origin, d - origin
                    origin = y_origin[k]
                    e, f, g, h = e - origin, f - origin, g - origin, h - origin
                    sx[k] += (a + b) + (c + d)
                    sy[k] += (e + f) + (g + h)
                    xx[k] += (a * a + b * b) + (c * c + d * d)
                    yy[k] += (e * e + f * f) + (g * g + h * h)
                    xy[k] += (a * e + b * f) + (c * g + d * h)
                i += GROUP
            while i < stop:
                at = x_start + rows[i] * x_step + low
                x_first = x[at : at + width]
                at = y_start + rows[i] * y_step + low
                y_first = y[at : at + width]
                for k in range(width):
                    a, e = _widened(x_first[k]), _widened(y_first[k])
                    p = a - e
                    dd[k] += p * p
                    top[k] = max(top[k], abs(p))
                    a, e = a - x_origin[k], e - y_origin[k]
                    sx[k] += a
                    sy[k] += e
                    xx[k] += a * a
                    yy[k] += e * e
                    xy[k] += a * e
                i += 1
            for s in range(6):
                sums, part = sums_6D[s, low : low + width], scratch[s]
                for k in range(width):
                    sums[k] += part[k]
            for k in range(width):
                greatest[k] = max(greatest[k], np.float64(top[k]))
