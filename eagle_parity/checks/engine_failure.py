"""Will the engine refuse to load, or die at a request?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.engines.failures import FailureKind
from eagle_parity.findings import ENGINE_FAILURE
from eagle_parity.results import Outcome
from eagle_parity.wiring import EMBEDDING, POST_NORM, format_boundaries

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject, Variants
    from eagle_parity.engines.serving import Served

WHEN = {
    Outcome.FAILS_AT_LOAD: "fails while it starts",
    Outcome.FAILS_AT_FIRST_REQUEST: "dies at the first request",
}


def run(subject: ConfigSubject) -> Outcomes:
    """One error for each way in which an engine fails by the draft's list alone."""
    for group, cause in subject.by_cause(ENGINE_FAILURE):
        message = f"{group.title} {failing(group)}."
        read = what_was_read(group)
        if read:
            message += f" {read}"
        yield ENGINE_FAILURE.finding(
            message,
            evidence=subject.evidence(group, cause),
            remedy=subject.advice(group) or _way_out(group),
            engine=group.label,
        )


def _way_out(group: Variants) -> str:
    """What to do about a draft that doesn't load, which no list mends; "" leaves it to the finding's own remedy."""
    failure = group.first.failure
    if failure is None or failure.kind is not FailureKind.DRAFT:
        return ""
    if len(group.served) < len(group.evaluation.judged):
        return "Use a variant of the engine that serves this draft, or change in its config what the message names."
    return "Change in the draft's config what the message names, or use another version or engine."


def failing(group: Variants) -> str:
    """When and how the variants fail: ``dies at the first request: RuntimeError in ...``."""
    return group.each(lambda served: f"{WHEN[served.outcome]}: {_failure_words(served)}")


def _failure_words(served: Served) -> str:
    failure = served.failure
    if failure is None:
        return ""
    return f"{failure.words} ({failure.remark})" if failure.remark else failure.words


def what_was_read(group: Variants) -> str:
    """How the list became what the forward is asked for, and what of it is delivered."""
    served = group.first
    if not served.asked:
        return ""
    if served.default:
        indices = ", ".join(str(index) for index in served.asked)
        return f"It takes its default, the states before layers {indices}, and gets {_got(group)}."
    died = served.failure is not None and served.failure.kind is FailureKind.CAPTURE
    lost = [] if died else ids_without_a_layer(group)
    told = f"; no layer answers to {' or to '.join(lost)}" if lost else ""
    return f"It reads {served.key} {list(served.ids or ())} and gets {_got(group)}{told}."


def ids_without_a_layer(group: Variants) -> list[str]:
    """The ids by which the forward delivers nothing, with the index that the target's class makes of each."""
    served = group.first
    return [
        f"id {number}" if number == index else f"id {number} (which asks for the state before layer {index})"
        for number, index in zip(served.ids or (), served.asked, strict=False)
        if index is not None
        and index not in served.boundaries
        and index not in dict(served.wrapped)
        and not (index == EMBEDDING and POST_NORM in served.boundaries)
    ]


def _got(group: Variants) -> str:
    boundaries = group.first.boundaries
    return f"boundaries {format_boundaries(boundaries)}" if boundaries else "no state"


CHECK = Check(
    name="engine-failure",
    question="Does the engine load the draft and answer a request?",
    emits=(ENGINE_FAILURE,),
    needs="--engine and --target",
    run=run,
)
