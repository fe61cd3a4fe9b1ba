"""Squared norms of states, and inner products of some of them: a tile of one row at a time.

Products are computed two states with three or four others at a time, so that each number is loaded once for several
products. bfloat16 numbers are taken two in a word, as they lie: a shift and a mask widen sixteen of them, and which
one of a sum's terms comes first is all the same. Places within a row are unsigned: a signed one that doesn't begin at
zero may be negative for all the compiler knows, and costs three instructions for each state.
"""

from __future__ import annotations

import numpy as np

from eagle_parity.numerics.loops.differences import widen
from eagle_parity.numerics.loops.shapes import BFLOAT16, LEFTS, PRODUCTS
from eagle_parity.numerics.loops.stored import both, inner, view_floats, view_halves, view_words
from eagle_parity.numerics.processor import this_processor

_ADDED = 16 * this_processor().floats
"""Places whose products are added up in float32: each number of a vector adds up those of 16."""


@inner
def _square(stored, count):
    whole = 0.0
    for low in range(0, count, _ADDED):
        total = np.float32(0)
        for k in range(np.uint64(low), np.uint64(min(low + _ADDED, count))):
            one, two = both(stored[k])
            total += one * one + two * two
        whole += total
    return whole


@inner
def _table_of_four(right, other, first, second, third, fourth, count):
    """Products of two with four."""
    aa, bb, cc, dd, ee, ff, gg, hh = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for low in range(0, count, _ADDED):
        a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        e, f, g, h = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for k in range(np.uint64(low), np.uint64(min(low + _ADDED, count))):
            p, r = both(right[k])
            q, s = both(other[k])
            x, y = both(first[k])
            a += p * x + r * y
            e += q * x + s * y
            x, y = both(second[k])
            b += p * x + r * y
            f += q * x + s * y
            x, y = both(third[k])
            c += p * x + r * y
            g += q * x + s * y
            x, y = both(fourth[k])
            d += p * x + r * y
            h += q * x + s * y
        aa, bb, cc, dd = aa + a, bb + b, cc + c, dd + d
        ee, ff, gg, hh = ee + e, ff + f, gg + g, hh + h
    return aa, bb, cc, dd, ee, ff, gg, hh, 0.0


@inner
def _table_of_three(right, other, first, second, third, count):
    """Products of two with three, with themselves and with each other: nine sums, as many as registers hold."""
    aa, bb, cc, dd, ee, ff, gg, hh, ii = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for low in range(0, count, _ADDED):
        a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        e, f, g, h = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        i = np.float32(0)
        for k in range(np.uint64(low), np.uint64(min(low + _ADDED, count))):
            p, r = both(right[k])
            q, s = both(other[k])
            d += p * p + r * r
            h += q * q + s * s
            i += p * q + r * s
            x, y = both(first[k])
            a += p * x + r * y
            e += q * x + s * y
            x, y = both(second[k])
            b += p * x + r * y
            f += q * x + s * y
            x, y = both(third[k])
            c += p * x + r * y
            g += q * x + s * y
        aa, bb, cc, dd, ee = aa + a, bb + b, cc + c, dd + d, ee + e
        ff, gg, hh, ii = ff + f, gg + g, hh + h, ii + i
    return aa, bb, cc, dd, ee, ff, gg, hh, ii


@inner
def _table_of_three_alone(right, other, first, second, third, count):
    """Products of two with three: a fifth less work than with those that nobody asked for."""
    aa, bb, cc, ee, ff, gg = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for low in range(0, count, _ADDED):
        a, b, c = np.float32(0), np.float32(0), np.float32(0)
        e, f, g = np.float32(0), np.float32(0), np.float32(0)
        for k in range(np.uint64(low), np.uint64(min(low + _ADDED, count))):
            p, r = both(right[k])
            q, s = both(other[k])
            x, y = both(first[k])
            a += p * x + r * y
            e += q * x + s * y
            x, y = both(second[k])
            b += p * x + r * y
            f += q * x + s * y
            x, y = both(third[k])
            c += p * x + r * y
            g += q * x + s * y
        aa, bb, cc = aa + a, bb + b, cc + c
        ee, ff, gg = ee + e, ff + f, gg + g
    return aa, bb, cc, 0.0, ee, ff, gg, 0.0, 0.0


