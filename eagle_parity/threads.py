"""Work in threads whose results come in the order of the work, a bounded number of them ahead."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from threading import Event

Work = TypeVar("Work")
Outcome = TypeVar("Outcome")


class StoppedError(Exception):
    """Work was broken off, because nobody waits for it any more."""


AHEAD = 2
"""Pieces of work a thread that are begun before their turn: results wait in memory."""


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(
    function: Callable[[Work], Outcome],
    works: Iterable[Work],
    *,
    threads: int | None = None,
    begin: Callable[[], None] | None = None,
    stop: Event | None = None,
) -> Iterator[Outcome]:
    """Applies a function that lets others run while it computes, such as a compiled loop.

    Args:
        function: to apply.
        works: to what; taken one by one, as there is room.
        threads: as many as there are processors by default.
        begin: is called once in each thread.
        stop: is set when nobody waits for the results any more: long work should look at it now and then.

    Yields:
        The results, in the order of ``works``.
    """
    threads = threads or processors()
    if threads == 1:
        yield from map(function, works)
        return
    waiting: deque[Future[Outcome]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="eagle-parity", initializer=begin)
    try:
        for work in works:
            waiting.append(pool.submit(function, work))
            if len(waiting) >= AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # After an error or Ctrl-C what isn't begun is dropped, and what is may break off.
        if stop is not None:
            stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
