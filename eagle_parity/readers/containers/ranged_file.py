"""A file of which only ranges can be had, each at the price of a request, as the parsers of headers want it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eagle_parity.readers.containers.stored_tensor import Source

BLOCK_BYTES = 64 * 1024
"""Asked for at once: most headers are smaller."""


class RangedFile(io.RawIOBase):
    """A source's bytes, fetched in blocks, none of them twice.

    A zip's directory is at its end, its pickle at its beginning, and both are read piece by piece.

    Args:
        source: the bytes.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._position = 0
        self._blocks: dict[int, bytearray] = {}

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As any file's.

        Raises:
            ValueError: before the beginning.
        """
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        if start + offset < 0:
            raise ValueError("a position before the beginning of the file")
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, fewer at the end alone."""
        left = max(0, self._source.size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        first, last = self._position // BLOCK_BYTES, (self._position + count - 1) // BLOCK_BYTES
        self._fetch(first, last)
        data = b"".join(self._blocks[block] for block in range(first, last + 1))
        start = self._position - first * BLOCK_BYTES
        self._position += count
        return data[start : start + count]

    def _fetch(self, first: int, last: int) -> None:
        """Blocks that aren't there yet; those that lie side by side with one request."""
        missing = [block for block in range(first, last + 1) if block not in self._blocks]
        while missing:
            run = 1
            while run < len(missing) and missing[run] == missing[0] + run:
                run += 1
            start = missing[0] * BLOCK_BYTES
            data = self._source.read(start, min(run * BLOCK_BYTES, self._source.size - start))
            for place, block in enumerate(missing[:run]):
                self._blocks[block] = data[place * BLOCK_BYTES : (place + 1) * BLOCK_BYTES]
            del missing[:run]
