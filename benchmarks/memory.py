"""Peak memory of a comparison against the size of the data, over that of a process that has imported torch."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.comparing import compare, diff_command
from benchmarks.figures import Topic
from benchmarks.machine import MB
from benchmarks.process import IMPORT_TORCH, run
from benchmarks.settings import SHARDS_A_GIB

if TYPE_CHECKING:
    from benchmarks.settings import Settings

SIZES = (1, 4, 16)
"""GiB a side."""
ASKED_MB = 400


def measure(settings: Settings) -> Topic:
    """One run a size; more sizes than the first are further names of the same files."""
    pairs = data.prepare(settings.cache, "pairs", SHARDS_A_GIB)
    bare = [run(IMPORT_TORCH, watch_memory=True) for _ in range(settings.rounds)]
    base = min(ran.peak for ran in bare), min(ran.anonymous or 0 for ran in bare)
    topic = Topic("memory", f"peak of `diff-captures` over `import torch` (itself {base[0] / MB:.0f} MB resident)")
    peaks = []
    compare(diff_command(pairs), SHARDS_A_GIB * data.TOKENS)  # compiles what isn't compiled yet
    for gib in SIZES:
        folder = pairs if gib == 1 else data.linked(pairs, settings.cache, gib)
        try:
            ran = compare(diff_command(folder), gib * SHARDS_A_GIB * data.TOKENS, watch_memory=True)
        finally:
            if folder != pairs:
                shutil.rmtree(folder)
        peaks.append(ran.peak)
        told = f"{gib} GiB a side"
        topic.add(f"{told}: resident", "MB", [(ran.peak - base[0]) / MB], asked=f"{ASKED_MB} at most")
        anonymous = (ran.anonymous or 0) - base[1]
        topic.add(f"{told}: anonymous", "MB", [anonymous / MB], note=f"{ran.seconds:.0f} s, {ran.cpu:.0f} CPU s")
    topic.add(f"{SIZES[-1]} GiB to {SIZES[0]} GiB, whole resident peaks", "", [peaks[-1] / peaks[0]], asked="1")
    topic.notes += [
        "Resident: VmHWM, pages of mapped files among them. Anonymous: RssAnon. Both sampled every 10 ms.",
        f"Above {SIZES[0]} GiB each file has further names (hard links), with the same token ids.",
    ]
    return topic
