"""Three live slots matched against every boundary of a large model, beside one read of the reference."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.figures import Topic, ratios
from benchmarks.machine import GB, read_seconds, size_of
from benchmarks.process import IMPORT_TORCH, TOOL, CommandFailedError, Ran, run

if TYPE_CHECKING:
    from benchmarks.settings import Settings


def measure(settings: Settings) -> Topic:
    """Rounds of: a read of the reference with one and with two threads, a bare ``import torch``, the comparison."""
    folder = data.prepare(settings.cache, "reference", 1)
    files = data.shards(folder / "reference")
    size = size_of(files)
    command = [*TOOL, "diff-captures", str(folder / "trained"), str(folder / "live")]
    command += ["--reference", str(folder / "reference"), "--format", "json"]
    _matched(command)
    reads: dict[int, list[float]] = {1: [], 2: []}
    read_cpu = []
    ran, bare, inside = [], [], []
    for _ in range(settings.rounds):
        read_seconds(files, 2)  # uncounted: brings into the page cache what has left it
        for threads, taken in reads.items():
            seconds, cpu = read_seconds(files, threads)
            taken.append(seconds)
        read_cpu.append(cpu)
        bare.append(run(IMPORT_TORCH))
        read_seconds(files, 2)  # as above
        one, seconds = _matched(command)
        ran.append(one)
        inside.append(seconds)
    topic = Topic(
        "reference",
        f"{len(data.WIRING)} live slots against {data.REFERENCE_BOUNDARIES} boundaries of {data.REFERENCE_HIDDEN:,}"
        f" dimensions over {data.REFERENCE_TOKENS:,} tokens, {size / GB:.2f} GB",
    )
    for threads, taken in reads.items():
        topic.add(f"one read of the reference, {threads} thread(s)", "s", taken)
    topic.add("the last of these: CPU", "CPU s", read_cpu)
    topic.add("`import torch` alone: wall", "s", [r.seconds for r in bare])
    topic.add("`import torch` alone: CPU", "CPU s", [r.cpu for r in bare])
    topic.add("the whole command: wall", "s", [r.seconds for r in ran], note="it reads both sides too")
    topic.add("the whole command: CPU", "CPU s", [r.cpu for r in ran])
    topic.add("the comparison inside: wall", "s", inside, note="by the result's own clock")
    for threads, taken in reads.items():
        topic.add(f"the comparison inside, to the read with {threads} thread(s)", "", ratios(inside, taken))
        topic.add(
            f"the whole command, to the read with {threads} thread(s)", "", ratios([r.seconds for r in ran], taken)
        )
    less = [a.cpu - b.cpu for a, b in zip(ran, bare, strict=True)]
    topic.add("the whole command less `import torch`, to the read: CPU", "", ratios(less, read_cpu))
    return topic


def _matched(command: list[str]) -> tuple[Ran, float]:
    """One run, and the seconds that the comparison says it took.

    Raises:
        CommandFailedError: a slot wasn't found where it is.
    """
    ran = run(command)
    measurements = json.loads(ran.stdout)["measurements"]
    live = [slot["live"] for slot in measurements["identified"]]
    if live != list(data.WIRING):
        raise CommandFailedError(f"{' '.join(command)}: live slots are {live}, not {list(data.WIRING)}")
    return ran, float(measurements["seconds"])
