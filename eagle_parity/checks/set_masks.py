"""Is there a token to train on in every sequence?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.checks.set_problems import evidence, told
from eagle_parity.findings import EMPTY_MASK
from eagle_parity.results import Skip
from eagle_parity.scan import problem_kinds

if TYPE_CHECKING:
    from eagle_parity.scan.measurements import SetMeasurements


def run(found: SetMeasurements) -> Outcomes:
    """One finding for all sequences."""
    unknown = found.problems.get(problem_kinds.NO_MASK)
    if unknown is not None:
        yield Skip(check=CHECK.name, reason=f"{unknown.count:,} sequences have no mask: {told(unknown)}")
    elif not found.mask_tokens:
        yield Skip(check=CHECK.name, reason="no sequence has a loss mask")
    problem = found.problems.get(problem_kinds.EMPTY_MASK)
    if problem is not None:
        yield EMPTY_MASK.finding(
            f"{problem.count:,} of {found.sequences:,} sequences: {told(problem)}",
            evidence=evidence(problem, found.sequences),
        )


CHECK = Check(
    name="set-masks",
    question="Does every loss mask leave tokens to train on?",
    emits=(EMPTY_MASK,),
    needs="a training set",
    run=run,
)
