"""Which arithmetic a comparison takes, and where."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

import torch

from eagle_parity.errors import UsageError
from eagle_parity.numerics.whole_arrays import WholeArrays
from eagle_parity.quoting import one_line

if TYPE_CHECKING:
    from eagle_parity.numerics.arithmetic import Arithmetic

_OFF_ENV = "NUMBA_DISABLE_JIT"
COMPILED_FROM_BYTES = 32 * 1024 * 1024
"""Of states, on both sides. Whole arrays take half a second for so much, and a first run would compile for thirty."""


def choose_arithmetic(state_bytes: int, device: str = "cpu") -> Arithmetic:
    """The faster way for so much data.

    Args:
        state_bytes: of all states that will be read.
        device: where to compute; on another one than the CPU it is torch.
    """
    if device != "cpu" or state_bytes < COMPILED_FROM_BYTES or not _has_compiler():
        return WholeArrays(device)
    from eagle_parity.numerics.compiled import Compiled

    return Compiled()


def _has_compiler() -> bool:
    """Whether numba is there and nobody has switched it off, whether or not what it compiled is kept somewhere."""
    return importlib.util.find_spec("numba") is not None and os.environ.get(_OFF_ENV, "0") in {"", "0"}


def check_device(device: str) -> None:
    """Whether anything can be computed there.

    Args:
        device: as torch names it: ``cpu``, ``cuda``, ``cuda:1``.

    Raises:
        UsageError: torch knows no such device, or there is none.
    """
    try:
        # float64, which some devices don't have, and a number brought back, which ``meta`` doesn't.
        float(torch.ones(1, dtype=torch.float64, device=device).sum().cpu())
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise UsageError(f"--device {device}: nothing can be computed there ({one_line(error)})") from error
