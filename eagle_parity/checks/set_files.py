"""Could every file of a set be read?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.checks.set_problems import told
from eagle_parity.findings import UNREADABLE_SHARD
from eagle_parity.scan.problem_kinds import UNREADABLE

if TYPE_CHECKING:
    from eagle_parity.scan.measurements import SetMeasurements


def run(found: SetMeasurements) -> Outcomes:
    """One finding for all files: a set has millions."""
    problem = found.problems.get(UNREADABLE)
    if problem is not None:
        yield UNREADABLE_SHARD.finding(
            f"{problem.count:,} of {found.files:,} files can't be read: {told(problem)}",
            evidence={
                "files": problem.count,
                "of": found.files,
                "examples": [{"file": name, "reason": reason} for name, reason in problem.examples],
            },
        )
    if found.closed_count:
        folder, reason = found.closed[0]
        yield UNREADABLE_SHARD.finding(
            f"{found.closed_count:,} folders can't be listed, such as {folder} ({reason})",
            evidence={
                "folders": found.closed_count,
                "examples": [{"folder": name, "reason": why} for name, why in found.closed],
            },
        )


CHECK = Check(
    name="set-files",
    question="Could every file of the set be read?",
    emits=(UNREADABLE_SHARD,),
    needs="a training set",
    run=run,
)
