"""Compiled loops over rows as they are stored: what a comparison does to every number, in one pass over each block.

Why these are compiled: a block of bfloat16 rows has to be widened, and every number enters a dozen sums. Written with
whole-array operations each of them is a pass over memory; here a few rows of all states stay in the second-level cache
while all of it happens, and a tile of 512 dimensions in the first-level one. What was tried: docs/numbers.md.

States are told by address, bytes from row to row and dtype, so that one compiled loop takes any number of them, and a
slot which lies between others is read where it lies. Those that are still in files are read some rows at a time into
memory that stays in a cache. bfloat16 comes as uint16, whose bits are the upper half of a float32.

Sums within a tile are float32 (a few hundred terms at most before they are added to float64 ones). NaN and infinities
go through them as they should: of LLVM's fast-math flags only those are on that reorder and contract.

They are all in this module: numba keeps what it has compiled for as long as the file of the outermost function stays as
it is, and doesn't look at the files of those that are called.

Shape letters: T rows, D dimensions, N states, P pairs of states by products, Q pairs by subtraction, K tables, F files.
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
RIGHTS, LEFTS = 2, 4
"""Of a table of products: eight running sums and the two widened numbers are what 16 vector registers hold."""

ROWS_AT_ONCE = 32
"""Rows that are done with before the next ones are begun: of eight states of 1,536 dimensions they are 0.8 MB. They are
also the rows whose sums a dimension holds in float32. With 256, rows that repeat themselves were off by 1e-6, and
standard deviations of bfloat16 numbers by 3e-6."""

MOST_READ = 1 << 30
"""By one call: some systems refuse more than 2 GiB."""
READ_AGAIN = 10
"""Times that a call failed, as for a signal that came meanwhile, before whoever asked is told."""
READ_BYTES = 768 * 1024
"""Of files, at once: what is computed next finds them in a cache."""
CACHE_LINE = 64
AHEAD_BYTES = 1024 * 1024
"""Of rows in memory that are brought in at once. One row of a reference's 62 boundaries of 7,168 dimensions has 0.9 MB:
of 32 of them the first had left the caches again before it was looked at."""

HUGE, TINY = 1e30, 1e-24
"""Squared norms beyond these leave float32's range somewhere on the way; such rows are added up in float64."""

MANTISSA_SHIFT = 46
"""What is left of a float64 above it: the exponent and six bits, that is steps of 1 to 2 %, about a bin."""

BFLOAT16, FLOAT32 = 0, 1
"""What ``codes`` says of a state."""

_OPTIONS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "nsz"},
    "nogil": True,
    "error_model": "numpy",
}


def _compiled(function: Callable[..., Any], **more: Any) -> Any:
    """Kept in numba's cache; where there is no place for one, such as a read-only disk, compiled by each process."""
    try:
        return numba.njit(cache=True, **_OPTIONS, **more)(function)
    except RuntimeError:  # no locator available
        return numba.njit(**_OPTIONS, **more)(function)


