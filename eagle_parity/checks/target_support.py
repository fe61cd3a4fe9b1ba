"""Can the engine serve EAGLE-3 on this target class at all?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.engines.serving import Unjudged
from eagle_parity.findings import UNSUPPORTED_TARGET
from eagle_parity.quoting import evidence_value
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject

NAME = "target-support"


def run(subject: ConfigSubject) -> Outcomes:
    """An error where the engine refuses the class or the target has no boundaries, a skip where no rule covers it."""
    unjudged = {
        str(evaluation.name): list(dict.fromkeys(s.reason for s in evaluation.served if isinstance(s, Unjudged)))
        for evaluation in subject.engines
    }
    refused_by_all = bool(subject.engines) and not any(unjudged.values())
    if subject.target.no_boundaries is None:
        for name, reasons in unjudged.items():
            for reason in reasons:
                yield Skip(check=NAME, reason=f"{name}: {reason}", blocks_verdict=True)
    elif not refused_by_all:
        yield UNSUPPORTED_TARGET.finding(
            f"No wiring can be compared: {subject.target.no_boundaries}, and boundaries are not defined for that.",
            evidence={
                "residual_streams": subject.target.residual_streams,
                "engines": [f"{name}: {reason}" for name, reasons in unjudged.items() for reason in reasons],
            },
            remedy="Compare captured tensors with `eagle-parity diff-captures` instead.",
        )
    for group, _ in subject.by_cause(UNSUPPORTED_TARGET):
        reason = group.first.failure.words if group.first.failure else ""
        named = subject.target.architecture or "this target"
        yield UNSUPPORTED_TARGET.finding(
            f"{group.title} can't serve EAGLE-3 on {named}: {reason}.",
            evidence={
                "architectures": evidence_value(list(subject.target.architectures)),
                "outcome": group.first.outcome.value,
                "reason": reason,
                "source": group.first.source,
            },
            engine=group.label,
        )


CHECK = Check(
    name=NAME,
    question="Can the engine capture hidden states of this target, and are they boundaries?",
    emits=(UNSUPPORTED_TARGET,),
    needs="--engine and --target",
    run=run,
)
