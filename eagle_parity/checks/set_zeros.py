"""Is there something in every slot of a set?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.checks.set_problems import evidence, told
from eagle_parity.findings import DEAD_DIMENSIONS
from eagle_parity.scan import problem_kinds

if TYPE_CHECKING:
    from eagle_parity.scan.measurements import SetMeasurements


def run(found: SetMeasurements) -> Outcomes:
    """One finding for all sequences."""
    problem = found.problems.get(problem_kinds.DEAD)
    if problem is not None:
        yield DEAD_DIMENSIONS.finding(
            f"{problem.count:,} states of {found.sequences:,} sequences: {told(problem)}",
            evidence=evidence(problem, found.sequences),
        )


CHECK = Check(
    name="set-zeros",
    question="Is every state of the set more than zeros?",
    emits=(DEAD_DIMENSIONS,),
    needs="a training set",
    run=run,
)
