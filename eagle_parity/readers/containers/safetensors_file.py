"""Safetensors: eight bytes of header length, a JSON header, then the numbers.

The header is read here and not by the library because every claim in it is checked against the size of the file before
anything is allocated, and because a broken file is told in one line.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

from eagle_parity.readers.containers.stored_tensor import (
    ITEM_BYTES,
    MAX_RANK,
    Source,
    StoredTensor,
    UnreadableFileError,
    contiguous_stride,
)
from eagle_parity.readers.containers.tensor_table import TensorTable, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

LENGTH_BYTES = 8

MAX_HEADER_BYTES = 16 * 1024 * 1024
"""A header has about a hundred bytes a tensor: this is more than a hundred thousand tensors."""

METADATA_KEY = "__metadata__"

DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
}


def looks_like_safetensors(head: bytes) -> bool:
    """Whether a file's first nine bytes can be a length and the brace of a JSON object."""
    return len(head) > LENGTH_BYTES and head[LENGTH_BYTES] == ord("{")


def read_safetensors_table(file: BinaryIO, source: Source) -> TensorTable:
    """The tensors of a safetensors file, from its header.

    Args:
        file: positioned anywhere.
        source: the same bytes; its size is what the header's claims are held against.

    Raises:
        UnreadableFileError: truncated, or the header claims what the file doesn't have.
    """
    size = source.size
    file.seek(0)
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    data_start = LENGTH_BYTES + length
    if size < LENGTH_BYTES or data_start > size:
        raise UnreadableFileError(
            f"truncated or no safetensors file: its header claims {length:,} bytes, the file has {size:,}"
        )
    if length > MAX_HEADER_BYTES:
        raise UnreadableFileError(f"a safetensors header of {length:,} bytes; at most {MAX_HEADER_BYTES:,} are read")
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"its safetensors header is no JSON ({str(error)[:60]})") from error
    if not isinstance(header, dict):
        raise UnreadableFileError("its safetensors header is JSON, but no object")
    metadata = header.pop(METADATA_KEY, None)
    return TensorTable(
        source=source,
        container="safetensors",
        tensors={name: _entry(name, value, data_start, size) for name, value in header.items()},
        metadata={str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {},
    )


def _entry(name: str, value: object, data_start: int, size: int) -> StoredTensor:
    told = shorten(name)
    if not isinstance(value, dict):
        raise UnreadableFileError(f"its safetensors header has no entry but {type(value).__name__} for {told}")
    dtype = DTYPES.get(str(value.get("dtype")))
    if dtype is None:
        raise UnreadableFileError(f"{told} has an unknown dtype {shorten(str(value.get('dtype')))}")
    shape = _integers(value, "shape", told)
    offsets = _integers(value, "data_offsets", told)
    if len(shape) > MAX_RANK:
        raise UnreadableFileError(f"{told} claims {len(shape)} dimensions")
    tensor = StoredTensor(dtype, shape, contiguous_stride(shape), data_start + (offsets[0] if offsets else 0))
    nbytes = tensor.numbers * ITEM_BYTES[dtype]
    if len(offsets) != 2 or offsets[1] - offsets[0] != nbytes:  # noqa: PLR2004  begin and end
        raise UnreadableFileError(
            f"{told} claims {tensor}, which is {min(nbytes, 2**63):,} bytes, at offsets {list(offsets)[:3]}"
        )
    if data_start + offsets[1] > size:
        raise UnreadableFileError(f"truncated: {told} ends at byte {data_start + offsets[1]:,}, the file has {size:,}")
    return tensor


def _integers(value: Mapping[str, Any], key: str, told: str) -> tuple[int, ...]:
    numbers = value.get(key)
    if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
        raise UnreadableFileError(f"the {key} of {told} is no list of sizes")
    return tuple(numbers)
