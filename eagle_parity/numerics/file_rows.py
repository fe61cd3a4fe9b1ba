"""Rows of a state that stay in their file until they are computed with.

A compiled loop reads a few hundred kilobytes at a time into memory that it uses again and again: they are in the
processor's second-level cache when they are looked at, nothing is mapped, and a file that is cut short meanwhile is a
short read instead of a signal that kills the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows ``[T, D]``, each without gaps.

    Attributes:
        descriptor: of the open file.
        start: the byte of the first number.
        step: bytes from row to row.
        shape: T and D.
        dtype: as stored.
        read: gives some rows, from the first one to before the last, as a tensor in the stored dtype.
    """

    descriptor: int
    start: int
    step: int
    shape: tuple[int, int]
    dtype: torch.dtype
    read: Callable[[int, int], torch.Tensor]

    @property
    def row_bytes(self) -> int:
        """Of one row's numbers."""
        return self.shape[1] * self.dtype.itemsize


BlockState: TypeAlias = "torch.Tensor | FileRows"
"""Rows of a state, ``[T, D]``: in memory, or still in a file."""


def rows_between(state: BlockState, first: int, stop: int) -> torch.Tensor:
    """Some rows in memory; no more than there are."""
    if isinstance(state, torch.Tensor):
        return state[first:stop]
    return state.read(first, min(stop, state.shape[0]))


def rows_at(state: BlockState, rows: torch.Tensor) -> torch.Tensor:
    """Single rows (int64) in memory; of a file one by one: they are few."""
    if isinstance(state, torch.Tensor):
        return state[rows]
    read = [state.read(row, row + 1) for row in rows.tolist()]
    return torch.cat(read) if read else torch.empty((0, state.shape[1]), dtype=state.dtype)
