"""Time against the number of files, with one worker and with two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.comparing import compare, diff_command
from benchmarks.figures import Topic, ratios
from benchmarks.process import TOOL, on_processors, run

if TYPE_CHECKING:
    from benchmarks.settings import Settings

COUNTS = (100, 2_000)
FULL_COUNTS = (100, 10_000, 100_000)
WORKERS = (1, 2)


def measure(settings: Settings) -> Topic:
    """One run each of ``diff-captures`` and ``scan``; as many rounds as set for the smallest number of files."""
    topic = Topic("files", f"small shards, {data.SMALL_TOKENS} tokens each; seconds of the whole command")
    counts = FULL_COUNTS if settings.full else COUNTS
    scans = has_scan()
    seconds: dict[tuple[str, int, int], float] = {}
    cpus: dict[tuple[str, int, int], float] = {}
    for count in counts:
        folder = data.prepare(settings.cache, "small", count)
        rounds = settings.rounds if count == counts[0] else 1
        commands = [("diff-captures", diff_command(folder))]
        if scans:
            commands.append(("scan", [*TOOL, "scan", str(folder / "trained"), "--all", "--format", "json"]))
        for name, command in commands:
            for workers in WORKERS:
                options = ["--workers", str(workers)] if name == "scan" else []
                ran = []
                for _ in range(rounds):
                    with on_processors(workers):
                        tokens = count * data.SMALL_TOKENS
                        ran.append(run([*command, *options], may_fail=True) if options else compare(command, tokens))
                taken = [r.seconds for r in ran]
                seconds[name, workers, count] = min(taken)
                cpus[name, workers, count] = cpu = min(r.cpu for r in ran)
                topic.add(f"{name}, {count:,} files a side, workers {workers}", "s", taken, note=f"{cpu:.1f} CPU s")
    for name in ("diff-captures", *(["scan"] if scans else [])):
        for workers in WORKERS:
            for taken_of, unit in ((seconds, "ms"), (cpus, "CPU ms")):
                few, many = taken_of[name, workers, counts[0]], taken_of[name, workers, counts[-1]]
                each = 1000 * (many - few) / (counts[-1] - counts[0])
                what = f"{name}, a further file, workers {workers}"
                topic.add(what, unit, [each], note="from the smallest and the largest number")
        for count in counts:
            one, two = ([seconds[name, workers, count]] for workers in WORKERS)
            topic.add(f"{name}, {count:,} files, workers 1 to 2", "", ratios(one, two))
    if not scans:
        topic.absent("scan", "this version has no such command")
    topic.notes.append("Workers of diff-captures: as many as the process may use processors, here by its affinity.")
    return topic


def has_scan() -> bool:
    """Whether this version of the tool has the command."""
    return run([*TOOL, "scan", "--help"], may_fail=True).status == 0
