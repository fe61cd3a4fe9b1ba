"""How a compiled loop goes through a block: how many rows at once, and where in memory it works.

Shape letters: N states, P pairs by products, F sources, R rows at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eagle_parity.numerics.loops.shapes import (
    AHEAD_BYTES,
    BFLOAT16,
    CACHE_LINE,
    GROUP,
    PADDING,
    READ_BYTES,
    ROWS_AT_ONCE,
    TILE,
    TILE_SUMS,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from eagle_parity.numerics.located import Located


class Plan(NamedTuple):
    """How many rows at once, and where what is read of files goes.

    Attributes:
        at_once: R, rows that are done with before the next ones are begun.
        ahead: rows in memory that are brought in at once.
        read_to_F: int64, the byte of ``read`` at which each source's rows begin.
        read: uint8, room for them.
    """

    at_once: int
    ahead: int
    read_to_F: npt.NDArray[np.int64]
    read: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, block: Located, rows: int, size: int) -> Plan:
        """For so many rows of so many dimensions."""
        in_memory = block.source_N < 0
        row_bytes = int((size * np.where(block.codes_N == BFLOAT16, 2, 4))[in_memory].sum())
        ahead = min(max(1, AHEAD_BYTES // max(1, row_bytes)), ROWS_AT_ONCE)
        pitches_F = block.sources_5F[4]
        at_once = ROWS_AT_ONCE
        if len(pitches_F):
            at_once = READ_BYTES // max(1, int(pitches_F.sum())) // GROUP * GROUP
            at_once = min(max(GROUP, at_once), ROWS_AT_ONCE, max(1, rows))
        sizes_F = -(-at_once * pitches_F // CACHE_LINE) * CACHE_LINE
        read_to_F = np.cumsum(sizes_F) - sizes_F
        return cls(at_once, ahead, read_to_F, np.empty(int(sizes_F.sum()), np.uint8))


class Scratch(NamedTuple):
    """Memory in which a loop works; what is in it means nothing to others.

    Attributes:
        tiles: float32, a widened tile of each state, and one of zeros.
        tile_sums: float32, a tile of the sums of each dimension, of the largest differences and of the origins.
        wide: float32, a tile of either of two states.
        at_3N: uint64, addresses of the row and of the first of the rows at once, and bytes from row to row.
        squares_N, products_P: float64, of the row; one product more than pairs, for those that nobody asked for.
        rows_2R: uint64, addresses of rows of two states.
        places_R: int64, which ones they are.
        distances_R: float64, theirs.
    """

    tiles: npt.NDArray[np.float32]
    tile_sums: npt.NDArray[np.float32]
    wide: npt.NDArray[np.float32]
    at_3N: npt.NDArray[np.uint64]
    squares_N: npt.NDArray[np.float64]
    products_P: npt.NDArray[np.float64]
    rows_2R: npt.NDArray[np.uint64]
    places_R: npt.NDArray[np.int64]
    distances_R: npt.NDArray[np.float64]

    @classmethod
    def of(cls, states: int, pairs: int) -> Scratch:
        """For so many states, and pairs of them by products."""
        width = TILE + PADDING
        return cls(
            np.zeros((states + 1, width), np.float32),
            np.zeros((TILE_SUMS, width), np.float32),
            wide(),
            np.zeros((3, states), np.uint64),
            np.zeros(states),
            np.zeros(pairs + 1),
            np.zeros((2, ROWS_AT_ONCE), np.uint64),
            np.zeros(ROWS_AT_ONCE, np.int64),
            np.zeros(ROWS_AT_ONCE),
        )


def wide() -> npt.NDArray[np.float32]:
    """A tile of either of two states: float32."""
    return np.zeros((2, TILE + PADDING), np.float32)