def _inner(function: Callable[..., Any]) -> Any:
    """For what only compiled code calls: half a second less each, the first time."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


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


@_inner
def _halves(row, low, width):
    return numba.carray(_pointer(row + np.uint64(2 * low)), (width,), np.uint16)


@_inner
def _floats(row, low, width):
    return numba.carray(_pointer(row + np.uint64(4 * low)), (width,), np.float32)


@_inner
def _doubles(row, low, width):
    return numba.carray(_pointer(row + np.uint64(8 * low)), (width,), np.float64)


# Products -----------------------------------------------------------------------------------------------------------


@_inner
def _stage_and_square(stored, tile, width):
    total = np.float32(0)
    for k in range(width):
        number = _widened(stored[k])
        tile[k] = number
        total += number * number
    return total


@_inner
def _square(stored, width):
    total = np.float32(0)
    for k in range(width):
        number = _widened(stored[k])
        total += number * number
    return total


@_inner
def _table(right, other, first, second, third, fourth, width):
    """Products of two with four."""
    a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    e, f, g, h = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for k in range(width):
        p, q = _widened(right[k]), _widened(other[k])
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


@_inner
def _add_row_products(addresses, codes, staged, rights_2K, lefts_4K, outs_8K, low, width, tiles, squares_N, products_P):
    """Adds a tile of one row to the squares of all states and to the products of the pairs."""
    for s in range(len(addresses)):
        halves, floats = _halves(addresses[s], low, width), _floats(addresses[s], low, width)
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
            p = tiles[right, :width] if staged[right] else _floats(addresses[right], low, width)
            q = tiles[other, :width] if staged[right] else _floats(addresses[other], low, width)
            found = _table(p, q, first, second, third, fourth, width)
        else:
            x, y = _halves(addresses[right], low, width), _halves(addresses[other], low, width)
            found = _table(x, y, first, second, third, fourth, width)
        # What isn't asked for goes to a place of its own, behind the last pair.
        products_P[outs_8K[0, k]] += found[0]
        products_P[outs_8K[1, k]] += found[1]
        products_P[outs_8K[2, k]] += found[2]
        products_P[outs_8K[3, k]] += found[3]
        products_P[outs_8K[4, k]] += found[4]
        products_P[outs_8K[5, k]] += found[5]
        products_P[outs_8K[6, k]] += found[6]
        products_P[outs_8K[7, k]] += found[7]


@_inner
def _has_number(stored, width):
    """Whether any of them isn't zero, of either sign."""
    for k in range(width):  # noqa: SIM110  no generators in compiled code
        if _widened(stored[k]) != 0:
            return True
    return False


# Differences --------------------------------------------------------------------------------------------------------


@_inner
def _distance(x, y, width):
    total = np.float32(0)
    for k in range(width):
        difference = _widened(x[k]) - _widened(y[k])
        total += difference * difference
    return total


@_inner
def _widen(halves, tile, width):
    for k in range(width):
        tile[k] = _widened(halves[k])


@_inner
def _as_floats(row, code, low, width, tile):
    """Numbers of a row as float32: in the tile where they are stored otherwise."""
    if code == BFLOAT16:
        _widen(_halves(row, low, width), tile, width)
        return tile[:width]
    return _floats(row, low, width)


@_inner
def _row_distance(x, x_code, y, y_code, size, tiles):
    """The squared distance of two rows; infinite where float32 overflows."""
    total = 0.0
    for low in range(0, size, TILE):
        width = min(TILE, size - low)
        if x_code == BFLOAT16 and y_code == BFLOAT16:
            total += _distance(_halves(x, low, width), _halves(y, low, width), width)
        else:
            a, b = _as_floats(x, x_code, low, width, tiles[0]), _as_floats(y, y_code, low, width, tiles[1])
            total += _distance(a, b, width)
    return total


@_compiled
def row_distances(addresses, steps, codes, x, y, x_rows, y_rows, size, out_QT):
    """Squared distances of rows, float64 ``[Q, T]``.

    Args:
        addresses, steps, codes, size: see ``compare_block``.
        x, y: int64 ``[Q]``, the states.
        x_rows, y_rows: int64 ``[T]``, the rows of one and of the other; the same for all.
        out_QT: is filled; infinite where float32 overflows.
    """
    tiles = np.empty((2, TILE + PADDING), np.float32)
    for q in range(len(x)):
        a, b = x[q], y[q]
        for t in range(len(x_rows)):
            one = addresses[a] + np.uint64(x_rows[t]) * steps[a]
            two = addresses[b] + np.uint64(y_rows[t]) * steps[b]
            out_QT[q, t] = _row_distance(one, codes[a], two, codes[b], size, tiles)


# Sums of each dimension ---------------------------------------------------------------------------------------------


@_inner
def _add_four(x0, x1, x2, x3, y0, y1, y2, y3, x_origin, y_origin, scratch, width):
    """Adds four rows to a tile's sums, and gives the squared distance of each row from its other one.

    Conditional expressions and not ``max``: that one asks for NaN as well, and the loop takes twice as long.
    """
    sx, sy, xx, yy = scratch[0], scratch[1], scratch[2], scratch[3]
    xy, dd, top = scratch[4], scratch[5], scratch[6]
    first, second, third, fourth = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for k in range(width):
        a, b, c, d = _widened(x0[k]), _widened(x1[k]), _widened(x2[k]), _widened(x3[k])
        e, f, g, h = _widened(y0[k]), _widened(y1[k]), _widened(y2[k]), _widened(y3[k])
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


