"""``make check-engines``: runs the engines' own code, records what it does, and holds the rules against it.

For each engine an environment of its own is made (``engine_environments.py``), a script of ``engines_live`` runs in it,
and its recording goes to ``engines/recordings`` and through ``engine_recordings.compare``. Ends with status 1 where the
rules and the engine differ, or where nothing could be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from engine_environments import CACHE, DISTRIBUTIONS, PROBES, make_environment
from engine_recordings import RECORDINGS, Compared, compare, read_recording, rules_for, write_recording

from eagle_parity.engines import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CURRENT = {engine: BY_NAME[engine].versions[-1] for engine in DISTRIBUTIONS}
"""The newest release that the tables know, of every engine that can be run."""

_TAIL = 20
"""Lines of an engine's output that are shown when its script fails; the file holds the rest."""


def record(engine: str, version: str) -> Path:
    """Runs an engine's code and writes its recording.

    Raises:
        SystemExit: the environment couldn't be made, or the script failed; a line says where its output is.
    """
    try:
        python = make_environment(engine, version)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"the environment of {engine} {version} couldn't be made: {error}") from None
    log = CACHE / f"{engine}-{version}.log"
    with tempfile.TemporaryDirectory(dir=CACHE) as folder, log.open("w", encoding="utf-8") as output:
        # Small matrices gain nothing from a second thread. The environment's own packages only. Some setters make sets,
        # whose order shows in a message.
        settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0"}
        settings.pop("PYTHONPATH", None)
        written = CACHE / f"{engine}-{version}.json"
        done = subprocess.run(
            [python, PROBES / f"{engine}_probe.py", PROBES / "grid.json", folder, written],
            cwd=folder,
            env=settings,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        tail = "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-_TAIL:])
        raise SystemExit(
            f"{engine} {version}: its script ended with status {done.returncode}\n{tail}\nall of it: {log}"
        )
    recording = RECORDINGS / f"{engine}-{version}.json"
    recording.parent.mkdir(exist_ok=True)
    write_recording(json.loads(written.read_text("utf-8")), recording)
    return recording


def judge(recording: Path) -> bool:
    """Prints what was compared; whether something was, and nothing differs."""
    content = read_recording(recording)
    engine = BY_NAME[content["engine"]]
    rules = rules_for(content, engine)
    compared = compare(content, engine)
    print(f"{engine.title} {rules.recorded}, {', '.join(f'{k} {v}' for k, v in content['made_with'].items())}")
    if rules.version != rules.recorded:
        print(f"  {rules.recorded} has no rules: held against those of {rules.version}, the nearest known release")
    print_table(compared)
    for line in content["not_run"]:
        print(f"  not run: {line}")
    differences = [difference for line in compared for difference in line.differences]
    for difference in differences:
        print(f"\n{difference}")
    print(f"\n  {len(differences)} differences\n" if differences else "  no difference\n")
    return not differences and any(line.outcome == "agrees" for line in compared)


def print_table(compared: Iterable[Compared]) -> None:
    """One line a class."""
    rows = [(line.what, str(line.cases), str(line.states), line.outcome) for line in compared]
    rows.insert(0, ("class", "cases", "states", "outcome"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for what, cases, states, outcome in rows:
        print(f"  {what:{widths[0]}}  {cases:>{widths[1]}}  {states:>{widths[2]}}  {outcome}")


def main() -> None:
    parser = argparse.ArgumentParser(description="runs the engines' own code and holds the rules against it")
    parser.add_argument("--engine", choices=sorted(DISTRIBUTIONS), help="only this one; default: both")
    parser.add_argument("--version", help="of the engine that is named; default: the newest in the tables")
    parser.add_argument("--recorded", action="store_true", help="compare what is recorded, without running an engine")
    chosen = parser.parse_args()
    if chosen.version and not chosen.engine:
        parser.error("--version says nothing without --engine")
    wanted = {chosen.engine: chosen.version or CURRENT[chosen.engine]} if chosen.engine else CURRENT
    agreed = True
    for engine, version in wanted.items():
        recording = RECORDINGS / f"{engine}-{version}.json" if chosen.recorded else record(engine, version)
        agreed &= judge(recording)
    sys.exit(0 if agreed else 1)


if __name__ == "__main__":
    main()
