"""Squared distances of rows, by subtraction."""

from __future__ import annotations

import numpy as np

from eagle_parity.numerics.loops.shapes import BFLOAT16, TILE
from eagle_parity.numerics.loops.stored import both, in_words, inner, view_floats, view_halves, view_words, widened


@inner
def _distance(x, y, count):
    total = np.float32(0)
    for k in range(count):
        a, b = both(x[k])
        c, d = both(y[k])
        a, b = a - c, b - d
        total += a * a + b * b
    return total


@inner
def widen(halves, tile, width):
    """Writes bfloat16 numbers to a tile of float32."""
    for k in range(width):
        tile[k] = widened(halves[k])


@inner
def as_floats(row, code, low, width, tile):
    """Numbers of a row as float32: in the tile where they are stored otherwise."""
    if code == BFLOAT16:
        widen(view_halves(row, low, width), tile, width)
        return tile[:width]
    return view_floats(row, low, width)


@inner
def row_distance(x, x_code, y, y_code, size, tiles):
    """The squared distance of two rows; infinite where float32 overflows."""
    total = 0.0
    for low in range(0, size, TILE):
        width = min(TILE, size - low)
        if in_words(x_code, y_code, size):
            word, words = low // 2, width // 2
            total += _distance(view_words(x, word, words), view_words(y, word, words), words)
        else:
            a, b = as_floats(x, x_code, low, width, tiles[0]), as_floats(y, y_code, low, width, tiles[1])
            total += _distance(a, b, width)
    return total


@inner
def row_distances(addresses_N, steps_N, codes_N, x_Q, y_Q, x_rows_T, y_rows_T, size, wide, out_QT):
    """Squared distances of rows, float64 ``[Q, T]``.

    Args:
        addresses_N, steps_N, codes_N, size, wide: see ``compare_block``.
        x_Q, y_Q: int64 ``[Q]``, the states.
        x_rows_T, y_rows_T: int64 ``[T]``, the rows of one and of the other; the same for all.
        out_QT: is filled; infinite where float32 overflows.
    """
    for q in range(len(x_Q)):
        a, b = x_Q[q], y_Q[q]
        for t in range(len(x_rows_T)):
            one = addresses_N[a] + np.uint64(x_rows_T[t]) * steps_N[a]
            two = addresses_N[b] + np.uint64(y_rows_T[t]) * steps_N[b]
            out_QT[q, t] = row_distance(one, codes_N[a], two, codes_N[b], size, wide)
