"""Page-cached bfloat16 shards of two sides compared, all statistics, beside the machine's own read of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.comparing import compare, diff_command
from benchmarks.figures import Topic, ratios
from benchmarks.machine import GB, read_seconds, size_of
from benchmarks.process import IMPORT_TORCH, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.settings import Settings

READING_THREADS = 2
ASKED = "2 at most"
"""Half of the rate at which two threads read the same files."""


def measure(settings: Settings) -> Topic:
    """Rounds of: a read of all files, a bare ``import torch``, the command, the comparison in a process that is up."""
    folder = data.prepare(settings.cache, "pairs", settings.shards)
    files = data.shards(folder)
    size, tokens = size_of(files), settings.shards * data.TOKENS
    command = diff_command(folder)
    taken: dict[str, list[float]] = {}

    def keep(name: str, *numbers: float) -> None:
        for key, number in zip(("seconds", "cpu"), numbers, strict=False):
            taken.setdefault(f"{name} {key}", []).append(number)

    def bare() -> None:
        ran = run(IMPORT_TORCH)
        keep("torch", ran.seconds, ran.cpu)

    def whole() -> None:
        ran = compare(command, tokens)
        keep("command", ran.seconds, ran.cpu)

    def passes() -> None:
        first, again = compare_inside(folder)
        keep("first", *first)
        keep("again", *again)

    steps: list[Callable[[], None]] = [
        lambda: keep("read", *read_seconds(files, READING_THREADS)),
        bare,
        whole,
        passes,
    ]
    compare(command, tokens)  # compiles the loops where they aren't compiled yet
    for number in range(settings.rounds):
        for step in steps[number % len(steps) :] + steps[: number % len(steps)]:
            # Uncounted: a system that is short of memory takes files out of the page cache.
            read_seconds(files, READING_THREADS)
            step()

    topic = Topic("pairs", f"{len(files) // 2} shards a side, {size / GB:.2f} GB in all, compared by `diff-captures`")
    topic.add("two threads read the mapped files", "GB/s", [size / s / GB for s in taken["read seconds"]])
    topic.add("the same: CPU", "CPU s", taken["read cpu"])
    for name, what, note in (
        ("torch", "`import torch` alone", "in each of the next one's"),
        ("command", "the whole command", "start-up, pairing, result as JSON"),
        ("first", "the comparison inside a process", "the first one there: the compiled loops are loaded"),
        ("again", "the comparison again", "in the same process"),
    ):
        topic.add(f"{what}: wall", "s", taken[f"{name} seconds"])
        topic.add(f"{what}: CPU", "CPU s", taken[f"{name} cpu"], note=note)
    for name, what in (("command", "the whole command"), ("again", "the comparison again")):
        topic.add(
            f"{what}, to the read: wall", "", ratios(taken[f"{name} seconds"], taken["read seconds"]), asked=ASKED
        )
        topic.add(f"{what}, to the read: CPU", "", ratios(taken[f"{name} cpu"], taken["read cpu"]))
    topic.notes.append("Where others are busy CPU seconds say more than wall: they aren't waited for.")
    return topic


def compare_inside(folder: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds and CPU seconds of the first comparison in a process behind the imports, and of the second one."""
    first, again = json.loads(run([sys.executable, "-m", "benchmarks.pairs", str(folder)]).stdout)
    return first, again


def main() -> None:
    """Prints wall and CPU seconds of a comparison, twice over in this process."""
    import time

    import torch

    from eagle_parity.comparison.diff import DiffInputs, diff_captures
    from eagle_parity.readers import open_hidden_states
    from eagle_parity.wiring import parse_boundaries

    torch.set_num_threads(1)  # as the command does
    folder = Path(sys.argv[1])
    boundaries = parse_boundaries(data.BOUNDARIES, option="")
    taken = []
    for _ in range(2):
        seconds, cpu = time.perf_counter(), time.process_time()
        inputs = DiffInputs(
            trained=open_hidden_states(str(folder / "trained"), role="trained"),
            live=open_hidden_states(str(folder / "live"), role="live"),
            trained_boundaries=boundaries,
            live_boundaries=boundaries,
        )
        diff_captures(inputs)
        taken.append((time.perf_counter() - seconds, time.process_time() - cpu))
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
