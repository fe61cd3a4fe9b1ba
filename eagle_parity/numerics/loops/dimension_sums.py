"""Sums of each dimension over rows of two states, and the rows' distances with them.

bfloat16 numbers are taken two in a word: a tile's sums are then those of the first of each two dimensions, and behind
them those of the second ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from eagle_parity.numerics.loops.differences import as_floats
from eagle_parity.numerics.loops.shapes import GROUP, LARGEST, ORIGINS, PADDING, SUMS, TILE, TILE_SUMS
from eagle_parity.numerics.loops.stored import first_of, in_words, inner, pointer, root, second_of, view_words, widened

if TYPE_CHECKING:
    from collections.abc import Callable

_TILE_ROW = TILE + PADDING
_SECOND = np.uint64(4 * TILE_SUMS * _TILE_ROW)
"""Bytes from the sums of first dimensions to those of second ones: ``block_plan.Scratch.tile_sums`` has both."""


@inner
def _view_tile(address):
    """A tile's sums, float32. Of a shape that is known, so that it is plain that none of them is where another is."""
    return numba.carray(pointer(address), (TILE_SUMS, _TILE_ROW), np.float32)


def _adding_four(part: Callable[[Any], Any]) -> Any:
    """Adds four rows of words, of which it takes one number each."""

    @inner
    def add(x_rows, y_rows, t, low, count, address, out_T):
        tile = _view_tile(address)
        x0, x1 = view_words(x_rows[t], low, count), view_words(x_rows[t + 1], low, count)
        x2, x3 = view_words(x_rows[t + 2], low, count), view_words(x_rows[t + 3], low, count)
        y0, y1 = view_words(y_rows[t], low, count), view_words(y_rows[t + 1], low, count)
        y2, y3 = view_words(y_rows[t + 2], low, count), view_words(y_rows[t + 3], low, count)
        first, second, third, fourth = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for k in range(count):
            a, b, c, d = part(x0[k]), part(x1[k]), part(x2[k]), part(x3[k])
            e, f, g, h = part(y0[k]), part(y1[k]), part(y2[k]), part(y3[k])
            p, q, r, s = a - e, b - f, c - g, d - h
            p, q, r, s = p * p, q * q, r * r, s * s
            one = max(q, p)
            two = max(s, r)
            one = max(two, one)
            two = tile[LARGEST, k]
            tile[LARGEST, k] = max(two, one)
            first += p
            second += q
            third += r
            fourth += s
            tile[5, k] += (p + q) + (r + s)
            origin = tile[ORIGINS, k]
            a, b, c, d = a - origin, b - origin, c - origin, d - origin
            origin = tile[ORIGINS + 1, k]
            e, f, g, h = e - origin, f - origin, g - origin, h - origin
            tile[0, k] += (a + b) + (c + d)
            tile[1, k] += (e + f) + (g + h)
            tile[2, k] += (a * a + b * b) + (c * c + d * d)
            tile[3, k] += (e * e + f * f) + (g * g + h * h)
            tile[4, k] += (a * e + b * f) + (c * g + d * h)
        out_T[t] += first
        out_T[t + 1] += second
        out_T[t + 2] += third
        out_T[t + 3] += fourth

    return add


def _adding_one(part: Callable[[Any], Any]) -> Any:
    """Adds one row."""

    @inner
    def add(x, y, count, address):
        tile = _view_tile(address)
        total = np.float32(0)
        for k in range(count):
            a, e = part(x[k]), part(y[k])
            p = a - e
            p = p * p
            highest = tile[LARGEST, k]
            tile[LARGEST, k] = max(highest, p)
            total += p
            tile[5, k] += p
            a, e = a - tile[ORIGINS, k], e - tile[ORIGINS + 1, k]
            tile[0, k] += a
            tile[1, k] += e
            tile[2, k] += a * a
            tile[3, k] += e * e
            tile[4, k] += a * e
        return total

    return add


_add_four_firsts, _add_four_seconds = _adding_four(first_of), _adding_four(second_of)
_add_one_firsts, _add_one_seconds, _add_floats = _adding_one(first_of), _adding_one(second_of), _adding_one(widened)


