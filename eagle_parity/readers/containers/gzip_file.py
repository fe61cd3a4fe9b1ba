"""A gzip around a file, as SpecForge's ``--compress`` writes (``scripts/prepare_hidden_states.py``, 0.2.0).

Gzip can't be read from the middle, so the whole file is inflated into an unnamed temporary file; the last few stay.
"""

from __future__ import annotations

import gzip
import tempfile
import weakref
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from eagle_parity.errors import InputError
from eagle_parity.readers.containers.stored_tensor import UnreadableFileError, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from eagle_parity.open_files import Stamp

GZIP_MAGIC = b"\x1f\x8b"

MAX_RATIO = 16
"""Gzip takes a quarter off hidden states. A file that inflates a thousandfold, as gzip can, is an attack."""

MIN_LIMIT_BYTES = 1024 * 1024
"""Tiny files may inflate by more: their padding is long against their numbers."""

_BLOCK_BYTES = 1024 * 1024
_KEPT = 8
"""Inflated files that are kept: the sides of a comparison, in each of its threads."""


@dataclass(frozen=True, slots=True)
class GzipFile:
    """The inflated bytes of a file; inflated again when they are asked for after others.

    Attributes:
        path: the compressed file.
        stamp: what it was when it was first read.
        size: of the inflated bytes.
    """

    path: Path
    stamp: Stamp
    size: int

    def read(self, start: int, count: int) -> bytearray:
        """See ``Source``."""
        try:
            # Held while it is read: the cache may drop it meanwhile for another thread's file.
            held = inflated(self.path, self.stamp)
            return read_bytes(held.descriptor, start, count, subject=self.path)
        except (UnreadableFileError, OSError) as error:
            raise InputError(self.path, f"can't be read any more ({error})") from error

    def view(self, start: int, count: int) -> None:
        """See ``Source``: there is none of a file that may be inflated anew."""


class Inflated:
    """Inflated bytes in an unnamed temporary file, which is closed when nobody holds this any more."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  the finaliser closes it
        self.descriptor = self._file.fileno()
        # The cache drops entries without a word, and a file that is collected while open gives a warning.
        weakref.finalize(self, self._file.close)

    def fill(self, path: Path, limit: int) -> None:
        """Writes the inflated bytes of a file."""
        written = 0
        with gzip.open(path, "rb") as source:
            while block := source.read(_BLOCK_BYTES):
                written += len(block)
                if written > limit:
                    raise UnreadableFileError(f"gzip that inflates to more than {limit:,} bytes; gunzip it yourself")
                self._file.write(block)
        self._file.flush()


@lru_cache(maxsize=_KEPT)
def inflated(path: Path, stamp: Stamp) -> Inflated:
    """The inflated bytes of a file.

    Raises:
        UnreadableFileError: damaged, or it inflates beyond any shard.
    """
    target = Inflated()
    try:
        target.fill(path, max(MIN_LIMIT_BYTES, MAX_RATIO * stamp.size))
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFileError(f"truncated or damaged gzip ({error})") from error
    return target
