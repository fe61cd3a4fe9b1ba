"""Rows of a state that stay in their file until they are computed with.

A compiled loop reads a megabyte or two at a time into memory that it uses again and again: they are in a cache
of the processor when they are looked at, nothing is mapped, and a file that is cut short meanwhile is a short read
instead of a signal that kills the process.

States that lie side by side in the rows of one tensor are read together, as one source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
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
    """What has to be read of files for some states, files in their order; none for those in memory."""
    files: dict[int, int] = {}
    in_files: list[tuple[tuple[int, str, int], int, int, FileRows]] = []
    for number, state in enumerate(states):
        if isinstance(state, FileRows):
            place = state.place
            order = files.setdefault(state.file.descriptor, len(files))
            in_files.append(((order, place.dtype, place.step), place.start, number, state))
    in_files.sort(key=itemgetter(0, 1))
    sources: list[FileSource] = []
    kind: object = None
    for its_kind, start, number, state in in_files:
        row_bytes, item, step = state.row_bytes, state.dtype.itemsize, state.place.step
        is_kind, kind = kind == its_kind, its_kind
        if is_kind:
            last = sources[-1]
            offset = start - last.start
            is_beside = offset <= last.width + _GAP_BYTES and offset + row_bytes <= step
            if is_beside and offset % item == 0:
                last.width = max(last.width, offset + row_bytes)
                last.offsets[number] = offset
                continue
        sources.append(FileSource(state.file, start, step, row_bytes, {number: 0}))
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
