"""How the loops look at stored numbers: by address, widened as they are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from eagle_parity.numerics.loops.shapes import BFLOAT16, CACHE_LINE, SUMS

if TYPE_CHECKING:
    from collections.abc import Callable


def inner(function: Callable[..., Any]) -> Any:
    """Compiled together with whatever calls it; what nothing calls has an address alone."""
    return numba.njit(
        fastmath={"reassoc", "contract", "nsz"},
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(function)


@intrinsic
def pointer(_context: Any, address: Any) -> Any:
    """The address as a pointer, so that one compiled loop takes any number of states."""

    def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), generate


@intrinsic
def root(_context: Any, _number: Any) -> Any:
    """The square root of a float64, NaN of what is negative: an instruction, where numpy's calls the C library."""

    def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.call(builder.module.declare_intrinsic("llvm.sqrt", [arguments[0].type]), arguments)

    return types.float64(types.float64), generate


def widened(number):
    """A stored number as float32."""
    raise NotImplementedError  # compiled code has the overload alone


@overload(widened, inline="always")
def _widened_overload(number):
    if number == types.uint16:
        return lambda number: np.uint32(np.uint32(number) << np.uint32(16)).view(np.float32)
    return lambda number: number


@inner
def first_of(word):
    """The first of two bfloat16 numbers in a word of little-endian memory, as float32."""
    return np.uint32(word << np.uint32(16)).view(np.float32)


@inner
def second_of(word):
    """The second one."""
    return np.uint32(word & np.uint32(0xFFFF0000)).view(np.float32)


def both(stored):
    """What is stored in one place as two float32 numbers: a word's two, or a number and nothing."""
    raise NotImplementedError  # compiled code has the overload alone


@overload(both, inline="always")
def _both_overload(stored):
    if stored == types.uint32:
        return lambda stored: (first_of(stored), second_of(stored))
    return lambda stored: (stored, np.float32(0))


@inner
def view_halves(row, low, width):
    """Numbers ``low`` to ``low + width`` of a bfloat16 row: uint16."""
    return numba.carray(pointer(row + np.uint64(2 * low)), (width,), np.uint16)


@inner
def in_words(x_code, y_code, size):
    """Whether two states' numbers are taken two in a word."""
    return x_code == BFLOAT16 and y_code == BFLOAT16 and size % 2 == 0


@inner
def view_words(row, low, count):
    """Words ``low`` to ``low + count`` of a bfloat16 row, two numbers each: uint32.

    They may lie at odd multiples of two bytes: vectors are loaded from anywhere, on every processor that torch runs on.
    """
    return numba.carray(pointer(row + np.uint64(4 * low)), (count,), np.uint32)


@inner
def view_floats(row, low, width):
    """Numbers ``low`` to ``low + width`` of a float32 row."""
    return numba.carray(pointer(row + np.uint64(4 * low)), (width,), np.float32)


@inner
def view_doubles(row, low, width):
    """Numbers ``low`` to ``low + width`` of a float64 row."""
    return numba.carray(pointer(row + np.uint64(8 * low)), (width,), np.float64)


@inner
def view_sums(address, size):
    """The float64 sums of each dimension."""
    return numba.carray(pointer(address), (SUMS, size), np.float64)


@inner
def has_number(stored, width):
    """Whether any of them isn't zero, of either sign."""
    for k in range(width):  # noqa: SIM110  no generators in compiled code
        if widened(stored[k]) != 0:
            return True
    return False


@inner
def bring_in(row, count):
    """Touches so many bytes, a number a cache line."""
    numbers = numba.carray(pointer(row), (count,), np.uint8)
    total = np.uint8(0)
    for k in range(0, count, CACHE_LINE):
        total ^= numbers[k]
    return total
