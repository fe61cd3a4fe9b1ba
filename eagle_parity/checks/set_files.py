"""Could every file of a set be read?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.checks.set_problems import told
from eagle_parity.findings import UNREADABLE_SHARD
from eagle_parity.results import Skip
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
    for folder, reason in found.closed:
        yield UNREADABLE_SHARD.finding(
            f"{folder}: a folder that can't be listed ({reason})", evidence={"folder": folder, "reason": reason}
        )
    if not found.complete:
        yield Skip(
            check=CHECK.name,
            reason=f"the scan was interrupted after {found.files:,} files: run it again with the same --summary",
            blocks_verdict=True,
        )


CHECK = Check(
    name="set-files",
    question="Could every file of the set be read?",
    emits=(UNREADABLE_SHARD,),
    needs="a training set",
    run=run,
)
