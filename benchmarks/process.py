"""One command as a process of its own, with what the system counted of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SAMPLED_EVERY = 0.01
"""Seconds between two looks at the memory of a process that is watched."""

_KIB = 1024
_SHOWN = 800

ROOT = Path(__file__).resolve().parent.parent
TOOL = (sys.executable, "-m", "eagle_parity")
IMPORT_TORCH = (sys.executable, "-c", "import torch")


class CommandFailedError(Exception):
    """A command that had to work didn't."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A process that has ended.

    Attributes:
        seconds: from its start to its end.
        cpu: user and system seconds of it and of the children that it waited for.
        peak: bytes that were resident at most, pages of mapped files among them. Where it wasn't watched, Linux doesn't
            let it fall below the peak of the process that started it, which has mapped files itself.
        anonymous: bytes of resident memory that is no file's, at most, as far as samples caught it; None where it
            wasn't watched.
        status: exit status.
        stdout, stderr: what it wrote.
    """

    seconds: float
    cpu: float
    peak: int
    anonymous: int | None
    status: int
    stdout: str
    stderr: str


def run(command: Sequence[str], *, watch_memory: bool = False, may_fail: bool = False) -> Ran:
    """Runs a command in the project's folder and waits for it.

    Args:
        command: with its arguments.
        watch_memory: look at its memory while it runs. Its times then have the grain of the samples.
        may_fail: give back what failed.

    Raises:
        CommandFailedError: it ended with another status than 0.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603  our own command lines
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT, env=environment
        )
        watched = _watch(process.pid) if watch_memory else None
        _, state, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(state)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
    if process.returncode and not may_fail:
        raise CommandFailedError(f"{' '.join(command)}: status {process.returncode}\n{texts[1][-_SHOWN:]}")
    return Ran(
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * _KIB if watched is None else watched["VmHWM:"],
        None if watched is None else watched["RssAnon:"],
        process.returncode,
        texts[0],
        texts[1],
    )


@contextmanager
def on_processors(count: int) -> Iterator[None]:
    """Processes that are started inside may use so many of the processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _watch(pid: int) -> dict[str, int]:
    """The most resident and the most anonymous memory that was seen until the process ended, which isn't waited for."""
    most = {"VmHWM:": 0, "RssAnon:": 0}
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        for name, size in _memory(pid):
            if name in most:
                most[name] = max(most[name], size)
        time.sleep(SAMPLED_EVERY)
    return most


def _memory(pid: int) -> Iterator[tuple[str, int]]:
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return  # it has just ended
    for line in status.splitlines():
        name, *told = line.split()
        if told[1:] == ["kB"]:
            yield name, int(told[0]) * _KIB
