"""A tensor in a file: where its numbers lie, and how a block of them is read.

Shapes and offsets come from headers that strangers wrote. Whoever makes a ``StoredTensor`` has checked that it lies
inside its file; nothing here allocates more than the rows that were asked for.
"""

from __future__ import annotations

import importlib.util
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eagle_parity.errors import InputError, MissingExtraError
from eagle_parity.hidden_states import FilePlace
from eagle_parity.open_files import shorter
from eagle_parity.readers.containers.mapped_file import map_range

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from eagle_parity.open_files import Stamp

ITEM_BYTES: dict[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of one number, by the name that torch gives the dtype."""

STATE_DTYPES = frozenset({"bfloat16", "float16", "float32", "float64"})
"""What hidden states are stored in as they are."""

QUANTISED_DTYPES = frozenset({"float8_e4m3fn", "float8_e5m2"})
"""What hidden states are stored in with a scale beside them."""

MAX_READ_BYTES = 32 * 1024 * 1024
"""At once, where a slot lies between others: what is read is several times what is kept."""

INTEGER_DTYPES = frozenset({"uint8", "int8", "int16", "int32", "int64"})

MAX_RANK = 64
"""More dimensions than torch itself allows are no tensor."""


class UnreadableFileError(Exception):
    """A file is truncated, corrupt, unsafe or of an unknown layout; the message is one line."""


class Source(Protocol):
    """The bytes in which stored tensors lie."""

    def view(self, start: int, count: int) -> memoryview | None:
        """The same bytes as ``read`` gives, without a copy; None where there is no such way.

        Raises:
            InputError: the file is gone.
        """
        ...

    @property
    def size(self) -> int:
        """In bytes, when the header was read."""
        ...

    def read(self, start: int, count: int) -> bytearray:
        """So many bytes from there.

        Raises:
            InputError: the file is gone or has become shorter.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A file that is opened for each read, so that ten thousand open sequences hold no file descriptor.

    Attributes:
        path: the file.
        size: its bytes when the header was read.
        stamp: what it was then, if that is known.
    """

    path: Path
    size: int
    stamp: Stamp | None = None

    def read(self, start: int, count: int) -> bytearray:
        """See ``Source``."""
        try:
            with self.path.open("rb", buffering=0) as file:
                return read_bytes(file.fileno(), start, count, subject=self.path)
        except OSError as error:
            raise InputError(self.path, f"can't be read any more ({error.strerror or error})") from error

    def view(self, start: int, count: int) -> memoryview | None:
        """See ``Source``."""
        try:
            return map_range(self.path, start, count)
        except OSError as error:
            raise InputError(self.path, f"can't be read any more ({error.strerror or error})") from error


def read_bytes(descriptor: int, start: int, count: int, *, subject: object) -> bytearray:
    """Reads a byte range of an open file.

    Reading, and not mapping, which ``mapped_file`` does for large blocks of files at rest: to touch a map beyond the
    end of a file that somebody cuts meanwhile kills the process.

    Raises:
        InputError: the file is shorter.
        OSError: it can't be read.
    """
    # Looked at before memory is taken for it.
    if os.fstat(descriptor).st_size >= start + count:
        data = bytearray(count)
        view = memoryview(data)
        done = 0
        while done < count and (got := os.preadv(descriptor, [view[done:]], start + done)):
            done += got
        if done == count:
            return data
    raise shorter(subject)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A strided view of numbers in a file; taking a part of it reads nothing.

    Attributes:
        dtype: torch's name, a key of ``ITEM_BYTES``.
        shape: its dimensions.
        stride: in numbers, a dimension each.
        start: the byte of its first number.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    start: int

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def span(self) -> int:
        """From the first number to behind the last one, in numbers; 0 where it has none."""
        return span_of(self.shape, self.stride)

    def at(self, dimension: int, index: int) -> StoredTensor:
        """The part at one index of a dimension, without that dimension."""
        # Not replace(): ten times as long, and every slot of every file is one.
        return StoredTensor(
            self.dtype,
            self.shape[:dimension] + self.shape[dimension + 1 :],
            self.stride[:dimension] + self.stride[dimension + 1 :],
            self.start + index * self.stride[dimension] * ITEM_BYTES[self.dtype],
        )

    def between(self, dimension: int, first: int, stop: int) -> StoredTensor:
        """The part from ``first`` to before ``stop`` of a dimension."""
        return StoredTensor(
            self.dtype,
            (*self.shape[:dimension], stop - first, *self.shape[dimension + 1 :]),
            self.stride,
            self.start + first * self.stride[dimension] * ITEM_BYTES[self.dtype],
        )

    def read(self, source: Source) -> torch.Tensor:
        """Its numbers, without gaps, in the stored dtype.

        Raises:
            InputError: the file has changed since its header was read.
            MissingExtraError: there is no torch.
        """
        require_torch()
        import torch

        dtype: torch.dtype = getattr(torch, self.dtype)
        if self.numbers == 0:
            return torch.empty(self.shape, dtype=dtype)
        if self.stride == contiguous_stride(self.shape):
            return torch.frombuffer(self._bytes(source), dtype=dtype).view(self.shape)
        numbers = torch.empty(self.shape, dtype=dtype)
        step = self._rows_at_once()
        for first in range(0, self.shape[0], step):
            part = self.between(0, first, min(first + step, self.shape[0]))
            held = torch.frombuffer(part._bytes(source), dtype=dtype)  # noqa: SLF001  another of this class
            numbers[first : first + step] = held.as_strided(part.shape, part.stride)
        return numbers

    def view(self, source: Source) -> torch.Tensor:
        """Its numbers in the stored dtype, where they lie if that can be had, with their gaps; else as ``read``.

        Raises:
            InputError: the file has changed since its header was read.
            MissingExtraError: there is no torch.
        """
        require_torch()
        import torch

        item = ITEM_BYTES[self.dtype]
        held = source.view(self.start, self.span * item) if self.numbers and self.start % item == 0 else None
        if held is None:
            return self.read(source)
        flat = torch.frombuffer(held, dtype=getattr(torch, self.dtype))
        return flat.as_strided(self.shape, self.stride)

    def _bytes(self, source: Source) -> bytearray:
        return source.read(self.start, self.span * ITEM_BYTES[self.dtype])

    def _rows_at_once(self) -> int:
        """How many indices of the first dimension to read at once, so that the gaps don't fill the memory."""
        if self.stride[0] < max(self.stride):
            return self.shape[0]  # transposed: each row reaches over the whole tensor
        row_bytes = max(1, self.stride[0]) * ITEM_BYTES[self.dtype]
        return max(1, MAX_READ_BYTES // row_bytes)

    def __str__(self) -> str:
        shape = list(self.shape) if len(self.shape) <= 8 else f"{len(self.shape)} dimensions"  # noqa: PLR2004  a line
        return f"{shape} {self.dtype}"


def span_of(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """How many numbers a strided tensor reaches over; 0 where it has none."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The stride of a tensor without gaps, last dimension fastest."""
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.append(step)
        step *= size
    return tuple(reversed(stride))


@dataclass(frozen=True, slots=True)
class StoredRows:
    """One state ``[T, H]`` in a file: the ``Rows`` that every reader gives.

    Attributes:
        source: where the bytes are.
        stored: the two-dimensional tensor.
    """

    source: Source
    stored: StoredTensor

    @property
    def tokens(self) -> int:
        """T."""
        return self.stored.shape[0]

    @property
    def hidden_size(self) -> int:
        """H."""
        return self.stored.shape[1]

    @property
    def dtype(self) -> str:
        """As stored."""
        return self.stored.dtype

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Rows ``start`` to ``stop`` as ``[stop - start, H]`` in the stored dtype.

        Raises:
            IndexError: not 0 <= start <= stop <= T.
            InputError: the file has changed since it was opened.
        """
        if not 0 <= start <= stop <= self.tokens:
            raise IndexError(f"rows {start} to {stop} of {self.tokens}")
        return self.stored.between(0, start, stop).view(self.source)

    def place(self, start: int, stop: int) -> FilePlace | None:
        """See ``hidden_states.place_of``: in a plain file, where a row's numbers lie side by side."""
        if not 0 <= start <= stop <= self.tokens:
            raise IndexError(f"rows {start} to {stop} of {self.tokens}")
        if not isinstance(self.source, PlainFile) or self.stored.stride[1] != 1 or self.stored.stride[0] < 0:
            return None
        part = self.stored.between(0, start, stop)
        # What a header says of the distance between rows was looked at only where there are two.
        step = min(part.stride[0] * ITEM_BYTES[part.dtype], self.source.size)
        shape = part.shape[0], part.shape[1]
        return FilePlace(self.source.path, self.source.size, part.start, step, shape, part.dtype, self.source.stamp)


@dataclass(frozen=True, slots=True)
class ScaledRows(StoredRows):
    """One quantised state ``[T, H]`` with a scale a row; what is read is dequantised.

    ``dtype`` stays the stored one: it says how coarse the numbers are, whatever they are read as.

    Attributes:
        scales: ``[T]``.
    """

    scales: StoredTensor

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Rows ``start`` to ``stop`` as float32 ``[stop - start, H]``; raises as the stored rows do."""
        states = StoredRows.read(self, start, stop)
        scales = self.scales.between(0, start, stop).read(self.source)
        return states.float() * scales.float()[:, None]

    def place(self, start: int, stop: int) -> FilePlace | None:  # noqa: ARG002  the protocol's
        """None: what lies there isn't what is read."""
        return None


_INTEGER_CODES = {"uint8": "B", "bool": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
"""What the standard library calls the integer dtypes."""


def read_integers(source: Source, stored: StoredTensor) -> list[int]:
    """A vector of integers without gaps, read without torch.

    Raises:
        InputError: the file has changed since its header was read.
    """
    data = source.read(stored.start, stored.numbers * ITEM_BYTES[stored.dtype])
    return list(struct.unpack(f"<{stored.numbers}{_INTEGER_CODES[stored.dtype]}", data))


def require_torch() -> None:
    """Says which extra brings torch where it isn't installed.

    Raises:
        MissingExtraError: it isn't.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("reading hidden states", "tensors", "torch")
