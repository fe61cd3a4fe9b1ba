"""Is every layer named once?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.checks.engine_failure import failing
from eagle_parity.findings import LAYER_IDS_DUPLICATE
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject, Variants


def run(subject: ConfigSubject) -> Outcomes:
    """An error for each engine that is a state short by it; where no engine was judged, for the list itself."""
    for group, cause in subject.by_cause(LAYER_IDS_DUPLICATE):
        served = group.first
        yield LAYER_IDS_DUPLICATE.finding(
            f"{served.key} names {_twice(served.ids or ())} more than once. {group.title} captures a layer once and"
            f" {_ending(group)}.",
            evidence=subject.evidence(group, cause),
            remedy=subject.advice(group),
            engine=group.label,
        )
    if subject.read_by_an_engine:
        return
    for entry in subject.stated:
        ids = entry.ids or ()
        if len(set(ids)) < len(ids):
            yield LAYER_IDS_DUPLICATE.finding(
                f"{entry.key} names {_twice(ids)} more than once.", evidence={"key": entry.key, "ids": list(ids)}
            )


def _ending(group: Variants) -> str:
    return f"feeds {format_boundaries(group.first.boundaries)}" if group.first.serves else failing(group)


def _twice(ids: Sequence[int]) -> str:
    return ", ".join(str(n) for n in dict.fromkeys(ids) if ids.count(n) > 1) or "a layer"


CHECK = Check(
    name="layer-ids-duplicate",
    question="Is every layer named once?",
    emits=(LAYER_IDS_DUPLICATE,),
    needs="an id list",
    run=run,
)
