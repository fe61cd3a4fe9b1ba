"""How a compiled loop goes through a block: how many rows at once, and where in memory it works.

Shape letters: D dimensions, N states, P pairs by products, Q by subtraction, F sources, R rows at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from eagle_parity.numerics.loops.shapes import (
    AHEAD_BYTES,
    BFLOAT16,
    CACHE_LINE,
    GROUP,
    KEPT_BYTES,
    PADDING,
    READ_BYTES,
    ROWS_AT_ONCE,
    SUMS,
    TILE,
    TILE_SUMS,
)
from eagle_parity.numerics.stacked_rows import Room

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from eagle_parity.numerics.located import Group


class Plan(NamedTuple):
    """How many rows at once, and where what is read of files goes.

    Attributes:
        at_once: R, rows whose differences and sums are done with before the next ones are begun.
        others_at_once: of sources without a state that is subtracted, how many rows are read at once.
        ahead: rows in memory that are brought in at once.
        in_words: whether all numbers are bfloat16, an even number a row: they are then taken two at a time.
        kept_F: bool, the sources with a state that is subtracted: R rows are read at once.
        read_to_F: uint64, the byte of ``read`` at which each source's rows begin.
        stay_F: uint64, by how many bytes that moves on, a row of the block; 0 where room is used again and again.
        read: uint8, room for them.
    """

    at_once: int
    others_at_once: int
    ahead: int
    in_words: bool
    kept_F: npt.NDArray[np.bool_]
    read_to_F: npt.NDArray[np.uint64]
    stay_F: npt.NDArray[np.uint64]
    read: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, group: Group, rows: int, size: int, subtracted: Collection[int], room: Room | None = None) -> Plan:
        """For pieces of so many dimensions.

        Args:
            group: the pieces.
            rows: of the longest one.
            size: D.
            subtracted: the states that are subtracted from each other, by their places.
            room: where what is read stays.
        """
        # Plain numbers: a dozen operations on arrays of eight take longer.
        codes, sources, pitches = group.layout
        items = [2 if code == BFLOAT16 else 4 for code in codes]
        in_memory = sum(
            size * item for item, source in zip(items, sources, strict=True) if source < 0 or group.in_memory
        )
        kept = [room is not None] * len(pitches)
        for place in subtracted:
            if sources[place] >= 0:
                kept[sources[place]] = True
        kept_bytes = sum(pitch for pitch, is_kept in zip(pitches, kept, strict=True) if is_kept)
        at_once = _rows_within(KEPT_BYTES, kept_bytes, rows)
        others_at_once = _rows_within(READ_BYTES, sum(pitches) - kept_bytes, at_once)
        read_to, end = [], 0
        for pitch, is_kept in zip(pitches, kept, strict=True):
            read_to.append(end)
            end += -(-(at_once if is_kept else others_at_once) * pitch // CACHE_LINE) * CACHE_LINE
        stay = pitches
        if room is None:
            stay = (0,) * len(pitches)
            room = Room(torch.empty(end, dtype=torch.uint8), tuple(read_to))
        return cls(
            at_once,
            others_at_once,
            min(max(1, AHEAD_BYTES // max(1, in_memory)), ROWS_AT_ONCE),
            size % 2 == 0 and all(code == BFLOAT16 for code in codes),
            np.array(kept, np.bool_),
            np.array(room.starts, np.uint64),
            np.array(stay, np.uint64),
            room.memory.numpy(),
        )


def _rows_within(room: int, row_bytes: int, most: int) -> int:
    """How many rows of so many bytes are read at once."""
    fitting = room // max(1, row_bytes) // GROUP * GROUP
    return min(max(GROUP, fitting), ROWS_AT_ONCE, max(1, most))


class Scratch(NamedTuple):
    """Memory in which a loop works; what is in it means nothing to others.

    Attributes:
        tiles: float32, a widened tile of each state, where numbers aren't taken in words.
        tile_sums: float32, a tile of the sums of each dimension, of the largest differences and of the origins: of the
            first of each two dimensions, and of the second ones.
        wide: float32, a tile of either of two states.
        origins_2QD: float32, around what the sums of pairs are taken.
        totals_7QD: float64, their sums over the block.
        at_3N: uint64, addresses of the row and of the first of the rows at once, and bytes from row to row.
        squares_N, products_P: float64, of the row; one product more than pairs, for those that nobody asked for.
        rows_2R: uint64, addresses of rows of two states.
        places_R: int64, which ones they are.
        distances_R: float64, theirs.
    """

    tiles: npt.NDArray[np.float32]
    tile_sums: npt.NDArray[np.float32]
    wide: npt.NDArray[np.float32]
    origins_2QD: npt.NDArray[np.float32]
    totals_7QD: npt.NDArray[np.float64]
    at_3N: npt.NDArray[np.uint64]
    squares_N: npt.NDArray[np.float64]
    products_P: npt.NDArray[np.float64]
    rows_2R: npt.NDArray[np.uint64]
    places_R: npt.NDArray[np.int64]
    distances_R: npt.NDArray[np.float64]

    @classmethod
    def of(cls, states: int, pairs: int, subtracted: int, size: int, *, in_words: bool) -> Scratch:
        """For so many states, pairs of them by products, and pairs by subtraction."""
        return cls(
            np.empty((0 if in_words else states, TILE + PADDING), np.float32),
            np.zeros((2 * TILE_SUMS, TILE + PADDING), np.float32),
            wide(),
            np.empty((2 * subtracted, size), np.float32),
            np.empty(((SUMS + 1) * subtracted, size)),
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