@inner
def _words_table(at, right, other, lefts, low, count, of_three, alone):
    p, q = view_words(at[right], low, count), view_words(at[other], low, count)
    x, y = view_words(at[lefts[0]], low, count), view_words(at[lefts[1]], low, count)
    z = view_words(at[lefts[2]], low, count)
    if alone:
        return _table_of_three_alone(p, q, x, y, z, count)
    if of_three:
        return _table_of_three(p, q, x, y, z, count)
    return _table_of_four(p, q, x, y, z, view_words(at[lefts[3]], low, count), count)


@inner
def _floats(at, codes, state, low, width, tiles):
    """Numbers of a state as float32: in the tile to which they were widened, or where they lie."""
    return tiles[state, :width] if codes[state] == BFLOAT16 else view_floats(at[state], low, width)


@inner
def _floats_table(at, codes, right, other, lefts, low, width, tiles, of_three, alone):
    p, q = _floats(at, codes, right, low, width, tiles), _floats(at, codes, other, low, width, tiles)
    x, y = _floats(at, codes, lefts[0], low, width, tiles), _floats(at, codes, lefts[1], low, width, tiles)
    z = _floats(at, codes, lefts[2], low, width, tiles)
    if alone:
        return _table_of_three_alone(p, q, x, y, z, width)
    if of_three:
        return _table_of_three(p, q, x, y, z, width)
    return _table_of_four(p, q, x, y, z, _floats(at, codes, lefts[3], low, width, tiles), width)


@inner
def add_row_products(
    at, codes, low, width, in_words, rights_2K, lefts_4K, outs_9K, squared_by_N, tiles, squares_N, products_P
):
    """Adds a tile of one row to the squared norms of all states, and to the products of pairs of them.

    Args:
        at: uint64 ``[N]``, the address of each state's row.
        low: the tile's first dimension.
        width: how many it has.
        in_words: whether all states are bfloat16 of an even number of dimensions.
        codes, rights_2K, lefts_4K, outs_9K, squared_by_N, tiles, squares_N, products_P: see ``block.compare_block``.
    """
    states = len(at)
    word, words = low // 2, width // 2
    nowhere = len(products_P) - 1
    for s in range(states):
        if not in_words and codes[s] == BFLOAT16:
            widen(view_halves(at[s], low, width), tiles[s], width)
        if squared_by_N[s] < 0:
            if in_words:
                squares_N[s] += _square(view_words(at[s], word, words), words)
            else:
                squares_N[s] += _square(_floats(at, codes, s, low, width, tiles), width)
    for k in range(rights_2K.shape[1]):
        right, other, lefts = rights_2K[0, k], rights_2K[1, k], lefts_4K[:, k]
        of_three = lefts[LEFTS - 1] == states
        asked = squared_by_N[right] == k or squared_by_N[other] == k or outs_9K[PRODUCTS - 1, k] < nowhere
        alone = of_three and not asked
        if in_words:
            found = _words_table(at, right, other, lefts, word, words, of_three, alone)
        else:
            found = _floats_table(at, codes, right, other, lefts, low, width, tiles, of_three, alone)
        if squared_by_N[right] == k:
            squares_N[right] += found[LEFTS - 1]
        if squared_by_N[other] == k and other != right:
            squares_N[other] += found[2 * LEFTS - 1]
        # What isn't asked for goes to a place of its own, behind the last pair; squares do.
        products_P[outs_9K[0, k]] += found[0]
        products_P[outs_9K[1, k]] += found[1]
        products_P[outs_9K[2, k]] += found[2]
        products_P[outs_9K[3, k]] += found[3]
        products_P[outs_9K[4, k]] += found[4]
        products_P[outs_9K[5, k]] += found[5]
        products_P[outs_9K[6, k]] += found[6]
        products_P[outs_9K[7, k]] += found[7]
        products_P[outs_9K[8, k]] += found[8]
