from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from eagle_parity.threads import AHEAD, StoppedError, in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_work(threads: int) -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number * number

    assert list(in_threads(slow_first, range(20), threads=threads)) == [n * n for n in range(20)]


def test_no_more_is_begun_than_there_is_room_for() -> None:
    taken: list[int] = []

    def works() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = in_threads(abs, works(), threads=3)
    next(results)
    assert len(taken) == AHEAD * 3


def test_an_error_ends_it_and_what_is_not_begun_is_dropped() -> None:
    begun: list[int] = []
    gate = threading.Event()

    def fail_first(number: int) -> int:
        begun.append(number)
        if number == 0:
            raise ValueError("zero")
        gate.wait(5)
        return number

    results = in_threads(fail_first, range(50), threads=2)
    threading.Timer(0.1, gate.set).start()
    with pytest.raises(ValueError, match="zero"):
        list(results)
    assert len(begun) <= AHEAD * 2


@pytest.mark.parametrize("end", ["error", "close", "whole"])
def test_work_is_told_when_nobody_waits_for_it(end: str) -> None:
    stop, begun = threading.Event(), threading.Event()
    broken_off: list[int] = []

    def work(number: int) -> int:
        if number == 0:
            assert begun.wait(10)
            if end == "error":
                raise ValueError("zero")
            return number
        begun.set()
        if end != "whole":
            assert stop.wait(10)
            broken_off.append(number)
            raise StoppedError
        return number

    results = in_threads(work, range(2), threads=2, stop=stop)
    if end == "whole":
        assert list(results) == [0, 1]
    elif end == "error":
        with pytest.raises(ValueError, match="zero"):
            list(results)
    else:
        assert next(results) == 0
        results.close()  # type: ignore[attr-defined]  # a generator, as after Ctrl-C
    assert broken_off == ([] if end == "whole" else [1])


def test_each_thread_begins_once() -> None:
    names: list[str] = []
    list(in_threads(lambda _: time.sleep(0.01), range(8), threads=2, begin=lambda: names.append("")))
    assert 1 <= len(names) <= 2