@inner
def _begin(address, origins_2D, low, count):
    """Empties a tile for so many places from ``low`` on."""
    tile = _view_tile(address)
    tile[:ORIGINS] = 0
    for side in range(2):
        origin, origin_D = tile[ORIGINS + side], origins_2D[side, low : low + count]
        for k in range(count):
            origin[k] = origin_D[k]


@inner
def _end(address, totals_7D, low, count):
    """Adds a tile to what there is."""
    tile = _view_tile(address)
    for s in range(SUMS):
        totals, part = totals_7D[s, low : low + count], tile[s]
        for k in range(count):
            totals[k] += part[k]
    totals, part = totals_7D[LARGEST, low : low + count], tile[LARGEST]
    for k in range(count):
        found, before = np.float64(part[k]), totals[k]
        totals[k] = max(before, found)


@inner
def _add_words(x_rows, y_rows, count, size, origins_2D, totals_7D, tile_sums, out_T):
    first, second = np.uint64(tile_sums.ctypes.data), np.uint64(tile_sums.ctypes.data) + _SECOND
    for low in range(0, size // 2, TILE):
        words = min(TILE, size // 2 - low)
        _begin(first, origins_2D, low, words)
        _begin(second, origins_2D, size // 2 + low, words)
        grouped = count - count % GROUP
        for t in range(0, grouped, GROUP):
            _add_four_firsts(x_rows, y_rows, t, low, words, first, out_T)
            _add_four_seconds(x_rows, y_rows, t, low, words, second, out_T)
        for t in range(grouped, count):
            x, y = view_words(x_rows[t], low, words), view_words(y_rows[t], low, words)
            out_T[t] += _add_one_firsts(x, y, words, first)
            out_T[t] += _add_one_seconds(x, y, words, second)
        _end(first, totals_7D, low, words)
        _end(second, totals_7D, size // 2 + low, words)


@inner
def _place(dimension, size, x_code, y_code):
    """Where a dimension's sums are."""
    if in_words(x_code, y_code, size):
        return dimension // 2 + (size // 2) * (dimension % 2)
    return dimension


@inner
def begin_sums(x_code, y_code, size, x_origin_D, y_origin_D, origins_2D, totals_7D):
    """Prepares sums over a block's rows.

    Args:
        x_code, y_code: the dtypes of the two states.
        size: D.
        x_origin_D, y_origin_D: float64, around what sums are taken.
        origins_2D: float32, is filled.
        totals_7D: float64, is filled: six sums of each dimension, and the largest square of a difference.
    """
    for d in range(size):
        place = _place(d, size, x_code, y_code)
        origins_2D[0, place], origins_2D[1, place] = np.float32(x_origin_D[d]), np.float32(y_origin_D[d])
    totals_7D[:] = 0


@inner
def end_sums(x_code, y_code, size, totals_7D, sums_6D, largest_D):
    """Adds what was summed up over a block's rows to what there was before."""
    for d in range(size):
        place = _place(d, size, x_code, y_code)
        for s in range(SUMS):
            sums_6D[s, d] += totals_7D[s, place]
        largest_D[d] = max(largest_D[d], root(totals_7D[LARGEST, place]))


@inner
def add_rows(x_rows, x_code, y_rows, y_code, count, size, origins_2D, totals_7D, tile_sums, wide, out_T):
    """Adds so many rows to the totals of each dimension, and to ``out_T`` their squared distances."""
    if in_words(x_code, y_code, size):
        _add_words(x_rows, y_rows, count, size, origins_2D, totals_7D, tile_sums, out_T)
        return
    address = np.uint64(tile_sums.ctypes.data)
    for low in range(0, size, TILE):
        width = min(TILE, size - low)
        _begin(address, origins_2D, low, width)
        for t in range(count):
            # One by one: half as fast, for what is twice as large anyway.
            x = as_floats(x_rows[t], x_code, low, width, wide[0])
            y = as_floats(y_rows[t], y_code, low, width, wide[1])
            out_T[t] += _add_floats(x, y, width, address)
        _end(address, totals_7D, low, width)
