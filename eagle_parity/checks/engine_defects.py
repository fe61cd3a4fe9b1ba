"""Does this release have a known defect on this path?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.findings import KNOWN_ENGINE_DEFECT, Severity

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject


def run(subject: ConfigSubject) -> Outcomes:
    """A warning for each defect that the draft meets; the wiring is judged apart from it.

    An error where what is fed is no boundary at all: no wiring can be right then.
    """
    for evaluation in subject.engines:
        for group in subject.group(evaluation, lambda s: s.list_serves and s.defects):
            for defect in group.first.defects:
                yield KNOWN_ENGINE_DEFECT.finding(
                    f"{group.title} has a known defect on this path, {defect.name}. {defect.summary}.",
                    evidence={"defect": defect.name, "source": defect.source},
                    remedy=defect.remedy[:1].upper() + defect.remedy[1:] + ".",
                    severity=Severity.ERROR if defect.feeds_no_boundary else None,
                    engine=group.label,
                )


CHECK = Check(
    name="engine-defects",
    question="Does this engine version have a known defect on this path?",
    emits=(KNOWN_ENGINE_DEFECT,),
    needs="--engine",
    run=run,
)
