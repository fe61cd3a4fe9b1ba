"""What the machine can do: how fast threads read mapped files that are in the page cache, and what it is."""

from __future__ import annotations

import mmap
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

GIB = 1024**3
MB = 1000**2
GB = 1000**3

_WORD = 8


def describe() -> dict[str, Any]:
    """The machine, without its name."""
    return {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def read_seconds(paths: Sequence[Path], threads: int) -> tuple[float, float]:
    """How long threads take to map the files and touch every byte, a sum of 64 bit words each: seconds, CPU seconds."""
    with ThreadPoolExecutor(threads) as pool:
        started, cpu = time.perf_counter(), time.process_time()
        list(pool.map(_read, [paths[start::threads] for start in range(threads)]))
        return time.perf_counter() - started, time.process_time() - cpu


def size_of(paths: Sequence[Path]) -> int:
    """Bytes of the files."""
    return sum(path.stat().st_size for path in paths)


def _read(paths: Sequence[Path]) -> None:
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0)
    for path in paths:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as memory:
            # The view must be gone before the map is closed.
            np.frombuffer(memory, np.uint64, count=len(memory) // _WORD).sum()


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()
