"""What is called from Python: each loop by one address, at which its arguments are told.

A row of that table is an array's address and its shape, or a number. numba's own way of calling takes a dozen numbers
an array, and the code that unpacks them; with this one a loop is machine code that anything can call.
"""

from __future__ import annotations

import numba
import numpy as np

from eagle_parity.numerics.loops import block, differences, histograms
from eagle_parity.numerics.loops.shapes import FIELDS
from eagle_parity.numerics.loops.stored import inner, pointer


@inner
def _table(arguments, count):
    return numba.carray(pointer(arguments), (count, FIELDS), np.int64)


@inner
def _number(told):
    return told[0]


@inner
def _vector(told, dtype):
    return numba.carray(pointer(np.uint64(told[0])), (told[1],), dtype)


@inner
def _matrix(told, dtype):
    return numba.carray(pointer(np.uint64(told[0])), (told[1], told[2]), dtype)


@inner
def _compare_block(arguments):
    told = _table(arguments, 42)
    return block.compare_block(
        _number(told[0]),
        _vector(told[1], np.int64),
        _matrix(told[2], np.uint64),
        _matrix(told[3], np.uint64),
        _vector(told[4], np.int64),
        _matrix(told[5], np.int64),
        _matrix(told[6], np.int64),
        _matrix(told[7], np.int64),
        _matrix(told[8], np.int64),
        _matrix(told[9], np.int64),
        _vector(told[10], np.int64),
        _matrix(told[11], np.int64),
        _matrix(told[12], np.int64),
        _matrix(told[13], np.float64),
        _vector(told[14], np.int64),
        _matrix(told[15], np.uint64),
        _number(told[16]),
        _vector(told[17], np.float64),
        _number(told[18]),
        _number(told[19]),
        _number(told[20]),
        _number(told[21]),
        _vector(told[22], np.bool_),
        _vector(told[23], np.uint64),
        _vector(told[24], np.uint64),
        _vector(told[25], np.uint8),
        _matrix(told[26], np.float32),
        _matrix(told[27], np.float32),
        _matrix(told[28], np.float32),
        _matrix(told[29], np.float32),
        _matrix(told[30], np.float64),
        _matrix(told[31], np.uint64),
        _vector(told[32], np.float64),
        _vector(told[33], np.float64),
        _matrix(told[34], np.uint64),
        _vector(told[35], np.int64),
        _vector(told[36], np.float64),
        _matrix(told[37], np.float64),
        _matrix(told[38], np.float64),
        _vector(told[39], np.bool_),
        _vector(told[40], np.bool_),
        _vector(told[41], np.int64),
    )


@inner
def _row_distances(arguments):
    told = _table(arguments, 10)
    differences.row_distances(
        _vector(told[0], np.uint64),
        _vector(told[1], np.uint64),
        _vector(told[2], np.int64),
        _vector(told[3], np.int64),
        _vector(told[4], np.int64),
        _vector(told[5], np.int64),
        _vector(told[6], np.int64),
        _number(told[7]),
        _matrix(told[8], np.float32),
        _matrix(told[9], np.float64),
    )
    return 0


@inner
def _count_errors(arguments):
    told = _table(arguments, 6)
    histograms.count_errors(
        _matrix(told[0], np.float64),
        _vector(told[1], np.int64),
        _vector(told[2], np.bool_),
        _vector(told[3], np.float64),
        _vector(told[4], np.int32),
        _vector(told[5], np.uint64),
    )
    return 0


ENTRIES = {
    "compare_block": (_compare_block, block.compare_block),
    "row_distances": (_row_distances, differences.row_distances),
    "count_errors": (_count_errors, histograms.count_errors),
}
"""By the names under which they are called: what takes the table, and the loop whose parameters are its rows."""
