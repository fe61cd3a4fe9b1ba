"""Files of ``torch.save``: a zip of a pickle and raw storages, or the older sequence of pickles.

The pickle is described, never unpickled (see ``pickle_table``), and the storages are read where they lie. Layouts as
torch 2.13 writes them (``torch/serialization.py``: ``_save``, ``_legacy_save``); torch stores without compression.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

from eagle_parity.readers.containers.pickle_table import (
    MAX_PICKLE_BYTES,
    WAY_OUT,
    Storage,
    describe_pickle,
)
from eagle_parity.readers.containers.stored_tensor import ITEM_BYTES, Source, StoredTensor, UnreadableFileError
from eagle_parity.readers.containers.tensor_table import TensorTable, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from eagle_parity.readers.containers.tensor_table import Constant

ZIP_MAGIC = b"PK\x03\x04"
PICKLE_MAGIC = b"\x80"

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""The first of the pickles in a file older than torch 1.6."""

MAX_RECORDS = 8192
"""Dicts in a list: an engine's iteration has at most some thousand requests."""

MAX_DIRECTORY_BYTES = 4 * 1024 * 1024
"""A shard's zip has ten members of some hundred bytes; Python's zipfile holds the whole directory in memory."""

_ZIP_DAMAGE = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    EOFError,
    OSError,
    struct.error,
    OverflowError,
    zlib.error,
)
"""What Python's zipfile raises on damaged input, encrypted members and unknown methods among it."""

_LOCAL_HEADER_BYTES = 30
_END_BYTES = 22
_ZIP64_LOCATOR_BYTES = 20
_ZIP64_END_BYTES = 56
_ZIP64_MARK = 0xFFFFFFFF


def read_zip_table(file: BinaryIO, source: Source) -> TensorTable:
    """The tensors of a zip that ``torch.save`` wrote.

    Raises:
        UnreadableFileError: truncated, compressed, or its pickle holds more than tensors.
    """
    _check_directory_size(file, source.size)
    try:
        with zipfile.ZipFile(file) as archive:
            members = {info.filename: info for info in archive.infolist()}
            folder, data = _read_pickle(archive, members)
    except _ZIP_DAMAGE as error:
        raise UnreadableFileError(f"truncated or damaged zip ({shorten(str(error))})") from error

    def place(storage: Storage) -> int:
        info = members.get(f"{folder}data/{storage.key}")
        if info is None:
            raise UnreadableFileError(f"damaged: there is no storage {shorten(storage.key)} in the zip")
        needed = storage.numbers * ITEM_BYTES[storage.dtype]
        if info.compress_type != zipfile.ZIP_STORED:
            raise UnreadableFileError(f"its storages are compressed, which torch.save never does; {WAY_OUT}")
        if info.file_size < needed:
            raise UnreadableFileError(
                f"truncated: storage {shorten(storage.key)} claims {needed:,} bytes, the zip has {info.file_size:,}"
            )
        return _data_start(file, info, needed, source.size)

    return _table(describe_pickle(data, place).value, source)


def _read_pickle(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> tuple[str, bytes]:
    """The folder that all members are in, and the pickle."""
    pickles = [name for name in members if name == "data.pkl" or name.endswith("/data.pkl")]
    if not pickles:
        raise UnreadableFileError("a zip, but none of torch.save: there is no data.pkl in it")
    folder = pickles[0].removesuffix("data.pkl")
    order = members.get(folder + "byteorder")
    if order is not None and _read_member(archive, order) not in (b"little", b""):
        raise UnreadableFileError("its numbers are stored big-endian; re-save it on a little-endian machine")
    return folder, _read_member(archive, members[pickles[0]])


def _check_directory_size(file: BinaryIO, size: int) -> None:
    file.seek(max(0, size - _END_BYTES - _ZIP64_LOCATOR_BYTES - _ZIP64_END_BYTES))
    tail = file.read()
    end = tail[-_END_BYTES:]
    if len(end) < _END_BYTES or not end.startswith(b"PK\x05\x06"):
        raise UnreadableFileError("truncated: the zip's directory is missing at the end of the file")
    (length,) = struct.unpack("<I", end[12:16])
    position = tail.rfind(b"PK\x06\x06")
    if length == _ZIP64_MARK:
        if position < 0 or len(tail) < position + _ZIP64_END_BYTES:
            raise UnreadableFileError("damaged: the zip's 64-bit directory is missing")
        (length,) = struct.unpack("<Q", tail[position + 40 : position + 48])
    if length > MAX_DIRECTORY_BYTES:
        raise UnreadableFileError(f"a zip directory of {length:,} bytes; a shard's has a few hundred")


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.compress_type != zipfile.ZIP_STORED:
        raise UnreadableFileError(f"its members are compressed, which torch.save never does; {WAY_OUT}")
    if info.file_size > MAX_PICKLE_BYTES:
        raise UnreadableFileError(f"a pickle of {info.file_size:,} bytes; at most {MAX_PICKLE_BYTES:,} are read")
    return archive.read(info)


def _data_start(file: BinaryIO, info: zipfile.ZipInfo, needed: int, size: int) -> int:
    # The directory doesn't say where a member's bytes start: torch pads the local header to align them.
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER_BYTES)
    if len(header) < _LOCAL_HEADER_BYTES or not header.startswith(ZIP_MAGIC):
        raise UnreadableFileError("damaged: the zip's directory points beside its members")
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    start = info.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes
    if start + needed > size:
        raise UnreadableFileError(f"truncated: a storage ends at byte {start + needed:,}, the file has {size:,}")
    return int(start)


