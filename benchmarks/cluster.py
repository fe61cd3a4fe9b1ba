"""``scan`` over a Ray cluster on this machine, beside as many processes."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.figures import Topic, ratios
from benchmarks.process import run

if TYPE_CHECKING:
    from benchmarks.settings import Settings

FILES, FULL_FILES = 8_000, 40_000
WORKERS = 2
LEFT_OUT = 2 * WORKERS
"""Parts whose time is left out of a rate: until they are done a worker has started and imported torch."""
ASKED = "0.8 at least"


def measure(settings: Settings) -> Topic:
    """Rounds of both executors in turns, in one process, over small shards of one side."""
    count = FULL_FILES if settings.full else FILES
    topic = Topic("cluster", f"`scan` of {count:,} small shards by {WORKERS} workers of each kind, 64 rows a sequence")
    if importlib.util.find_spec("ray") is None:
        topic.add("Ray's rate to that of processes", "", [], asked=ASKED, note="ray isn't installed: the extra `ray`")
        return topic
    folder = data.prepare(settings.cache, "small", count) / "trained"
    answer = run([sys.executable, "-m", "benchmarks.cluster", str(folder), str(settings.rounds)]).stdout
    taken: dict[str, list[list[float]]] = json.loads(answer.splitlines()[-1])
    rates = {}
    for name, what in (("processes", "processes"), ("ray", "Ray")):
        first, whole, rates[name] = (list(each) for each in zip(*taken[name], strict=True))
        topic.add(f"{what}: until the first part is there", "s", first)
        topic.add(f"{what}: all parts", "s", whole)
        topic.add(f"{what}: files a second, once all workers have begun", "1/s", rates[name])
    topic.add("Ray's rate to that of processes", "", ratios(rates["ray"], rates["processes"]), asked=ASKED)
    topic.notes.append("Both give parts in their order; a part's time is that at which it was handed over.")
    return topic


def main() -> None:
    """Prints for each executor, a round each: seconds to the first part, seconds in all, files a second."""
    from eagle_parity.scan.executors import Processes
    from eagle_parity.scan.parts import PartWork, split
    from eagle_parity.scan.ray_cluster import RayCluster
    from eagle_parity.scan.shards import find_shards

    folder, rounds = sys.argv[1], int(sys.argv[2])
    found = find_shards(folder)
    parts, work = list(split(found.names)), PartWork(found.shards, 64)
    taken: dict[str, list[tuple[float, float, float]]] = {"processes": [], "ray": []}
    kinds = {"processes": lambda: Processes(WORKERS), "ray": lambda: RayCluster(WORKERS)}
    for part in parts[:2]:
        work(part)  # what is compiled or cached is so for both
    for number in range(rounds):
        for name in list(kinds)[:: 1 if number % 2 == 0 else -1]:
            started = time.perf_counter()
            times = [time.perf_counter() - started for _ in kinds[name]().run(work, parts)]
            files = sum(len(part.names) for part in parts[LEFT_OUT:])
            taken[name].append((times[0], times[-1], files / (times[-1] - times[LEFT_OUT - 1])))
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
