"""Where the numbers of a block's states are, as compiled loops take it: addresses, and what they read of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from eagle_parity.numerics.file_rows import sources_of
from eagle_parity.numerics.loops.shapes import BFLOAT16, FLOAT32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from eagle_parity.numerics.file_rows import BlockState, FileSource

CODES = {torch.bfloat16: BFLOAT16, torch.float32: FLOAT32}

_NO_SOURCE = (0, 0, 0, 0, 0)
"""Of a piece in memory: none of its bytes are read."""


class Layout(NamedTuple):
    """What pieces have in common that are gone through together.

    Attributes:
        codes: of the N states, their dtypes'.
        sources: of each state, the source it is in; -1 of those in memory.
        pitches: of the F sources, bytes from row to row in memory.
    """

    codes: tuple[int, ...]
    sources: tuple[int, ...]
    pitches: tuple[int, ...]


class LocatedPiece(NamedTuple):
    """Rows of N states.

    Attributes:
        rows: how many.
        layout: what it is like.
        addresses: of first rows in memory; of states in a source, where they begin in its rows.
        steps: bytes from row to row; 0 of states in a source.
        sources: what is read of files.
    """

    rows: int
    layout: Layout
    addresses: list[int]
    steps: list[int]
    sources: list[FileSource]


class Located(NamedTuple):
    """Pieces of one layout, or in memory; the arrays are those of ``loops.block.compare_block``.

    Attributes:
        begin_row: the row of the block at which the first one begins.
        ends_B: int64, those at which each ends.
        addresses_BN, steps_BN: uint64.
        codes_N: int64.
        source_BN: int64.
        sources_G5: int64, F of each piece: descriptors, starts, steps, widths and pitches.
    """

    begin_row: int
    ends_B: npt.NDArray[np.int64]
    addresses_BN: npt.NDArray[np.uint64]
    steps_BN: npt.NDArray[np.uint64]
    codes_N: npt.NDArray[np.int64]
    source_BN: npt.NDArray[np.int64]
    sources_G5: npt.NDArray[np.int64]


class Group(NamedTuple):
    """Pieces that follow each other and are gone through by one call.

    Attributes:
        pieces: they.
        layout: of those that aren't in memory.
        in_memory: whether a piece is.
    """

    pieces: list[LocatedPiece]
    layout: Layout
    in_memory: bool

    def arrays(self, begin_row: int) -> Located:
        """As a loop takes it, from a row of a block on."""
        import numpy as np

        count = len(self.layout.pitches)
        table: list[tuple[int, ...]] = []
        for piece in self.pieces:
            table += [(each.file.descriptor, each.start, each.step, each.width, each.pitch) for each in piece.sources]
            table += [_NO_SOURCE] * (count - len(piece.sources))
        return Located(
            begin_row,
            begin_row + np.cumsum([piece.rows for piece in self.pieces]),
            np.array([piece.addresses for piece in self.pieces], np.uint64),
            np.array([piece.steps for piece in self.pieces], np.uint64),
            np.array(self.layout.codes, np.int64),
            np.array([piece.layout.sources for piece in self.pieces], np.int64),
            np.array(table, np.int64).reshape(-1, len(_NO_SOURCE)),
        )


def locate(states: Sequence[BlockState]) -> LocatedPiece:
    """Where states are; those in memory must stay there, and files open, as long as this is used."""
    count = len(states)
    addresses, steps, places = [0] * count, [0] * count, [-1] * count
    for number, state in enumerate(states):
        if isinstance(state, torch.Tensor):
            addresses[number], steps[number] = state.data_ptr(), state.stride(0) * state.element_size()
    sources = sources_of(states)
    for place, source in enumerate(sources):
        for number, offset in source.offsets.items():
            places[number], addresses[number] = place, offset
    layout = Layout(
        tuple(CODES[state.dtype] for state in states), tuple(places), tuple(source.pitch for source in sources)
    )
    return LocatedPiece(states[0].shape[0], layout, addresses, steps, sources)


def groups_of(pieces: Sequence[LocatedPiece]) -> Iterator[Group]:
    """Pieces in their order, as many together as can be."""
    group: Group | None = None
    for piece in pieces:
        in_memory = not piece.sources
        if group is not None and group.layout.codes == piece.layout.codes:
            if in_memory or group.layout == piece.layout:
                group.pieces.append(piece)
                group = group._replace(in_memory=group.in_memory or in_memory)
                continue
            if not group.layout.pitches:
                group.pieces.append(piece)
                group = group._replace(layout=piece.layout)
                continue
        if group is not None:
            yield group
        group = Group([piece], piece.layout, in_memory)
    if group is not None:
        yield group
