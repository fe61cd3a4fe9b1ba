"""The processor that the loops are compiled for: what it is, and how many numbers it takes at once."""

from __future__ import annotations

import os
from typing import NamedTuple

import llvmlite.binding as llvm

_USERS_CHOICE = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")
"""numba's settings: who gives one of them has the loops compiled for just that."""
_HAS_WIDE, _TAKES_WIDE = "avx512f", "-prefer-256-bit"
"""By itself LLVM takes half a vector on many processors that have AVX-512, since the first of them slow down for whole
ones. On one of those (Skylake at 2 GHz) the loops take a tenth to a sixth less with whole ones nevertheless."""
LEAST_FLOATS, _WIDE_FLOATS = 8, 16


class Processor(NamedTuple):
    """A processor, as LLVM takes it.

    Attributes:
        name: of its kind.
        features: what it can do, and how that is used.
        floats: float32 numbers of a vector.
    """

    name: str
    features: str
    floats: int


def this_processor() -> Processor:
    """This machine's."""
    features = llvm.get_host_cpu_features()
    if features.get(_HAS_WIDE) and not any(name in os.environ for name in _USERS_CHOICE):
        return Processor(llvm.get_host_cpu_name(), f"{features.flatten()},{_TAKES_WIDE}", _WIDE_FLOATS)
    return Processor(llvm.get_host_cpu_name(), features.flatten(), LEAST_FLOATS)
