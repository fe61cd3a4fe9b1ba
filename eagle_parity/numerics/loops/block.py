"""Everything about a block of rows, in one loop over them: several pieces of it, each in files or in memory."""

from __future__ import annotations

import numpy as np

from eagle_parity.numerics.loops.differences import row_distance
from eagle_parity.numerics.loops.dimension_sums import add_rows, begin_sums, end_sums
from eagle_parity.numerics.loops.file_reads import read_rows
from eagle_parity.numerics.loops.products import add_row_products
from eagle_parity.numerics.loops.shapes import BFLOAT16, HUGE, PITCH, PRODUCT_TILE, SUMS, TILE, TINY
from eagle_parity.numerics.loops.stored import (
    bring_in,
    has_number,
    inner,
    root,
    view_doubles,
    view_floats,
    view_halves,
    view_sums,
)


@inner
def _relative(squared, expected):
    if not (np.isfinite(squared) and np.isfinite(expected)):
        return np.nan
    if expected == 0 and squared == 0:
        return 0.0
    return root(squared / expected)


@inner
def compare_block(
    begin_row,
    ends_B,
    addresses_BN,
    steps_BN,
    codes_N,
    source_BN,
    sources_G5,
    rights_2K,
    lefts_4K,
    outs_9K,
    squared_by_N,
    products_2P,
    subtracted_2Q,
    limits_SN,
    sequence_T,
    sums_4Q,
    size,
    subtracted_below,
    at_once,
    others_at_once,
    ahead,
    in_words,
    kept_F,
    read_to_F,
    stay_F,
    read,
    tiles,
    tile_sums,
    wide,
    origins_2QD,
    totals_7QD,
    at_3N,
    squares_N,
    products_P,
    rows_2R,
    places_R,
    distances_R,
    squares_NT,
    errors_PT,
    standing_T,
    huge_T,
    added_Q,
):
    """All that is computed of the numbers of pieces: rows of one sequence each, or of several, one behind the other.

    A few rows at a time: squared norms and products of all states, which rows stand out by them, and then the
    differences and the sums of each dimension, while the rows are still in a cache.

    Args:
        begin_row: the row of T at which the first piece begins.
        ends_B: int64, those at which each piece ends, and the next one begins.
        addresses_BN: uint64, of each state's first row; of those in files where it begins in a source's row.
        steps_BN: uint64, bytes from row to row, in memory.
        codes_N: int64 ``[N]``, ``BFLOAT16`` or ``FLOAT32``.
        source_BN: int64, the source that a state is read from; -1 of those in memory.
        sources_G5: int64, F of each piece: of each source its file's descriptor, the byte of its first row, bytes from
            row to row, how many are read of each, and bytes from row to row where they are read to. A piece that is in
            memory as a whole reads none of its bytes.
        rights_2K: int64, the right states of each table of products.
        lefts_4K: int64, its left states; the fourth may be N, for none.
        outs_9K: int64, the pair that each product of it belongs to, P where to none: those of the first right state, of
            the second one, and that of both. Without a fourth left state the right ones' squares take its places, and
            with one there is no product of both.
        squared_by_N: int64, the table of which a state's squares are taken, -1 of none.
        products_2P: int64, the left states and the right ones: errors of the left against the right.
        subtracted_2Q: int64, the subjects and what is expected of each pair that is subtracted.
        limits_SN: float64, the norms beyond which a row of each sequence stands out; infinite or NaN where nothing
            does.
        sequence_T: int64, the sequence that a row is of.
        sums_4Q: uint64, addresses of each such pair's origins of x and y, sums and largest differences: see
            ``arithmetic.PairSums``, with the expected state as x. 0 where no sums are taken.
        size: D.
        subtracted_below: float64 ``[1]``, relative errors under it are measured by subtraction.
        at_once, others_at_once, ahead, in_words, kept_F, read_to_F, stay_F, read: see ``block_plan.Plan``.
        tiles, tile_sums, wide, origins_2QD, totals_7QD, at_3N, squares_N, products_P, rows_2R, places_R,
        distances_R: see ``block_plan.Scratch``.
        squares_NT: float64, is filled.
        errors_PT: float64 ``[P + Q + N, T]``, is filled: relative errors of all pairs, then norms. NaN where either
            row isn't finite.
        standing_T: bool, is filled.
        huge_T: bool, is filled: rows of which float32 may have lost something; they are in no sums.
        added_Q: int64, how many rows were added to the sums of each pair.

    Returns:
        The source, of all pieces', that could not be read, or -1.
    """
    pieces, states = addresses_BN.shape
    pairs, differences, sources = products_2P.shape[1], subtracted_2Q.shape[1], sources_G5.shape[0] // pieces
    at, row_at, row_step = at_3N[0], at_3N[1], at_3N[2]
    x_rows, y_rows = rows_2R[0], rows_2R[1]
    threshold = subtracted_below[0] * subtracted_below[0]
    tile = PRODUCT_TILE if in_words else TILE
    touched = np.uint8(0)
    read_at = np.uint64(read.ctypes.data)
    for q in range(differences):
        if sums_4Q[0, q] != 0:
            y, x = subtracted_2Q[0, q], subtracted_2Q[1, q]
            begin_sums(
                codes_N[x],
                codes_N[y],
                size,
                view_doubles(sums_4Q[0, q], 0, size),
                view_doubles(sums_4Q[1, q], 0, size),
                origins_2QD[2 * q : 2 * q + 2],
                totals_7QD[(SUMS + 1) * q : (SUMS + 1) * (q + 1)],
            )
    first_row = begin_row
    for b in range(pieces):
        end_row = ends_B[b]
        addresses_N, steps_N, source_N = addresses_BN[b], steps_BN[b], source_BN[b]
        sources_F5 = sources_G5[b * sources : (b + 1) * sources]
        for begin in range(first_row, end_row, at_once):
            stop = min(begin + at_once, end_row)
            for f in range(sources):
                kept_at = read_at + read_to_F[f] + np.uint64(begin) * stay_F[f]
                if kept_F[f] and not read_rows(sources_F5[f], kept_at, begin - first_row, stop - begin):
                    return b * sources + f
            for s in range(states):
                f = source_N[s]
                if f < 0:
                    row_at[s], row_step[s] = addresses_N[s] + np.uint64(begin - first_row) * steps_N[s], steps_N[s]
                else:
                    row_at[s] = addresses_N[s] + read_at + read_to_F[f] + np.uint64(begin) * stay_F[f]
                    row_step[s] = np.uint64(sources_F5[f, PITCH])
            part = begin
            for t in range(begin, stop):
                if (t - begin) % others_at_once == 0:
                    part = t
                    for f in range(sources):
                        count = min(others_at_once, stop - t)
                        if not kept_F[f] and not read_rows(sources_F5[f], read_at + read_to_F[f], t - first_row, count):
                            return b * sources + f
                if (t - begin) % ahead == 0:
                    # In the order in which they lie, and nothing else meanwhile: what follows jumps from state to
                    # state, a kilobyte of each, and would wait for memory three times as long.
                    for u in range(t, min(t + ahead, stop)):
                        for s in range(states):
                            if source_N[s] < 0:
                                item = 2 if codes_N[s] == BFLOAT16 else 4
                                touched ^= bring_in(row_at[s] + np.uint64(u - begin) * row_step[s], size * item)
                for s in range(states):
                    f = source_N[s]
                    first = begin if f < 0 or kept_F[f] else part
                    at[s] = row_at[s] + np.uint64(t - first) * row_step[s]
                squares_N[:] = 0
                products_P[:] = 0
                for low in range(0, size, tile):
                    width = min(tile, size - low)
                    add_row_products(
                        at,
                        codes_N,
                        low,
                        width,
                        in_words != 0,
                        rights_2K,
                        lefts_4K,
                        outs_9K,
                        squared_by_N,
                        tiles,
                        squares_N,
                        products_P,
                    )
                standing, huge = False, False
                for s in range(states):
                    # NaN comes from NaN alone; infinity may be float32's, whose squares overflow from 1.8e19 on.
                    huge = huge or squares_N[s] > HUGE
                    if squares_N[s] < TINY:
                        # The squares of small numbers are zero; so are those of zeros, of which there may be many rows.
                        if codes_N[s] == BFLOAT16:
                            huge = huge or has_number(view_halves(at[s], 0, size), size)
                        else:
                            huge = huge or has_number(view_floats(at[s], 0, size), size)
                    squares_NT[s, t] = squares_N[s]
                    norm = root(squares_N[s])
                    finite = np.isfinite(norm)
                    standing = standing or (finite and norm > limits_SN[sequence_T[t], s])
                    errors_PT[pairs + differences + s, t] = norm if finite else np.nan
                standing_T[t], huge_T[t] = standing, huge
                for p in range(pairs):
                    left, right = products_2P[0, p], products_2P[1, p]
                    expected = squares_N[right]
                    squared = squares_N[left] + expected - 2 * products_P[p]
                    if squared < threshold * expected or expected == 0 or squared < 0:
                        squared = row_distance(at[left], codes_N[left], at[right], codes_N[right], size, wide)
                    errors_PT[p, t] = _relative(squared, expected)
            for q in range(differences):
                y, x = subtracted_2Q[0, q], subtracted_2Q[1, q]
                wanted = sums_4Q[0, q] != 0
                count = 0
                for t in range(begin, stop):
                    x_row = row_at[x] + np.uint64(t - begin) * row_step[x]
                    y_row = row_at[y] + np.uint64(t - begin) * row_step[y]
                    is_finite = np.isfinite(squares_NT[x, t]) and np.isfinite(squares_NT[y, t])
                    if wanted and is_finite and not standing_T[t] and not huge_T[t]:
                        x_rows[count], y_rows[count], places_R[count] = x_row, y_row, t
                        count += 1
                    else:
                        squared = (
                            row_distance(x_row, codes_N[x], y_row, codes_N[y], size, wide) if is_finite else np.nan
                        )
                        errors_PT[pairs + q, t] = _relative(squared, squares_NT[x, t])
                if count:
                    distances_R[:] = 0
                    add_rows(
                        x_rows,
                        codes_N[x],
                        y_rows,
                        codes_N[y],
                        count,
                        size,
                        origins_2QD[2 * q : 2 * q + 2],
                        totals_7QD[(SUMS + 1) * q : (SUMS + 1) * (q + 1)],
                        tile_sums,
                        wide,
                        distances_R,
                    )
                    added_Q[q] += count
                    for i in range(count):
                        errors_PT[pairs + q, places_R[i]] = _relative(distances_R[i], squares_NT[x, places_R[i]])
        first_row = end_row
    for q in range(differences):
        if sums_4Q[0, q] != 0:
            y, x = subtracted_2Q[0, q], subtracted_2Q[1, q]
            end_sums(
                codes_N[x],
                codes_N[y],
                size,
                totals_7QD[(SUMS + 1) * q : (SUMS + 1) * (q + 1)],
                view_sums(sums_4Q[2, q], size),
                view_doubles(sums_4Q[3, q], 0, size),
            )
    places_R[0] = touched  # else the compiler would leave the touching out
    return -1
