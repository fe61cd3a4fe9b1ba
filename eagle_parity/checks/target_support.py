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
    """An error where the engine refuses the class, a skip where the tables have no rule for it."""
    if subject.target.residual_streams > 1:
        yield UNSUPPORTED_TARGET.finding(
            f"The target has {subject.target.residual_streams} residual streams (hyper-connections), for which"
            " boundaries are not defined: no wiring can be compared.",
            evidence={"hc_mult": subject.target.residual_streams},
            remedy="Compare captured tensors with `eagle-parity diff-captures` instead.",
        )
        return
    for evaluation in subject.engines:
        reasons = dict.fromkeys(s.reason for s in evaluation.served if isinstance(s, Unjudged))
        for reason in reasons:
            yield Skip(check=NAME, reason=f"{evaluation.name}: {reason}", blocks_verdict=True)
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
    question="Can the engine capture hidden states of this target class?",
    emits=(UNSUPPORTED_TARGET,),
    needs="--engine and --target",
    run=run,
)
