"""Bare bytes of a Mooncake store, with a manifest beside them that says what they are.

Both stores keep nothing on disk by themselves: these are objects that somebody has saved, the manifest with them.

- hs-connectors 0.9.0 (``mooncake_store.py``: ``packed_layout``) packs a request's tensors into one object. Where each
  begins travels in the HTTP response as ``kv_transfer_params``: saved as ``NAME.kv_transfer_params.json`` it describes
  ``NAME.bin``.
- TorchSpec (``transfer/mooncake/eagle_store.py``) keeps an object a tensor, ``KEY_hs``, ``KEY_ids`` and ``KEY_lhs``.
  Shapes and dtypes are known to its controller alone: saved as ``controller_metadata.json``, a list of objects with
  ``mooncake_key``, ``tensor_shapes`` and ``tensor_dtypes``, they describe all objects of a folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eagle_parity.open_files import Stamp
from eagle_parity.readers.containers.stored_tensor import (
    ITEM_BYTES,
    MAX_RANK,
    PlainFile,
    StoredTensor,
    UnreadableFileError,
    contiguous_stride,
)
from eagle_parity.readers.containers.tensor_table import TensorTable, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PACKED_SUFFIX = ".bin"
PACKED_MANIFEST_SUFFIX = ".kv_transfer_params.json"
STATES_SUFFIX = "_hs"
CONTROLLER_METADATA = "controller_metadata.json"

MAX_MANIFEST_BYTES = 32 * 1024 * 1024
"""The controller's list has some 300 bytes a sequence: 100,000 of them."""

NO_PACKED_MANIFEST = (
    "neither safetensors nor a file of torch.save; if it is an object of hs-connectors' Mooncake store, its shape and"
    " dtype are in the kv_transfer_params of the HTTP response alone: save these beside it as"
    f" NAME{PACKED_MANIFEST_SUFFIX}"
)

_PACKED_VERSION = 1

_PARTS = {"hidden_states": STATES_SUFFIX, "input_ids": "_ids", "last_hidden_states": "_lhs"}
"""The controller's name of each tensor, and how the object is called that has it."""

_OPTIONAL_PARTS = frozenset({"last_hidden_states"})


@dataclass(frozen=True, slots=True)
class JoinedFiles:
    """Several files as one row of bytes.

    Attributes:
        parts: in order.
    """

    parts: tuple[PlainFile, ...]

    @property
    def size(self) -> int:
        """Of all."""
        return sum(part.size for part in self.parts)

    def view(self, start: int, count: int) -> memoryview | None:
        """See ``Source``; a tensor lies in one of the files."""
        for part in self.parts:
            if start < part.size:
                return part.view(start, count)
            start -= part.size
        return None

    def read(self, start: int, count: int) -> bytearray:
        """See ``Source``; a tensor lies in one of the files."""
        for part in self.parts:
            if start < part.size:
                return part.read(start, count)
            start -= part.size
        return bytearray()


def describe_raw(path: Path) -> TensorTable | None:
    """The tensors of a saved object; None where neither its name nor what lies beside it says that it is one.

    Raises:
        UnreadableFileError: the manifest is missing, damaged, or claims what the object doesn't have.
    """
    if path.name.endswith(PACKED_SUFFIX):
        manifest = path.with_name(path.name.removesuffix(PACKED_SUFFIX) + PACKED_MANIFEST_SUFFIX)
        return _packed(path, manifest) if manifest.is_file() else None
    if path.name.endswith(STATES_SUFFIX):
        metadata = path.with_name(CONTROLLER_METADATA)
        ids = path.with_name(path.name.removesuffix(STATES_SUFFIX) + _PARTS["input_ids"])
        if metadata.is_file():
            return _controlled(path, metadata)
        if ids.is_file():
            raise UnreadableFileError(
                "the bare bytes of TorchSpec's states: neither shape nor dtype nor hidden size is in them; needed"
                f" is {CONTROLLER_METADATA} beside it, with mooncake_key, tensor_shapes and tensor_dtypes, which only"
                " TorchSpec's controller knows"
            )
    return None


