"""Does the engine guess the layers?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.findings import LAYER_IDS_DEFAULTED, Severity
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject


def run(subject: ConfigSubject) -> Outcomes:
    """A note where the default is the trained wiring, a warning where that isn't known.

    A default that is not the trained wiring is the error ``layer-id-convention``; a default beside a list that isn't
    read is ``layer-ids-ignored``.
    """
    trained = subject.trained_slots
    for evaluation in subject.engines:
        for group in subject.group(
            evaluation,
            lambda s: s.default and s.list_serves and not s.ignored and trained in (None, s.boundaries),
        ):
            fed = format_boundaries(group.first.boundaries)
            known = trained is not None
            ending = (
                "which is what the head was trained on" if known else "and nothing says that the head was trained on it"
            )
            yield LAYER_IDS_DEFAULTED.finding(
                f"The draft has no id list; {group.title} takes its default {fed}, {ending}.",
                evidence=subject.evidence(group),
                severity=Severity.NOTE if known else Severity.WARNING,
                remedy=subject.advice(group),
                engine=group.label,
            )


CHECK = Check(
    name="layer-ids-defaulted",
    question="Does the engine find no id list and take its default?",
    emits=(LAYER_IDS_DEFAULTED,),
    needs="--engine",
    run=run,
)
