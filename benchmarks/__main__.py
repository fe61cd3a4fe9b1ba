"""``python -m benchmarks``: some or all of the measurements, one table each."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks import cluster, files, machine, memory, pairs, peers, reference, startup
from benchmarks.process import ROOT, CommandFailedError
from benchmarks.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.figures import Topic

SCHEMA_VERSION = 1

TOPICS: dict[str, Callable[[Settings], Topic]] = {
    "startup": startup.measure,
    "pairs": pairs.measure,
    "peers": peers.measure,
    "memory": memory.measure,
    "reference": reference.measure,
    "files": files.measure,
    "cluster": cluster.measure,
}

PIPE_WIDTH = 160


def main() -> int:
    """Measures, prints, and writes JSON where that is asked for; 1 where a topic broke off."""
    settings, names, output = _arguments()
    settings.cache.mkdir(parents=True, exist_ok=True)
    told = machine.describe()
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    console.print(", ".join(f"{key} {value}" for key, value in told.items()), highlight=False)
    topics, broken = [], {}
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr)
        try:
            topic = TOPICS[name](settings)
        except CommandFailedError as error:
            broken[name] = str(error)
            print(f"{name}: {error}", file=sys.stderr)
            continue
        console.print(topic.table(), highlight=False)
        topics.append(topic.plain())
    if output is not None:
        content = {
            "schema_version": SCHEMA_VERSION,
            "machine": told,
            "settings": {"gib": settings.gib, "rounds": settings.rounds, "full": settings.full},
            "topics": topics,
            "broken": broken,
        }
        output.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    return 1 if broken else 0


def _arguments() -> tuple[Settings, list[str], Path | None]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", metavar="TOPICS", help=f"some of {','.join(TOPICS)}; all without it")
    parser.add_argument("--gib", type=float, default=1.0, help="of data a side, for pairs and peers")
    parser.add_argument("--rounds", type=int, default=3, help="of what takes seconds")
    parser.add_argument("--full", action="store_true", help="100,000 files, peers on all of the data")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "bench", help="for generated data")
    given = parser.parse_args()
    names = [name for name in given.only.split(",") if name] or list(TOPICS)
    if unknown := [name for name in names if name not in TOPICS]:
        parser.error(f"no topic {', '.join(unknown)}; there are {', '.join(TOPICS)}")
    if given.rounds < 1 or given.gib <= 0:
        parser.error("--rounds and --gib must be above 0")
    settings = Settings(cache=given.cache.absolute(), gib=given.gib, rounds=given.rounds, full=given.full)
    return settings, names, given.json


if __name__ == "__main__":
    sys.exit(main())
