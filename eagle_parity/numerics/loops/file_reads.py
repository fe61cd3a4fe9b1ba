"""Rows of files read to an address."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from eagle_parity.numerics.loops.stored import inner, pointer

MOST_READ = 1 << 30
"""By one call: some systems refuse more than 2 GiB."""
READ_AGAIN = 10
"""Times that a call failed, as for a signal that came meanwhile, before whoever asked is told."""

_read_at: Any = types.ExternalFunction("pread", types.intp(types.intc, types.voidptr, types.intp, types.int64))
"""The C library's. Found by its name, wherever the code is linked."""


@inner
def _read_whole(descriptor, address, count, start):
    """Whether so many bytes of a file could be read to an address."""
    done, failures = np.int64(0), 0
    while done < count:
        part = min(count - done, np.int64(MOST_READ))
        got = _read_at(np.int32(descriptor), pointer(address + np.uint64(done)), part, start + done)
        if got == 0:
            return False
        if got < 0:
            failures += 1
            if failures > READ_AGAIN:
                return False
        else:
            done += got
    return True


@inner
def read_rows(source_5, address, first, count):
    """Whether so many rows could be read."""
    descriptor, start, step, width, pitch = source_5[0], source_5[1], source_5[2], source_5[3], source_5[4]
    if pitch == step:
        return _read_whole(descriptor, address, (count - 1) * step + width, start + first * step)
    for t in range(count):
        if not _read_whole(descriptor, address + np.uint64(t * pitch), width, start + (first + t) * step):
            return False
    return True
