"""Processes that do the work, and die of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deadly_work import DeadlyWork
from same_state import assert_same
from small_sets import write_set

from eagle_parity.scan.executors import Processes, ThisProcess
from eagle_parity.scan.parts import Part, PartWork, split
from eagle_parity.scan.set_state import SetState
from eagle_parity.scan.shards import find_shards

if TYPE_CHECKING:
    from pathlib import Path

    from eagle_parity.scan.executors import Executor
    from eagle_parity.scan.shards import Shards

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shards, list[Part]]:
    listing = find_shards(str(write_set(tmp_path_factory.mktemp("executors") / "set", 48, tokens=6)))
    return listing.shards, list(split(listing.names))


def total(executor: Executor, work: PartWork, parts: list[Part]) -> SetState:
    state, order = SetState(), []
    for part, found in executor.run(work, parts):
        order.append(part)
        state.merge(found)
    assert order == parts
    return state


def test_a_process_that_is_killed_loses_nothing(listed: tuple[Shards, list[Part]], tmp_path: Path) -> None:
    shards, parts = listed
    work = DeadlyWork(shards, None, once=("hs_20.", str(tmp_path / "killed")))
    found = total(Processes(2), work, parts)
    assert (tmp_path / "killed").exists()
    assert_same(found, total(ThisProcess(), PartWork(shards, None), parts))


def test_a_file_that_kills_its_reader_each_time_is_named(listed: tuple[Shards, list[Part]]) -> None:
    shards, parts = listed
    found = total(Processes(2), DeadlyWork(shards, None, always=("hs_20.",)), parts)
    (problem,) = found.problems.values()
    ((name, reason),) = problem.examples
    assert (problem.count, name) == (1, "rows_0/hs_20.safetensors")
    assert "was killed, each time" in reason
    assert (found.counts.files, found.counts.sequences) == (48, 47)


def test_what_is_abandoned_ends(listed: tuple[Shards, list[Part]]) -> None:
    shards, parts = listed
    running = Processes(2).run(PartWork(shards, None), parts)
    part, _ = next(running)
    assert part == parts[0]
    running.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("files", [0, 1, 5, 16, 17, 127, 2048, 2049, 100_000])
def test_parts_are_all_files_once_and_in_one_range(files: int) -> None:
    parts = list(split([f"f{number}" for number in range(files)]))
    names = [name for part in parts for name in part.names]
    assert names == [f"f{number}" for number in range(files)]
    assert [part.number for part in parts] == list(range(len(parts)))
    assert all(part.names[0] == f"f{part.first}" for part in parts)
    assert [part.range for part in parts] == sorted(part.range for part in parts)
    assert max((len(part.names) for part in parts), default=0) <= 128
