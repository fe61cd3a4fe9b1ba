"""Sums of each dimension over rows of two states, and the rows' distances with them."""

from __future__ import annotations

import numpy as np

from eagle_parity.numerics.loops.differences import as_floats
from eagle_parity.numerics.loops.shapes import BFLOAT16, GROUP, LARGEST, ORIGINS, SUMS, TILE
from eagle_parity.numerics.loops.stored import inner, view_halves, widened


@inner
def _add_four(x0, x1, x2, x3, y0, y1, y2, y3, x_origin, y_origin, tile_sums, width):
    """Adds four rows to a tile's sums, and gives the squared distance of each row from its other one."""
    sx, sy, xx, yy = tile_sums[0], tile_sums[1], tile_sums[2], tile_sums[3]
    xy, dd, top = tile_sums[4], tile_sums[5], tile_sums[LARGEST]
    first, second, third, fourth = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for k in range(width):
        a, b, c, d = widened(x0[k]), widened(x1[k]), widened(x2[k]), widened(x3[k])
        e, f, g, h = widened(y0[k]), widened(y1[k]), widened(y2[k]), widened(y3[k])
        p, q, r, s = a - e, b - f, c - g, d - h
        p, q, r, s = p * p, q * q, r * r, s * s
        one = max(q, p)
        two = max(s, r)
        one = max(two, one)
        two = top[k]
        top[k] = max(two, one)
        first += p
        second += q
        third += r
        fourth += s
        dd[k] += (p + q) + (r + s)
        origin = x_origin[k]
        a, b, c, d = a - origin, b - origin, c - origin, d - origin
        origin = y_origin[k]
        e, f, g, h = e - origin, f - origin, g - origin, h - origin
        sx[k] += (a + b) + (c + d)
        sy[k] += (e + f) + (g + h)
        xx[k] += (a * a + b * b) + (c * c + d * d)
        yy[k] += (e * e + f * f) + (g * g + h * h)
        xy[k] += (a * e + b * f) + (c * g + d * h)
    return first, second, third, fourth


@inner
def _add_one(x, y, x_origin, y_origin, tile_sums, width):
    sx, sy, xx, yy = tile_sums[0], tile_sums[1], tile_sums[2], tile_sums[3]
    xy, dd, top = tile_sums[4], tile_sums[5], tile_sums[LARGEST]
    total = np.float32(0)
    for k in range(width):
        a, e = widened(x[k]), widened(y[k])
        p = a - e
        p = p * p
        highest = top[k]
        top[k] = max(highest, p)
        total += p
        dd[k] += p
        a, e = a - x_origin[k], e - y_origin[k]
        sx[k] += a
        sy[k] += e
        xx[k] += a * a
        yy[k] += e * e
        xy[k] += a * e
    return total


@inner
def _add_halves(x_rows, y_rows, t, together, low, width, tile_sums, out_T):
    x, y = view_halves(x_rows[t], low, width), view_halves(y_rows[t], low, width)
    if not together:
        out_T[t] += _add_one(x, y, tile_sums[ORIGINS], tile_sums[ORIGINS + 1], tile_sums, width)
        return
    b, c, d = x_rows[t + 1], x_rows[t + 2], x_rows[t + 3]
    f, g, h = y_rows[t + 1], y_rows[t + 2], y_rows[t + 3]
    b, c, d = view_halves(b, low, width), view_halves(c, low, width), view_halves(d, low, width)
    f, g, h = view_halves(f, low, width), view_halves(g, low, width), view_halves(h, low, width)
    found = _add_four(x, b, c, d, y, f, g, h, tile_sums[ORIGINS], tile_sums[ORIGINS + 1], tile_sums, width)
    out_T[t] += found[0]
    out_T[t + 1] += found[1]
    out_T[t + 2] += found[2]
    out_T[t + 3] += found[3]


@inner
def _add_floats(x_rows, x_code, y_rows, y_code, t, low, width, tile_sums, tiles, out_T):
    x = as_floats(x_rows[t], x_code, low, width, tiles[0])
    y = as_floats(y_rows[t], y_code, low, width, tiles[1])
    out_T[t] += _add_one(x, y, tile_sums[ORIGINS], tile_sums[ORIGINS + 1], tile_sums, width)


@inner
def add_rows(x_rows, x_code, y_rows, y_code, count, size, origins_2D, sums_6D, largest_D, tile_sums, tiles, out_T):
    """Adds so many rows to the sums of each dimension, and to ``out_T`` their squared distances."""
    for low in range(0, size, TILE):
        width = min(TILE, size - low)
        tile_sums[:ORIGINS] = 0
        for side in range(2):
            origin = tile_sums[ORIGINS + side]
            for k in range(width):
                origin[k] = np.float32(origins_2D[side][low + k])
        t = 0
        while t < count:
            if x_code == BFLOAT16 and y_code == BFLOAT16:
                together = t + GROUP <= count
                _add_halves(x_rows, y_rows, t, together, low, width, tile_sums, out_T)
                t += GROUP if together else 1
            else:
                # One by one: half as fast, for what is twice as large anyway.
                _add_floats(x_rows, x_code, y_rows, y_code, t, low, width, tile_sums, tiles, out_T)
                t += 1
        for s in range(SUMS):
            sums, part = sums_6D[s, low : low + width], tile_sums[s]
            for k in range(width):
                sums[k] += part[k]
        greatest, part = largest_D[low : low + width], tile_sums[LARGEST]
        for k in range(width):
            found, before = np.float64(np.sqrt(part[k])), greatest[k]
            greatest[k] = max(before, found)