@_inner
def _add_one(x, y, x_origin, y_origin, scratch, width):
    sx, sy, xx, yy = scratch[0], scratch[1], scratch[2], scratch[3]
    xy, dd, top = scratch[4], scratch[5], scratch[6]
    total = np.float32(0)
    for k in range(width):
        a, e = _widened(x[k]), _widened(y[k])
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


@_inner
def _add_halves(x_rows, y_rows, t, together, low, width, scratch, out_T):
    x, y = _halves(x_rows[t], low, width), _halves(y_rows[t], low, width)
    if not together:
        out_T[t] += _add_one(x, y, scratch[7], scratch[8], scratch, width)
        return
    b, c, d = x_rows[t + 1], x_rows[t + 2], x_rows[t + 3]
    f, g, h = y_rows[t + 1], y_rows[t + 2], y_rows[t + 3]
    b, c, d = _halves(b, low, width), _halves(c, low, width), _halves(d, low, width)
    f, g, h = _halves(f, low, width), _halves(g, low, width), _halves(h, low, width)
    found = _add_four(x, b, c, d, y, f, g, h, scratch[7], scratch[8], scratch, width)
    out_T[t] += found[0]
    out_T[t + 1] += found[1]
    out_T[t + 2] += found[2]
    out_T[t + 3] += found[3]


@_inner
def _add_floats(x_rows, x_code, y_rows, y_code, t, low, width, scratch, tiles, out_T):
    x = _as_floats(x_rows[t], x_code, low, width, tiles[0])
    y = _as_floats(y_rows[t], y_code, low, width, tiles[1])
    out_T[t] += _add_one(x, y, scratch[7], scratch[8], scratch, width)


@_inner
def _add_rows(x_rows, x_code, y_rows, y_code, count, size, origins_2D, sums_6D, largest_D, scratch, tiles, out_T):
    """Adds so many rows to the sums of each dimension, and to ``out_T`` their squared distances."""
    for low in range(0, size, TILE):
        width = min(TILE, size - low)
        scratch[:7] = 0
        for side in range(2):
            origin = scratch[7 + side]
            for k in range(width):
                origin[k] = np.float32(origins_2D[side][low + k])
        t = 0
        while t < count:
            if x_code == BFLOAT16 and y_code == BFLOAT16:
                together = t + GROUP <= count
                _add_halves(x_rows, y_rows, t, together, low, width, scratch, out_T)
                t += GROUP if together else 1
            else:
                # One by one: half as fast, for what is twice as large anyway.
                _add_floats(x_rows, x_code, y_rows, y_code, t, low, width, scratch, tiles, out_T)
                t += 1
        for s in range(6):
            sums, part = sums_6D[s, low : low + width], scratch[s]
            for k in range(width):
                sums[k] += part[k]
        greatest, part = largest_D[low : low + width], scratch[6]
        for k in range(width):
            found, before = np.float64(np.sqrt(part[k])), greatest[k]
            greatest[k] = max(before, found)


_read_at: Any = types.ExternalFunction("pread", types.intp(types.intc, types.voidptr, types.intp, types.int64))
"""The C library's. Compiled code finds it by its name, so it can be kept in numba's cache."""


@_inner
def _read_whole(descriptor, address, count, start):
    """Whether so many bytes of a file could be read to an address."""
    done, failures = np.int64(0), 0
    while done < count:
        part = min(count - done, np.int64(MOST_READ))
        got = _read_at(np.int32(descriptor), _pointer(address + np.uint64(done)), part, start + done)
        if got == 0:
            return False
        if got < 0:
            failures += 1
            if failures > READ_AGAIN:
                return False
        else:
            done += got
    return True


@_inner
def _read_rows(source_5, address, first, count):
    """Whether so many rows could be read."""
    descriptor, start, step, width, pitch = source_5[0], source_5[1], source_5[2], source_5[3], source_5[4]
    if pitch == step:
        return _read_whole(descriptor, address, (count - 1) * step + width, start + first * step)
    for t in range(count):
        if not _read_whole(descriptor, address + np.uint64(t * pitch), width, start + (first + t) * step):
            return False
    return True


