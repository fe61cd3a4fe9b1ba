"""Who does the work on the parts of a set; the outcomes come in the order of the parts, whoever was done first."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from eagle_parity.scan.parts import Part, PartWork
    from eagle_parity.scan.set_state import SetState

AHEAD = 2
"""Parts a worker that are begun before their turn: what they found waits in memory."""
ATTEMPTS = 1
"""How often a part may take its process with it once more before its files are looked at one by one."""


class Executor(Protocol):
    """A way to do the work."""

    def run(self, work: PartWork, parts: Iterable[Part]) -> Iterator[tuple[Part, SetState]]:
        """Every part with what was found, in the order given."""
        ...


class ThisProcess:
    """One part after the other, here."""

    def run(self, work: PartWork, parts: Iterable[Part]) -> Iterator[tuple[Part, SetState]]:
        """See ``Executor``."""
        for part in parts:
            yield part, work(part)


class Processes:
    """Other processes of this machine. One that dies is replaced, and its part is looked at again.

    Args:
        workers: how many.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._begun: set[Any] = set()

    def run(self, work: PartWork, parts: Iterable[Part]) -> Iterator[tuple[Part, SetState]]:
        """See ``Executor``."""
        begun: deque[tuple[Part, Future[SetState]]] = deque()
        waiting = iter(parts)
        try:
            while True:
                while len(begun) < AHEAD * self._workers and (part := next(waiting, None)) is not None:
                    begun.append((part, self._submit(work, part)))
                if not begun:
                    return
                part, future = begun.popleft()
                try:
                    yield part, future.result()
                except BrokenProcessPool:
                    # It takes all that was begun with it, and whose fault it was nobody can tell.
                    others = [other for other, _ in begun]
                    begun.clear()
                    self._close()
                    for lost in (part, *others):
                        yield lost, self._again(work, lost)
        except BaseException:
            self._terminate()
            raise
        finally:
            self._close()

    def _again(self, work: PartWork, part: Part) -> SetState:
        """A part alone, so that it can only take its own process with it; at last file by file."""
        for _ in range(ATTEMPTS):
            try:
                return self._submit(work, part).result()
            except BrokenProcessPool:
                self._close()
        return file_by_file(work, part, lambda file: self._alone(work, file))

    def _alone(self, work: PartWork, part: Part) -> SetState | None:
        try:
            return self._submit(work, part).result()
        except BrokenProcessPool:
            self._close()
            return None

    def _submit(self, work: PartWork, part: Part) -> Future[SetState]:
        if self._pool is None:
            # Spawned, not forked: torch's threads don't survive a fork.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=begin_worker)
        before = set(multiprocessing.active_children())
        try:
            return self._pool.submit(work, part)
        except BrokenProcessPool:
            self._close()
            return self._submit(work, part)
        finally:  # a pool begins its processes when they are wanted
            self._begun |= set(multiprocessing.active_children()) - before

    def _terminate(self) -> None:
        """Ends what is running: a part takes minutes, and whoever interrupts waits for none of them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in self._begun:
                process.terminate()

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
            self._begun.clear()


def file_by_file(work: PartWork, part: Part, look: Callable[[Part], SetState | None]) -> SetState:
    """A part that takes its process with it: what is found without the files that do it, each of them named.

    Args:
        work: what is done.
        part: its files.
        look: does a part of one file; None where the process died.
    """
    from eagle_parity.scan.look import killed_its_reader
    from eagle_parity.scan.set_state import SetState

    state = SetState()
    for number, name in enumerate(part.names, part.first):
        found = look(replace(part, first=number, names=(name,)))
        if found is None:
            state.add_file(killed_its_reader(work.shards, name), number, 0)
        else:
            state.merge(found)
    # Of all files at once, as where a part is done at once: sums of sums have other last bits.
    return state.close_range(part.range)


def begin_worker() -> None:
    """One thread a worker, which ends with whoever reads what it finds: Ctrl-C is the driver's to handle."""
    import signal
    import threading

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker waits for work on a pipe that stays open when the driver is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
