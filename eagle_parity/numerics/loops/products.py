"""Squared norms of states, and inner products of some of them: a tile of one row at a time."""

from __future__ import annotations

import numpy as np

from eagle_parity.numerics.loops.shapes import BFLOAT16
from eagle_parity.numerics.loops.stored import inner, view_floats, view_halves, widened


@inner
def _stage_and_square(stored, tile, width):
    total = np.float32(0)
    for k in range(width):
        number = widened(stored[k])
        tile[k] = number
        total += number * number
    return total


@inner
def _square(stored, width):
    total = np.float32(0)
    for k in range(width):
        number = widened(stored[k])
        total += number * number
    return total


@inner
def _table(right, other, first, second, third, fourth, width):
    """Products of two with four."""
    a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    e, f, g, h = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for k in range(width):
        p, q = widened(right[k]), widened(other[k])
        one, two, three, four = first[k], second[k], third[k], fourth[k]
        a += p * one
        b += p * two
        c += p * three
        d += p * four
        e += q * one
        f += q * two
        g += q * three
        h += q * four
    return a, b, c, d, e, f, g, h


@inner
def _table_of_three(right, other, first, second, third, width):
    """Products of two with three, and with themselves: where a fourth would be nothing."""
    a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    e, f, g, h = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for k in range(width):
        p, q = widened(right[k]), widened(other[k])
        one, two, three = first[k], second[k], third[k]
        a += p * one
        b += p * two
        c += p * three
        d += p * p
        e += q * one
        f += q * two
        g += q * three
        h += q * q
    return a, b, c, d, e, f, g, h


@inner
def add_row_products(
    addresses,
    codes,
    staged,
    rights_2K,
    lefts_4K,
    outs_8K,
    squared_by_N,
    low,
    width,
    tiles,
    squares_N,
    products_P,
):
    """Adds a tile of one row to the squares of all states and to the products of the pairs."""
    states = len(addresses)
    for s in range(states):
        if squared_by_N[s] >= 0:
            continue
        halves, floats = view_halves(addresses[s], low, width), view_floats(addresses[s], low, width)
        if staged[s]:
            if codes[s] == BFLOAT16:
                squares_N[s] += _stage_and_square(halves, tiles[s], width)
            else:
                squares_N[s] += _stage_and_square(floats, tiles[s], width)
        elif codes[s] == BFLOAT16:
            squares_N[s] += _square(halves, width)
        else:
            squares_N[s] += _square(floats, width)
    for k in range(rights_2K.shape[1]):
        right, other = rights_2K[0, k], rights_2K[1, k]
        first, second = tiles[lefts_4K[0, k]], tiles[lefts_4K[1, k]]
        third, fourth = tiles[lefts_4K[2, k]], tiles[lefts_4K[3, k]]
        if staged[right] or codes[right] != BFLOAT16:
            p = tiles[right, :width] if staged[right] else view_floats(addresses[right], low, width)
            q = tiles[other, :width] if staged[right] else view_floats(addresses[other], low, width)
            if lefts_4K[3, k] == states:
                found = _table_of_three(p, q, first, second, third, width)
            else:
                found = _table(p, q, first, second, third, fourth, width)
        else:
            x, y = view_halves(addresses[right], low, width), view_halves(addresses[other], low, width)
            if lefts_4K[3, k] == states:
                found = _table_of_three(x, y, first, second, third, width)
            else:
                found = _table(x, y, first, second, third, fourth, width)
        if squared_by_N[other] == k and other != right:
            squares_N[other] += found[7]
        if squared_by_N[right] == k:
            squares_N[right] += found[3]
        # What isn't asked for goes to a place of its own, behind the last pair; a square of three's table does.
        products_P[outs_8K[0, k]] += found[0]
        products_P[outs_8K[1, k]] += found[1]
        products_P[outs_8K[2, k]] += found[2]
        products_P[outs_8K[3, k]] += found[3]
        products_P[outs_8K[4, k]] += found[4]
        products_P[outs_8K[5, k]] += found[5]
        products_P[outs_8K[6, k]] += found[6]
        products_P[outs_8K[7, k]] += found[7]
