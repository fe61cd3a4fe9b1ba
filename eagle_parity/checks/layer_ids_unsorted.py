"""Is the id list in ascending order?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.findings import LAYER_IDS_UNSORTED, Severity
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject

_NO_ENGINE_REMEDY = "Train and serve with an ascending list."


def run(subject: ConfigSubject) -> Outcomes:
    """An error where the engine's order isn't the trained one, else a warning."""
    told: set[str] = set()
    for group, cause in subject.by_cause(LAYER_IDS_UNSORTED):
        served = group.first
        told.add(served.key or "")
        yield LAYER_IDS_UNSORTED.finding(
            f"{group.title} reads {served.key} {list(served.ids or ())} and concatenates"
            f" {format_boundaries(served.boundaries)}; {subject.trained_words()}: the same states in another order.",
            evidence=subject.evidence(group, cause),
            severity=Severity.ERROR,
            remedy=subject.advice(group),
            engine=group.label,
        )
    for evaluation in subject.engines:
        for group in subject.group(evaluation, lambda s: s.list_serves and s.ids and list(s.ids) != sorted(s.ids)):
            served = group.first
            told.add(served.key or "")
            cause_here = subject.causes[id(served)]
            if cause_here is None:
                yield LAYER_IDS_UNSORTED.finding(
                    f"{served.key} {list(served.ids or ())} is not ascending; {group.title} concatenates"
                    f" {format_boundaries(served.boundaries)}, and another engine or trainer may keep the order.",
                    evidence=subject.evidence(group),
                    remedy=subject.advice(group),
                    engine=group.label,
                )
    if subject.read_by_an_engine:
        return
    for entry in subject.stated:
        ids = list(entry.ids or ())
        if entry.key not in told and ids != sorted(ids):
            yield LAYER_IDS_UNSORTED.finding(
                f"{entry.key} {ids} is not ascending: most engines concatenate in ascending order whatever it says.",
                evidence={"key": entry.key, "ids": ids},
                remedy=_NO_ENGINE_REMEDY,
            )


CHECK = Check(
    name="layer-ids-unsorted",
    question="Is the id list ascending, and is the engine's order the trained one?",
    emits=(LAYER_IDS_UNSORTED,),
    needs="an id list",
    run=run,
)
