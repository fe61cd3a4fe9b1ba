"""Commands that compare two sides of generated data, and whether they said what is true of those."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.process import TOOL, CommandFailedError, Ran, run

if TYPE_CHECKING:
    from pathlib import Path


def diff_command(folder: Path) -> list[str]:
    """``diff-captures`` of the two sides of a folder, all that it measures written as JSON."""
    boundaries = ("--trained-boundaries", data.BOUNDARIES, "--live-boundaries", data.BOUNDARIES)
    return [*TOOL, "diff-captures", str(folder / "trained"), str(folder / "live"), *boundaries, "--format", "json"]


def compare(command: list[str], tokens: int, *, watch_memory: bool = False) -> Ran:
    """Runs a comparison that has to find parity over so many tokens.

    Raises:
        CommandFailedError: it failed, or its result is another one: a wrong answer has no speed.
    """
    ran = run(command, watch_memory=watch_memory)
    result: dict[str, Any] = json.loads(ran.stdout)
    found = result["verdict"], result["measurements"]["tokens"]
    if found != ("pass", tokens):
        raise CommandFailedError(f"{' '.join(command)}: {found}, not parity over {tokens} tokens")
    return ran