@_inner
def _bring_in(row, count):
    """Touches so many bytes, a number a cache line."""
    numbers = numba.carray(_pointer(row), (count,), np.uint8)
    total = np.uint8(0)
    for k in range(0, count, CACHE_LINE):
        total ^= numbers[k]
    return total


# Blocks -------------------------------------------------------------------------------------------------------------


@_inner
def _relative(squared, expected):
    if not (np.isfinite(squared) and np.isfinite(expected)):
        return np.nan
    if expected == 0 and squared == 0:
        return 0.0
    return np.sqrt(squared / expected)


@_compiled
def compare_block(
    addresses,
    steps,
    codes,
    source_N,
    sources_5F,
    staged,
    rights_2K,
    lefts_4K,
    outs_8K,
    products_2P,
    subtracted_2Q,
    limits_N,
    sums_4Q,
    rows,
    size,
    subtracted_below,
    squares_NT,
    errors_PT,
    standing_T,
    huge_T,
    added_Q,
):
    """All that is computed of a block's numbers.

    A few rows at a time: squared norms and products of all states, which rows stand out by them, and then the
    differences and the sums of each dimension, while the rows are still in a cache.

    Args:
        addresses: uint64 ``[N]``, of each state's first row; of those in files where it begins in a source's row.
        steps: uint64 ``[N]``, bytes from row to row, in memory.
        codes: int64 ``[N]``, ``BFLOAT16`` or ``FLOAT32``.
        source_N: int64, the source that a state is read from; -1 of those in memory.
        sources_5F: int64: of each source its file's descriptor, the byte of its first row, bytes from row to row, how
            many are read of each, and bytes from row to row where they are read to.
        staged: bool ``[N]``, which states are widened once for all their products: the left ones at least.
        rights_2K: int64, the right states of each table of products, both of one dtype and both staged or not.
        lefts_4K: int64, its left states; N where there is none.
        outs_8K: int64, the pair that each product of it belongs to, P where to none.
        products_2P: int64, the left states and the right ones: errors of the left against the right.
        subtracted_2Q: int64, the subjects and what is expected of each pair that is subtracted.
        limits_N: float64, the norms beyond which a row stands out; infinite or NaN where nothing does.
        sums_4Q: uint64, addresses of each such pair's origins of x and y, sums and largest differences: see
            ``arithmetic.PairSums``, with the expected state as x. 0 where no sums are taken.
        rows: T.
        size: D.
        subtracted_below: relative errors under it are measured by subtraction.
        squares_NT: float64, is filled.
        errors_PT: float64 ``[P + Q + N, T]``, is filled: relative errors of all pairs, then norms. NaN where either
            row isn't finite.
        standing_T: bool, is filled.
        huge_T: bool, is filled: rows of which float32 may have lost something; they are in no sums.
        added_Q: int64, how many rows were added to the sums of each pair.

    Returns:
        A number without meaning, and the source that could not be read, or -1.
    """
    states, pairs, differences = len(addresses), products_2P.shape[1], subtracted_2Q.shape[1]
    tiles = np.zeros((states + 1, TILE + PADDING), np.float32)
    scratch, wide = np.zeros((9, TILE + PADDING), np.float32), np.empty((2, TILE + PADDING), np.float32)
    at = np.empty(states, np.uint64)
    squares_N, products_P = np.empty(states), np.empty(pairs + 1)
    x_rows, y_rows = np.empty(ROWS_AT_ONCE, np.uint64), np.empty(ROWS_AT_ONCE, np.uint64)
    places, distances = np.empty(ROWS_AT_ONCE, np.int64), np.empty(ROWS_AT_ONCE)
    threshold = subtracted_below * subtracted_below
    touched = np.uint8(0)
    row_bytes = 0
    for s in range(states):
        if source_N[s] < 0:
            row_bytes += size * (2 if codes[s] == BFLOAT16 else 4)
    ahead = min(max(1, AHEAD_BYTES // max(1, row_bytes)), ROWS_AT_ONCE)
    sources, read_bytes = sources_5F.shape[1], 0
    for f in range(sources):
        read_bytes += sources_5F[4, f]
    at_once = ROWS_AT_ONCE
    if sources:
        at_once = min(max(GROUP, READ_BYTES // read_bytes // GROUP * GROUP), ROWS_AT_ONCE, max(1, rows))
    read_to, read = np.empty(sources, np.int64), np.empty(at_once * read_bytes + sources * CACHE_LINE, np.uint8)
    row_at, row_step = np.empty(states, np.uint64), np.empty(states, np.uint64)
    place = 0
    for f in range(sources):
        read_to[f] = place
        place += (at_once * sources_5F[4, f] + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
    for begin in range(0, rows, at_once):
        stop = min(begin + at_once, rows)
        for f in range(sources):
            if not _read_rows(sources_5F[:, f], np.uint64(read.ctypes.data + read_to[f]), begin, stop - begin):
                return touched, f
        for s in range(states):
            f = source_N[s]
            if f < 0:
                row_at[s], row_step[s] = addresses[s] + np.uint64(begin) * steps[s], steps[s]
            else:
                row_at[s] = addresses[s] + np.uint64(read.ctypes.data + read_to[f])
                row_step[s] = np.uint64(sources_5F[4, f])
        for t in range(begin, stop):
            if (t - begin) % ahead == 0:
                # In the order in which they lie, and nothing else meanwhile: what follows jumps from state to state, a
                # kilobyte of each, and would wait for memory three times as long.
                for u in range(t, min(t + ahead, stop)):
                    for s in range(states):
                        if source_N[s] < 0:
                            item = 2 if codes[s] == BFLOAT16 else 4
                            touched ^= _bring_in(row_at[s] + np.uint64(u - begin) * row_step[s], size * item)
            for s in range(states):
                at[s] = row_at[s] + np.uint64(t - begin) * row_step[s]
            squares_N[:] = 0
            products_P[:] = 0
            for low in range(0, size, TILE):
                width = min(TILE, size - low)
                _add_row_products(
                    at, codes, staged, rights_2K, lefts_4K, outs_8K, low, width, tiles, squares_N, products_P
                )
            standing, huge = False, False
            for s in range(states):
                # NaN comes from NaN alone; infinity may be float32's, whose squares overflow from 1.8e19 on.
                huge = huge or squares_N[s] > HUGE
                if squares_N[s] < TINY:
                    # The squares of small numbers are zero; so are those of zeros, of which there may be many rows.
                    if codes[s] == BFLOAT16:
                        huge = huge or _has_number(_halves(at[s], 0, size), size)
                    else:
                        huge = huge or _has_number(_floats(at[s], 0, size), size)
                squares_NT[s, t] = squares_N[s]
                norm = np.sqrt(squares_N[s])
                finite = np.isfinite(norm)
                standing = standing or (finite and norm > limits_N[s])
                errors_PT[pairs + differences + s, t] = norm if finite else np.nan
            standing_T[t], huge_T[t] = standing, huge
            for p in range(pairs):
                left, right = products_2P[0, p], products_2P[1, p]
                expected = squares_N[right]
                squared = squares_N[left] + expected - 2 * products_P[p]
                if squared < threshold * expected or expected == 0 or squared < 0:
                    squared = _row_distance(at[left], codes[left], at[right], codes[right], size, wide)
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
                    x_rows[count], y_rows[count], places[count] = x_row, y_row, t
                    count += 1
                else:
                    squared = _row_distance(x_row, codes[x], y_row, codes[y], size, wide) if is_finite else np.nan
                    errors_PT[pairs + q, t] = _relative(squared, squares_NT[x, t])
            if count:
                distances[:] = 0
                _add_rows(
                    x_rows,
                    codes[x],
                    y_rows,
                    codes[y],
                    count,
                    size,
                    (_doubles(sums_4Q[0, q], 0, size), _doubles(sums_4Q[1, q], 0, size)),
                    _doubles(sums_4Q[2, q], 0, 6 * size).reshape((6, size)),
                    _doubles(sums_4Q[3, q], 0, size),
                    scratch,
                    wide,
                    distances,
                )
                added_Q[q] += count
                for i in range(count):
                    errors_PT[pairs + q, places[i]] = _relative(distances[i], squares_NT[x, places[i]])
    return touched, -1


# Histograms ---------------------------------------------------------------------------------------------------------


@_compiled
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
        counts_B = numba.carray(_pointer(counts_R[r]), (last + 1,), np.int64)
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
