"""The containers in which tensors are stored: safetensors and ``torch.save``. A file in, its table of tensors out.

What a file is, its first bytes decide, not its name; only bare bytes need a name, which leads to their manifest.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, cast

from eagle_parity.open_files import Stamp
from eagle_parity.readers.containers.gzip_file import GZIP_MAGIC, GzipFile, inflated
from eagle_parity.readers.containers.ranged_file import RangedFile
from eagle_parity.readers.containers.raw_objects import (
    NO_PACKED_MANIFEST,
    PACKED_SUFFIX,
    STATES_SUFFIX,
    describe_raw,
)
from eagle_parity.readers.containers.safetensors_file import looks_like_safetensors, read_safetensors_table
from eagle_parity.readers.containers.stored_tensor import PlainFile, Source, UnreadableFileError
from eagle_parity.readers.containers.tensor_table import TensorTable
from eagle_parity.readers.containers.torch_file import (
    looks_like_pickle,
    looks_like_torch_zip,
    read_legacy_table,
    read_zip_table,
)

if TYPE_CHECKING:
    from pathlib import Path

_HEAD_BYTES = 16

__all__ = ["TensorTable", "UnreadableFileError", "read_remote_table", "read_table"]


def read_table(path: Path) -> TensorTable:
    """The tensors of a file from its header: no number is read, nothing is executed, no torch is needed.

    Raises:
        UnreadableFileError: it can't be opened, is truncated, corrupt or unsafe, or is no container of tensors.
    """
    try:
        if not path.is_file():
            raise UnreadableFileError("no regular file" if path.exists() else "no such file")
        # First: bare states can begin with the bytes of any magic.
        raw = describe_raw(path)
        if raw is not None:
            return raw
        with path.open("rb") as file:
            # Before anything of it is read: what is written meanwhile is seen when it is opened again.
            stamp = Stamp.of(os.fstat(file.fileno()))
            head = file.read(_HEAD_BYTES)
            if head.startswith(GZIP_MAGIC) and not looks_like_safetensors(head):
                content = inflated(path, stamp)
                # A duplicate, so that closing it leaves the cached one open.
                with os.fdopen(os.dup(content.descriptor), "rb") as copy:
                    copy.seek(0)
                    source = GzipFile(path, stamp, os.fstat(copy.fileno()).st_size)
                    return _read(copy, source, copy.read(_HEAD_BYTES))
            return _read(file, PlainFile(path, stamp.size, stamp), head)
    except OSError as error:
        raise UnreadableFileError(f"can't be opened ({error.strerror or error})") from error


def read_remote_table(name: str, source: Source) -> TensorTable:
    """The tensors of a file that only its ranges can be had of, from its header.

    Args:
        name: of the file.
        source: its bytes.

    Raises:
        UnreadableFileError: as ``read_table``; or it is a gzip, or bare bytes, for which other files are needed.
    """
    if name.endswith((PACKED_SUFFIX, STATES_SUFFIX)):
        raise UnreadableFileError("bare bytes of a Mooncake store: copy the folder to a disk and scan it there")
    file = RangedFile(source)
    head = file.read(_HEAD_BYTES)
    if head.startswith(GZIP_MAGIC) and not looks_like_safetensors(head):
        raise UnreadableFileError("a gzip, which has to be inflated as a whole: copy the folder to a disk first")
    # Of an IO it has what the parsers and Python's zipfile use.
    return _read(cast("BinaryIO", file), source, head)


def _read(file: BinaryIO, source: Source, head: bytes) -> TensorTable:
    if source.size == 0:
        raise UnreadableFileError("an empty file")
    # First, because the length that a safetensors file begins with can have the bytes of any other magic.
    if looks_like_safetensors(head):
        return read_safetensors_table(file, source)
    if looks_like_torch_zip(head):
        return read_zip_table(file, source)
    if looks_like_pickle(head):
        return read_legacy_table(file, source)
    if isinstance(source, PlainFile) and source.path.name.endswith(PACKED_SUFFIX):
        raise UnreadableFileError(NO_PACKED_MANIFEST)
    raise UnreadableFileError("neither safetensors nor a file of torch.save")
