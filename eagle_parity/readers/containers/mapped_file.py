"""A byte range of a file as memory, without copying it: for large blocks of files that nobody writes to any more.

To touch a mapped page beyond the end of a file that somebody has cut meanwhile kills the process. So only files are
mapped that were last written a while ago; their size is looked at once more, and their pages are brought in at once by
a call that reports an error instead. What remains is somebody cutting a file short that was at rest, within the
milliseconds in which a block of it is looked at. A file that is replaced by renaming does no harm at all.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

LEAST_BYTES = 1024 * 1024
"""Smaller ranges are read: a map costs some system calls."""
AT_REST_SECONDS = 60.0
_ALIGNMENT = 1024 * 1024
_BEYOND = 256 * 1024
"""Mapped behind what was asked for: the slots of a block of rows overlap, and the last one ends some rows later."""
_KEPT = 4
"""Windows a thread keeps: of the trained side, the live one, a reference and a second capture."""
_POPULATE_READ = 22
"""Linux 5.14: brings pages in and fails where there are none; the standard library has no name for it yet."""


class _Window(NamedTuple):
    start: int
    stop: int
    memory: mmap.mmap


class _Windows(threading.local):
    def __init__(self) -> None:
        self.kept: OrderedDict[tuple[str, int, int, int], _Window] = OrderedDict()


_windows = _Windows()


def map_range(path: Path, start: int, count: int) -> memoryview | None:
    """So many bytes of a file from there, as private memory; None where they should rather be read.

    Args:
        path: the file.
        start: of the range.
        count: its bytes.

    Raises:
        OSError: the file can't be opened.
    """
    if count < LEAST_BYTES or not hasattr(mmap, "MAP_PRIVATE"):
        return None
    key = _key(path, path.stat())
    window = _windows.kept.pop(key, None)
    if window is None or start < window.start or start + count > window.stop:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            if status.st_size < start + count or time.time() - status.st_mtime < AT_REST_SECONDS:
                return None
            key = _key(path, status)
            window = _open_window(descriptor, start, start + count, status.st_size)
        finally:
            os.close(descriptor)
        if window is None:
            return None
    _windows.kept[key] = window
    while len(_windows.kept) > _KEPT:
        _windows.kept.popitem(last=False)
    return memoryview(window.memory)[start - window.start : start - window.start + count]


def _key(path: Path, status: os.stat_result) -> tuple[str, int, int, int]:
    """What a window belongs to: a file as it is now."""
    return str(path), status.st_ino, status.st_mtime_ns, status.st_size


def _open_window(descriptor: int, start: int, stop: int, size: int) -> _Window | None:
    first = start - start % _ALIGNMENT
    last = min(size, stop + _BEYOND)
    try:
        # Writable, because torch warns of memory that isn't; private, so that nothing reaches the file.
        memory = mmap.mmap(descriptor, last - first, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE, offset=first)
    except (OSError, ValueError):
        return None  # a file system without maps
    return _Window(first, last, memory) if _bring_in(memory) else None


def _bring_in(memory: mmap.mmap) -> bool:
    """Whether all pages are there."""
    try:
        memory.madvise(_POPULATE_READ)
    except OSError as error:
        if error.errno != errno.EINVAL:
            return False
        with contextlib.suppress(OSError):  # an older kernel
            memory.madvise(mmap.MADV_WILLNEED)
    return True
