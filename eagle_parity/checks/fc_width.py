"""Does fc take as many slots as it is fed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.checks.engine_failure import failing
from eagle_parity.findings import FC_WIDTH
from eagle_parity.quoting import plain
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject

NAME = "fc-width"


def run(subject: ConfigSubject) -> Outcomes:
    """One error where an engine or the trained wiring has another number of slots than fc."""
    draft, target = subject.draft, subject.target
    slots = draft.fc_slots(target.hidden_size)
    told = False
    for group, cause in subject.by_cause(FC_WIDTH):
        told = True
        yield FC_WIDTH.finding(
            f"{group.title} {failing(group)}.",
            evidence=subject.evidence(group, cause) | {"fc_slots": slots, "fc_shape": _shape(subject)},
            remedy=subject.advice(group),
            engine=group.label,
        )
    if not subject.is_eagle3:
        return
    if slots is None:
        if draft.fc_shape is None:
            why = draft.fc_source or "no weights lie beside the draft's config"
            yield Skip(check=NAME, reason=f"fc's width isn't known: {plain(why)}")
        return
    if told:
        return
    trained = subject.trained_slots
    if trained is not None and len(trained) != slots:
        yield FC_WIDTH.finding(
            f"The head's fc takes {slots} slots of {target.hidden_size}, and the trained wiring that was stated has"
            f" {len(trained)}.",
            evidence={"fc_slots": slots, "fc_shape": _shape(subject), "trained": list(trained)},
            remedy="State the wiring that this head was trained on, or check the right head.",
        )
    elif not subject.read_by_an_engine:
        for entry in subject.stated:
            if len(entry.ids or ()) != slots:
                yield FC_WIDTH.finding(
                    f"The head's fc takes {slots} slots of {target.hidden_size}, and {entry.key} {entry} has"
                    f" {len(entry.ids or ())}.",
                    evidence={"fc_slots": slots, "fc_shape": _shape(subject), "key": entry.key},
                )


def _shape(subject: ConfigSubject) -> list[int] | None:
    return None if subject.draft.fc_shape is None else list(subject.draft.fc_shape)


CHECK = Check(
    name=NAME,
    question="Does the head's fc take as many slots as it is fed?",
    emits=(FC_WIDTH,),
    needs="--target, and the draft's weights beside its config",
    run=run,
)