def _packed(path: Path, manifest: Path) -> TensorTable:
    content = _json(manifest, manifest.stat().st_mtime_ns)
    entries = content.get("tensors") if isinstance(content, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise UnreadableFileError(f"{shorten(manifest.name)} has no tensors")
    if content.get("version") != _PACKED_VERSION:
        raise UnreadableFileError(
            f"{shorten(manifest.name)} is of version {shorten(str(content.get('version')))}; {_PACKED_VERSION} is read"
        )
    stamp = Stamp.of(path.stat())
    source = PlainFile(path, stamp.size, stamp)
    tensors: dict[str, StoredTensor] = {}
    for name, entry in entries.items():
        told = f"{shorten(name)} in {shorten(manifest.name)}"
        if not isinstance(entry, dict):
            raise UnreadableFileError(f"{told} is no object")
        offset = _size(entry.get("offset"), f"the offset of {told}")
        tensor = _tensor(entry.get("shape"), entry.get("dtype"), offset, told)
        nbytes = tensor.numbers * ITEM_BYTES[tensor.dtype]
        if entry.get("nbytes") != nbytes:
            raise UnreadableFileError(f"{told} claims {tensor}, which isn't {shorten(str(entry.get('nbytes')))} bytes")
        if offset + nbytes > source.size:
            raise UnreadableFileError(
                f"truncated: {told} ends at byte {min(offset + nbytes, 2**63):,}, the object has {source.size:,}"
            )
        tensors[name] = tensor
    return TensorTable(source, "mooncake", tensors)


def _controlled(path: Path, metadata: Path) -> TensorTable:
    key = path.name.removesuffix(STATES_SUFFIX)
    entry = _entries(metadata, metadata.stat().st_mtime_ns).get(key)
    if entry is None:
        raise UnreadableFileError(
            f"{shorten(metadata.name)} has no entry with mooncake_key {shorten(key)}: its shape is unknown"
        )
    shapes, dtypes = entry.get("tensor_shapes"), entry.get("tensor_dtypes")
    if not isinstance(shapes, dict) or not isinstance(dtypes, dict):
        raise UnreadableFileError(f"{shorten(metadata.name)} has no tensor_shapes and tensor_dtypes for {shorten(key)}")
    tensors: dict[str, StoredTensor] = {}
    files: list[PlainFile] = []
    start = 0
    for name, suffix in _PARTS.items():
        file = path.with_name(key + suffix)
        if name not in shapes and name in _OPTIONAL_PARTS:
            continue
        told = f"{name} of {shorten(key)} in {shorten(metadata.name)}"
        tensor = _tensor(shapes.get(name), dtypes.get(name), start, told)
        try:
            size = file.stat().st_size
        except OSError as error:
            raise UnreadableFileError(f"{shorten(file.name)} can't be read ({error.strerror or error})") from error
        nbytes = tensor.numbers * ITEM_BYTES[tensor.dtype]
        if size != nbytes:
            raise UnreadableFileError(
                f"{told} is {tensor}, which is {min(nbytes, 2**63):,} bytes; {shorten(file.name)} has {size:,}"
            )
        tensors[name] = tensor
        files.append(PlainFile(file, size))
        start += size
    return TensorTable(JoinedFiles(tuple(files)), "torchspec", tensors)


@lru_cache(maxsize=4)
def _entries(metadata: Path, stamp: int) -> Mapping[str, Mapping[str, Any]]:
    """The controller's list by key, parsed once for a folder of a hundred thousand objects."""
    content = _json(metadata, stamp)
    listed = content if isinstance(content, list) else [content]
    return {
        entry["mooncake_key"]: entry
        for entry in listed
        if isinstance(entry, dict) and isinstance(entry.get("mooncake_key"), str)
    }


@lru_cache(maxsize=4)
def _json(path: Path, stamp: int) -> Any:  # noqa: ARG001  the stamp makes the cache forget a file that was rewritten
    try:
        size = path.stat().st_size
        if size > MAX_MANIFEST_BYTES:
            raise UnreadableFileError(
                f"{shorten(path.name)} has {size:,} bytes; at most {MAX_MANIFEST_BYTES:,} are read"
            )
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UnreadableFileError(f"{shorten(path.name)} can't be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"{shorten(path.name)} is no JSON ({str(error)[:60]})") from error


def _tensor(shape: object, dtype: object, start: int, told: str) -> StoredTensor:
    if not isinstance(shape, list) or len(shape) > MAX_RANK:
        raise UnreadableFileError(f"{told} has no shape")
    sizes = tuple(_size(size, f"the shape of {told}") for size in shape)
    name = str(dtype).removeprefix("torch.")
    if name not in ITEM_BYTES:
        raise UnreadableFileError(f"{told} has an unknown dtype {shorten(name)}")
    return StoredTensor(name, sizes, contiguous_stride(sizes), start)


def _size(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise UnreadableFileError(f"{what} is {shorten(str(value))[:60]}, which is no size")
    return value
