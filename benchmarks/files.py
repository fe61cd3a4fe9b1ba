"""Time against the number of files, with one worker and with two."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.comparing import compare, diff_command
from benchmarks.figures import Topic, ratios
from benchmarks.process import TOOL, CommandFailedError, Ran, on_processors, run

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.settings import Settings

COUNTS = (100, 2_000)
FULL_COUNTS = (100, 10_000, 100_000)
WORKERS = (1, 2)
SCANNED = (0, 1, 3)
"""Exit statuses of a scan that came to its end: whatever it found."""


def measure(settings: Settings) -> Topic:
    """One run each of ``diff-captures`` and ``scan``; as many rounds as set for the smallest number of files."""
    topic = Topic("files", f"small shards, {data.SMALL_TOKENS} tokens each; seconds of the whole command")
    counts = FULL_COUNTS if settings.full else COUNTS
    names = ("diff-captures", "scan")
    best: dict[tuple[str, int, int], Ran] = {}
    for count in counts:
        folder = data.prepare(settings.cache, "small", count)
        rounds = settings.rounds if count == counts[0] else 1
        for name, workers in product(names, WORKERS):
            ran = [_run(name, folder, count, workers) for _ in range(rounds)]
            best[name, workers, count] = quickest = min(ran, key=lambda one: one.seconds)
            what, note = f"{name}, {count:,} files a side, workers {workers}", f"{quickest.cpu:.1f} CPU s"
            topic.add(what, "s", [one.seconds for one in ran], note=note)
    further = counts[-1] - counts[0]
    for name, workers in product(names, WORKERS):
        few, many = best[name, workers, counts[0]], best[name, workers, counts[-1]]
        what, note = f"{name}, a further file, workers {workers}", "from the smallest and the largest number"
        topic.add(what, "ms", [1000 * (many.seconds - few.seconds) / further], note=note)
        topic.add(what, "CPU ms", [1000 * (many.cpu - few.cpu) / further], note=note)
    for name, count in product(names, counts):
        one, two = ([best[name, workers, count].seconds] for workers in WORKERS)
        topic.add(f"{name}, {count:,} files, workers 1 to 2", "", ratios(one, two))
    topic.notes.append("Workers of diff-captures: as many as the process may use processors, here by its affinity.")
    return topic


def _run(name: str, folder: Path, count: int, workers: int) -> Ran:
    with on_processors(workers):
        if name == "diff-captures":
            return compare(diff_command(folder), count * data.SMALL_TOKENS)
        command = [*TOOL, "scan", str(folder / "trained"), "--all", "--workers", str(workers), "--format", "json"]
        ran = run(command, may_fail=True)
        if ran.status not in SCANNED:
            raise CommandFailedError(f"{' '.join(command)}: status {ran.status}, {ran.stderr[-300:]}")
        return ran
