"""Where the numbers of a block's states are, as compiled loops take it: addresses, and what they read of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from eagle_parity.numerics.file_rows import sources_of
from eagle_parity.numerics.loops.shapes import BFLOAT16, FLOAT32

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from eagle_parity.numerics.file_rows import BlockState, FileSource

CODES = {torch.bfloat16: BFLOAT16, torch.float32: FLOAT32}


class Located(NamedTuple):
    """N states, which are in memory or in F sources; the arrays are those of ``loops.block.compare_block``.

    Attributes:
        addresses_N: uint64, of the first rows in memory; of states in a source, where they begin in its rows.
        steps_N: uint64, bytes from row to row; 0 of states in a source.
        codes_N: int64, the dtypes' codes.
        source_N: int64, the source of each state; -1 of those in memory.
        sources_5F: int64: descriptors, starts, steps, widths and pitches.
        sources: the same as objects.
    """

    addresses_N: npt.NDArray[np.uint64]
    steps_N: npt.NDArray[np.uint64]
    codes_N: npt.NDArray[np.int64]
    source_N: npt.NDArray[np.int64]
    sources_5F: npt.NDArray[np.int64]
    sources: list[FileSource]

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """What a loop takes of it, by its names."""
        return {name: array for name, array in self._asdict().items() if name != "sources"}


def locate(states: Sequence[BlockState]) -> Located:
    """Where states are; those in memory must stay there, and files open, as long as this is used."""
    import numpy as np

    count = len(states)
    addresses_N, steps_N, source_N = np.zeros(count, np.uint64), np.zeros(count, np.uint64), np.full(count, -1)
    for number, state in enumerate(states):
        if isinstance(state, torch.Tensor):
            addresses_N[number], steps_N[number] = state.data_ptr(), state.stride(0) * state.element_size()
    sources = sources_of(states)
    for place, source in enumerate(sources):
        for number, offset in source.offsets.items():
            source_N[number], addresses_N[number] = place, offset
    table = [(each.file.descriptor, each.start, each.step, each.width, each.pitch) for each in sources]
    return Located(
        addresses_N,
        steps_N,
        np.array([CODES[state.dtype] for state in states], np.int64),
        source_N,
        np.array(table, np.int64).reshape(-1, 5).T.copy(),
        sources,
    )