def read_legacy_table(file: BinaryIO, source: Source) -> TensorTable:
    """The tensors of a file from before torch 1.6, or of ``_use_new_zipfile_serialization=False``.

    Three pickles of preliminaries, the pickle of the object, a pickle with the list of storage keys, then each storage
    with its length before it.

    Raises:
        UnreadableFileError: as for a zip; also for any other pickle.
    """
    file.seek(0)
    data = file.read(MAX_PICKLE_BYTES)
    magic = describe_pickle(data, _no_place)
    if magic.value != LEGACY_MAGIC:
        raise UnreadableFileError(f"a pickle, but none of torch.save; {WAY_OUT}")
    view = memoryview(data)
    position = magic.length
    for _ in ("protocol version", "system"):
        position += describe_pickle(bytes(view[position:]), _no_place).length
    at_object = bytes(view[position:])
    # Where the storages lie is known only behind the object: a first pass finds its end.
    position += describe_pickle(at_object, lambda _: 0).length
    keys = describe_pickle(bytes(view[position:]), _no_place)
    claimed: dict[str, int] = {}
    describe_pickle(at_object, _note_sizes(claimed))
    starts = _storage_starts(keys.value, claimed, position + keys.length, source.size)

    def place(storage: Storage) -> int:
        if storage.key not in starts:
            raise UnreadableFileError(f"damaged: there is no storage {shorten(storage.key)} in the file")
        return starts[storage.key]

    return _table(describe_pickle(at_object, place).value, source)


def _storage_starts(keys: object, claimed: dict[str, int], position: int, size: int) -> dict[str, int]:
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise UnreadableFileError("damaged: its list of storages is no list of names")
    starts: dict[str, int] = {}
    for key in keys:
        start = position + struct.calcsize("<q")
        position = start + claimed.get(key, 0)
        if position > size:
            raise UnreadableFileError(f"truncated: storage {shorten(key)} ends at byte {position:,} of {size:,}")
        starts[key] = start
    return starts


def _note_sizes(claimed: dict[str, int]) -> Callable[[Storage], int]:
    def note(storage: Storage) -> int:
        claimed[storage.key] = storage.numbers * ITEM_BYTES[storage.dtype]
        return 0

    return note


def _no_place(storage: Storage) -> int:
    raise UnreadableFileError(f"damaged: storage {shorten(storage.key)} stands where none belongs")


def _table(value: Any, source: Source) -> TensorTable:
    if isinstance(value, list | tuple) and value and all(isinstance(entry, dict) for entry in value):
        if len(value) > MAX_RECORDS:
            raise UnreadableFileError(f"a list of {len(value):,} dicts; at most {MAX_RECORDS:,} are read")
        return TensorTable(source, "torch", {}, records=tuple(_table(entry, source) for entry in value))
    if not isinstance(value, dict):
        raise UnreadableFileError(
            f"torch.save of a {type(value).__name__}; expected a dict of tensors, or a list of them"
        )
    tensors: dict[str, StoredTensor] = {}
    lists: dict[str, tuple[StoredTensor, ...]] = {}
    constants: dict[str, Constant] = {}
    objects: dict[str, object] = {}
    others: list[str] = []
    for key, entry in value.items():
        if isinstance(entry, StoredTensor):
            tensors[str(key)] = entry
        elif isinstance(entry, list | tuple) and entry and all(isinstance(e, StoredTensor) for e in entry):
            lists[str(key)] = tuple(entry)
        else:
            others.append(str(key))
            if entry is None or isinstance(entry, str | int | float):
                constants[str(key)] = entry
            elif isinstance(entry, list | tuple | dict):
                objects[str(key)] = entry
    return TensorTable(source, "torch", tensors, lists, tuple(others), constants, objects)


def looks_like_torch_zip(head: bytes) -> bool:
    """Whether a file starts as a zip does."""
    return head.startswith(ZIP_MAGIC)


def looks_like_pickle(head: bytes) -> bool:
    """Whether a file starts as a pickle of protocol 2 or later does."""
    return head.startswith(PICKLE_MAGIC)
