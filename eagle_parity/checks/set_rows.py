"""Has every sequence as many states as tokens?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.checks.set_problems import evidence, told
from eagle_parity.findings import ROW_COUNT
from eagle_parity.scan import problem_kinds

if TYPE_CHECKING:
    from eagle_parity.scan.measurements import SetMeasurements


def run(found: SetMeasurements) -> Outcomes:
    """One finding for all sequences."""
    problem = found.problems.get(problem_kinds.ROW_COUNT)
    if problem is not None:
        yield ROW_COUNT.finding(
            f"{problem.count:,} of {found.sequences:,} sequences: {told(problem)}",
            evidence=evidence(problem, found.sequences),
        )


CHECK = Check(
    name="set-rows",
    question="Has every sequence of the set as many states as tokens?",
    emits=(ROW_COUNT,),
    needs="a training set",
    run=run,
)
