"""Is every number of a set one?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.checks.set_problems import evidence, told
from eagle_parity.findings import NON_FINITE
from eagle_parity.scan import problem_kinds

if TYPE_CHECKING:
    from eagle_parity.scan.measurements import SetMeasurements


def run(found: SetMeasurements) -> Outcomes:
    """One finding for all sequences."""
    problem = found.problems.get(problem_kinds.NON_FINITE)
    if problem is not None:
        yield NON_FINITE.finding(
            f"{problem.count:,} of {found.sequences:,} sequences: {told(problem)}",
            evidence=evidence(problem, found.sequences),
        )


CHECK = Check(
    name="set-finite",
    question="Are the states of the set free of NaN and infinity?",
    emits=(NON_FINITE,),
    needs="a training set",
    run=run,
)
