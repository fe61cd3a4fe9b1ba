"""Rows of a state that stay in their file until they are computed with.

A compiled loop reads a megabyte or two at a time into memory that it uses again and again: they are in a cache
of the processor when they are looked at, nothing is mapped, and a file that is cut short meanwhile is a short read
instead of a signal that kills the process.

States that lie side by side in the rows of one tensor are read together, as one source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.hidden_states import FilePlace
    from eagle_parity.open_files import OpenFile


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows ``[T, D]`` in an open file.

    Attributes:
        place: where they lie in it.
        file: which one.
    """

    place: FilePlace
    file: OpenFile

    @property
    def shape(self) -> tuple[int, int]:
        """T and D."""
        return self.place.shape

    @property
    def dtype(self) -> torch.dtype:
        """As stored."""
        dtype: torch.dtype = getattr(torch, self.place.dtype)
        return dtype

    @property
    def row_bytes(self) -> int:
        """Of one row's numbers."""
        return self.shape[1] * self.dtype.itemsize


BlockState: TypeAlias = "torch.Tensor | FileRows"
"""Rows of a state, ``[T, D]``: in memory, or still in a file."""

_GAP_BYTES = 4096
"""Between states that are read together: reading a page too much takes less than another call."""


@dataclass(slots=True)
class FileSource:
    """A part of each row of a tensor in a file, which several states are in.

    Attributes:
        file: which one.
        start: the byte of the first row's part.
        step: bytes from row to row in the file; may be less than ``width``, or 0.
        width: bytes that are read of each row.
        offsets: of the states in it, by their places: the byte of a part at which each begins.
    """

    file: OpenFile
    start: int
    step: int
    width: int
    offsets: dict[int, int] = field(default_factory=dict)

    @property
    def pitch(self) -> int:
        """Bytes from row to row in memory: as in the file where little is between the parts, else side by side."""
        return self.step if 0 <= self.step - self.width <= _GAP_BYTES else self.width

    def read(self, first: int, stop: int) -> torch.Tensor:
        """Some rows: uint8, ``pitch`` from row to row.

        Raises:
            InputError: the file has become shorter, or can't be read.
        """
        rows = stop - first
        held = torch.empty((rows - 1) * self.pitch + self.width if rows > 0 else 0, dtype=torch.uint8)
        memory = held.numpy().data
        if self.pitch == self.step:
            self.file.read_into(memory, self.start + first * self.step)
        else:
            for row in range(rows):
                part = memory[row * self.pitch : row * self.pitch + self.width]
                self.file.read_into(part, self.start + (first + row) * self.step)
        return held


def sources_of(states: Sequence[BlockState]) -> list[FileSource]:
    """What has to be read of files for some states; none for those in memory."""
    in_files = [(state, number) for number, state in enumerate(states) if isinstance(state, FileRows)]
    in_files.sort(key=lambda one: (one[0].file, one[0].place.dtype, one[0].place.step, one[0].place.start))
    sources: list[FileSource] = []
    kind: object = None
    for state, number in in_files:
        place, item = state.place, state.dtype.itemsize
        is_kind, kind = kind == (state.file, place.dtype, place.step), (state.file, place.dtype, place.step)
        if is_kind:
            last = sources[-1]
            offset = place.start - last.start
            is_beside = offset <= last.width + _GAP_BYTES and offset + state.row_bytes <= place.step
            if is_beside and offset % item == 0:
                last.width = max(last.width, offset + state.row_bytes)
                last.offsets[number] = offset
                continue
        sources.append(FileSource(state.file, place.start, place.step, state.row_bytes, {number: 0}))
    return sources


def rows_between(states: Sequence[BlockState], first: int, stop: int) -> list[torch.Tensor]:
    """Some rows of states in memory, in their stored dtypes; no more than there are.

    Raises:
        InputError: a file has become shorter, or can't be read.
    """
    held = [state[first:stop] if isinstance(state, torch.Tensor) else torch.empty(0) for state in states]
    for source in sources_of(states):
        rows = max(0, min(stop, *(states[number].shape[0] for number in source.offsets)) - first)
        read = source.read(first, first + rows)
        for number, offset in source.offsets.items():
            held[number] = rows_at(read, offset, source.pitch, (rows, states[number].shape[1]), states[number].dtype)
    return held


def rows_at(held: torch.Tensor, offset: int, pitch: int, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Rows of a state among bytes that were read.

    Args:
        held: uint8.
        offset: of the first row's first byte.
        pitch: bytes from row to row.
        shape: rows and dimensions.
        dtype: of the numbers.
    """
    if not shape[0]:
        return torch.empty(shape, dtype=dtype)
    numbers = held[offset : offset + (len(held) - offset) // dtype.itemsize * dtype.itemsize].view(dtype)
    return numbers.as_strided(shape, (pitch // dtype.itemsize, 1))
