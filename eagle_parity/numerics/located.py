"""Where the numbers of a block's states are, for compiled loops: addresses, and parts of files that are read together.

Shape letters: N states, F sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from eagle_parity.numerics.file_rows import FileRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from eagle_parity.numerics.file_rows import BlockState

CODES = {torch.bfloat16: 0, torch.float32: 1}
"""``kernels.BFLOAT16`` and ``kernels.FLOAT32``, without importing them."""


class Located(NamedTuple):
    """Where states are; see ``kernels.compare_block``."""

    addresses: npt.NDArray[np.uint64]
    steps: npt.NDArray[np.uint64]
    codes: npt.NDArray[np.int64]
    source_N: npt.NDArray[np.int64]
    sources_5F: npt.NDArray[np.int64]


_GAP_BYTES = 4096
"""Between states that are read together: what reading a page too much takes is less than another call."""


def locate(held: Sequence[BlockState]) -> Located:
    """The states in memory by their addresses, those in files by the sources that are read for them."""
    import numpy as np

    addresses, steps, source_N = np.zeros(len(held), np.uint64), np.zeros(len(held), np.uint64), [-1] * len(held)
    for place, state in enumerate(held):
        if not isinstance(state, FileRows):
            addresses[place], steps[place] = state.data_ptr(), state.stride(0) * state.element_size()
    sources: list[list[int]] = []
    in_files = [(state, place) for place, state in enumerate(held) if isinstance(state, FileRows)]
    for state, place in sorted(in_files, key=lambda entry: (entry[0].descriptor, entry[0].step, entry[0].start)):
        descriptor, start, step, width = sources[-1] if sources else (-1, 0, 0, 0)
        reach = state.start + state.row_bytes - start
        # Slots of one tensor lie side by side within its rows, and so does the last state.
        is_same_row = (descriptor, step) == (state.descriptor, state.step) and reach <= step
        if is_same_row and state.start <= start + width + _GAP_BYTES:
            sources[-1][3] = max(width, reach)
            source_N[place], addresses[place] = len(sources) - 1, state.start - start
            continue
        source_N[place] = len(sources)
        sources.append([state.descriptor, state.start, state.step, state.row_bytes])
    # In memory the rows of a source lie as they do in the file where little is between them, else side by side.
    pitched = [(*source, source[2] if 0 <= source[2] - source[3] <= _GAP_BYTES else source[3]) for source in sources]
    return Located(
        addresses,
        steps,
        np.array([CODES[state.dtype] for state in held], np.int64),
        np.array(source_N, np.int64),
        np.array(pitched, np.int64).reshape(-1, 5).T.copy(),
    )
