"""Will the engine refuse to load, or die at a request?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.checks.config_subject import Variants
from eagle_parity.drafts import VOCAB_MAP
from eagle_parity.engines.failures import FailureKind
from eagle_parity.findings import ENGINE_FAILURE
from eagle_parity.results import Outcome
from eagle_parity.wiring import EMBEDDING, POST_NORM, format_boundaries

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject
    from eagle_parity.engines.serving import Served
    from eagle_parity.findings import Finding

WHEN = {
    Outcome.FAILS_AT_LOAD: "fails while it starts",
    Outcome.FAILS_AT_FIRST_REQUEST: "dies at the first request",
}


def run(subject: ConfigSubject) -> Outcomes:
    """One error for each way in which an engine fails by the draft's list alone, one where its map is refused."""
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
    for evaluation in subject.engines:
        refusing = tuple(s for s in evaluation.judged if s.failure and s.failure.kind is FailureKind.VOCAB_MAP)
        if refusing:
            yield _refused_map(subject, Variants(evaluation, refusing))


def _refused_map(subject: ConfigSubject, group: Variants) -> Finding:
    """Apart from the list's faults: it has no part in this, and may be wrong as well."""
    draft, engine, failure = subject.draft, group.evaluation.engine, group.first.failure
    entries = (draft.tensors or {}).get(VOCAB_MAP, ())
    rule = engine.vocab_map(group.evaluation.version or "")
    told = f"{draft.output_size:,} tokens"
    if draft.draft_vocab_size is None:
        told += " (vocab_size: the config has no draft_vocab_size)"
    reading = [v for v in engine.versions if (known := engine.vocab_map(v)) is not None and not known.whole]
    another = f", or use {engine.title} {reading[-1]}, which reads it" if reading else ""
    if entries and draft.output_size is not None and entries[0] < draft.output_size:
        remedy = f"Write draft_vocab_size: {entries[0]} into the draft's config: its {VOCAB_MAP} has so many entries."
    else:
        remedy = (
            f"Take {VOCAB_MAP} out of the draft's weights if all of its entries are 0, so that it maps each token to"
            f" itself{another}."
        )
    return ENGINE_FAILURE.finding(
        f"{group.title} {WHEN[group.first.outcome]}: {failure.words if failure else ''}. The draft's weights hold"
        f" {VOCAB_MAP}, and it chooses from {told}, as many as the target has.",
        evidence={
            "tensor": VOCAB_MAP,
            "shape": list(entries),
            "draft_vocab_size": draft.draft_vocab_size,
            "vocab_size": draft.vocab_size,
            "target_vocab_size": subject.target.vocab_size,
            "outcome": group.first.outcome.value,
            "reason": failure.words if failure else None,
            "source": f"{engine.title} {group.evaluation.version}, {rule.source if rule else ''}",
        },
        remedy=remedy,
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
