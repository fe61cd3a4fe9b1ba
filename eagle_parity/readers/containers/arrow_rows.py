"""Rows of an Arrow dataset as Hugging Face ``datasets`` saves it: ``data-*.arrow``, each a stream of record batches.

pyarrow decodes a batch: it is what ``datasets`` itself writes with, the format is kept by the same people, and its
decoder is fuzzed. It is large, so it is an extra, and nothing else needs it. It gets one whole batch at a time (a
thousand rows, by default) and never the file: mapping that, as pyarrow would, kills the process when somebody cuts the
file meanwhile, and reading from a stream it takes as much memory as a header claims before it looks at the file.

So the frames between batches are read here, after ``format/Message.fbs`` of Arrow's format version 5. That also shows
compression, which pyarrow would inflate to whatever size the file claims, and which ``datasets`` never writes.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eagle_parity.errors import InputError, MissingExtraError
from eagle_parity.readers.containers.stored_tensor import UnreadableFileError, read_bytes
from eagle_parity.readers.containers.tensor_table import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

EXTRA = "arrow"

MAX_HEADER_BYTES = 16 * 1024 * 1024
"""Of one message. A batch of three columns has some hundred; a schema some more, with the features in it as JSON."""

MAX_BATCH_BYTES = 1024 * 1024 * 1024
"""A thousand rows of 32,768 tokens, two integers each, are half of it."""

_FRAME = struct.Struct("<Ii")
_CONTINUATION = 0xFFFFFFFF

# Slots of the flatbuffer tables, and the numbers of the kinds of messages.
_KIND, _HEADER, _BODY_BYTES = 1, 2, 3
_BATCH_ROWS, _BATCH_COMPRESSION = 0, 3
_SCHEMA, _RECORD_BATCH = 1, 3

_DAMAGE = (OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError, struct.error)
"""What pyarrow raises on damaged input beside its own exceptions."""


@dataclass(frozen=True, slots=True)
class _Message:
    """One message of a stream by its frame.

    Attributes:
        start: its first byte.
        stop: the first byte behind its body.
        kind: of the numbers above.
        rows: of a batch.
    """

    start: int
    stop: int
    kind: int
    rows: int


@dataclass(slots=True)
class ArrowRows:
    """The rows of several files in their order, looked up by number.

    What is kept is one batch, and three numbers for each batch that was passed on the way to a row.

    Attributes:
        files: in the order of the rows.
        columns: those that are read: lists of integers, one a token.
    """

    files: Sequence[Path]
    columns: tuple[str, ...]
    _first_rows: array[int] = field(default_factory=lambda: array("q"))
    _starts: array[int] = field(default_factory=lambda: array("q"))
    _stops: array[int] = field(default_factory=lambda: array("q"))
    _first_batches: list[int] = field(default_factory=list)
    _schema_ends: list[int] = field(default_factory=list)
    _rows: int = 0
    _batch: tuple[int, Any] | None = None

    def row(self, number: int) -> dict[str, npt.NDArray[np.int64]] | None:
        """One row's columns as integers ``[T]`` each; None where there are fewer rows.

        Raises:
            MissingExtraError: pyarrow isn't installed.
            UnreadableFileError: a file is damaged, compressed, or of other columns.
        """
        pa = _pyarrow()
        try:
            while number >= self._rows and len(self._first_batches) < len(self.files):
                self._walk(self.files[len(self._first_batches)])
            if not 0 <= number < self._rows:
                return None
            place = bisect_right(self._first_rows, number) - 1
            if self._batch is None or self._batch[0] != place:
                self._batch = None  # the former one is let go before the next one takes memory
                self._batch = (place, self._load(pa, place))
            inside = number - self._first_rows[place]
            return {name: _integers(pa, self._batch[1], name, inside) for name in self.columns}
        except InputError as error:
            raise UnreadableFileError(f"{error.found} while it was read") from error
        except (pa.ArrowException, *_DAMAGE) as error:
            raise UnreadableFileError(f"damaged Arrow file ({shorten(str(error) or type(error).__name__)})") from error

    def _walk(self, path: Path) -> None:
        """Notes where the batches of the next file lie."""
        with path.open("rb", buffering=0) as file:
            schema, *batches = _messages(file.fileno())
        if schema.kind != _SCHEMA or any(batch.kind != _RECORD_BATCH for batch in batches):
            raise UnreadableFileError(f"{path.name} holds more than a schema and batches of rows")
        self._schema_ends.append(schema.stop)
        self._first_batches.append(len(self._starts))
        for batch in batches:
            self._first_rows.append(self._rows)
            self._starts.append(batch.start)
            self._stops.append(batch.stop)
            self._rows += batch.rows

    def _load(self, pa: Any, place: int) -> Any:
        """A batch whose buffers are as long as its lengths say."""
        number = bisect_right(self._first_batches, place) - 1
        start, stop = self._starts[place], self._stops[place]
        path = self.files[number]
        if stop - start > MAX_BATCH_BYTES:
            raise UnreadableFileError(f"{path.name}: a batch of {stop - start:,} bytes; at most {MAX_BATCH_BYTES:,}")
        with path.open("rb", buffering=0) as file:
            head = read_bytes(file.fileno(), 0, self._schema_ends[number], subject=path)
            data = read_bytes(file.fileno(), start, stop - start, subject=path)
        schema = pa.ipc.read_schema(pa.py_buffer(head))
        for name in self.columns:
            if schema.names.count(name) != 1 or not _is_integer_list(pa, schema.field(name).type):
                raise UnreadableFileError(f"{path.name} has no column {name} of integer lists")
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(data)), schema)
        batch.validate()
        return batch


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError as error:
        raise MissingExtraError("reading the rows of an Arrow dataset", EXTRA, "pyarrow") from error
    return pa


def _is_integer_list(pa: Any, kind: Any) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_boolean(kind.value_type))


def _integers(pa: Any, batch: Any, name: str, row: int) -> npt.NDArray[np.int64]:
    import numpy as np

    column = batch.column(name)
    # validate() looks at the first and the last offset alone; to look at all would read every row of the batch.
    start, stop = (offset.as_py() for offset in column.offsets.slice(row, 2))
    if not 0 <= start <= stop <= len(column.values):
        raise UnreadableFileError(f"a row has {name} from {start} to {stop} of {len(column.values)}")
    values = column.values.slice(start, stop - start)
    if column.slice(row, 1).null_count or values.null_count:
        raise UnreadableFileError(f"a row has no value where {name} should have one")
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    # A copy: a view would hold the whole batch.
    return np.array(values.to_numpy(zero_copy_only=False), dtype=np.int64)


def _messages(descriptor: int) -> Iterator[_Message]:
    """The messages of a stream, by their frames."""
    size = os.fstat(descriptor).st_size
    position = 0
    while position < size:
        mark, header_bytes = _FRAME.unpack(_part(descriptor, position, _FRAME.size, size))
        if mark != _CONTINUATION:
            raise UnreadableFileError("no stream of Arrow messages, as datasets writes them since Arrow 0.15")
        if header_bytes == 0:
            return
        header = bytes(_part(descriptor, position + _FRAME.size, header_bytes, size))
        root = _integer(header, "<I", 0)
        kind, body_bytes = _number(header, root, _KIND, "<B"), _number(header, root, _BODY_BYTES, "<q")
        stop = position + _FRAME.size + header_bytes + body_bytes
        if body_bytes < 0 or stop > size:
            raise UnreadableFileError(f"truncated: a batch ends at byte {stop:,}, the file has {size:,}")
        rows = _rows(header, root, body_bytes) if kind == _RECORD_BATCH else 0
        yield _Message(position, stop, kind, rows)
        position = stop


def _part(descriptor: int, start: int, count: int, size: int) -> bytearray:
    if not 0 <= count <= min(MAX_HEADER_BYTES, size - start):
        raise UnreadableFileError(f"truncated: a header of {count:,} bytes at {start:,}, the file has {size:,}")
    return read_bytes(descriptor, start, count, subject="the file")


def _rows(header: bytes, root: int, body_bytes: int) -> int:
    at = _slot(header, root, _HEADER)
    batch = at + _integer(header, "<I", at)
    if not at:
        raise UnreadableFileError("a batch without its header")
    if _slot(header, batch, _BATCH_COMPRESSION):
        raise UnreadableFileError("a compressed Arrow batch, which datasets never writes: save the dataset again")
    rows = _number(header, batch, _BATCH_ROWS, "<q")
    # A list column has an offset of four bytes a row at least.
    if not 0 <= rows <= body_bytes // 4:
        raise UnreadableFileError(f"an Arrow batch of {rows:,} rows in {body_bytes:,} bytes")
    return rows


def _slot(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer table lies; 0 where it has its default."""
    vtable = table - _integer(data, "<i", table)
    entry = 4 + 2 * number  # behind the sizes of the vtable and of the table
    if entry >= _integer(data, "<H", vtable):
        return 0
    offset = _integer(data, "<H", vtable + entry)
    return table + offset if offset else 0


def _number(data: bytes, table: int, number: int, code: str) -> int:
    at = _slot(data, table, number)
    return _integer(data, code, at) if at else 0


def _integer(data: bytes, code: str, at: int) -> int:
    if at < 0:  # struct would count from the end
        raise UnreadableFileError("an Arrow header that points before its beginning")
    return int(struct.unpack_from(code, data, at)[0])
