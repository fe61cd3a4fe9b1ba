"""Is the served wiring the trained one?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.checks.engine_failure import failing
from eagle_parity.findings import LAYER_ID_CONVENTION, MISSING_EMBEDDING, SPURIOUS_EMBEDDING
from eagle_parity.results import Skip
from eagle_parity.wiring import POST_NORM, format_boundaries

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject, Variants
    from eagle_parity.engines.serving import Served

NAME = "served-wiring"

_LATE = " The embedding stands in front, and the trained features behind it arrive one slot late."


def run(subject: ConfigSubject) -> Outcomes:
    """One error for each way in which an engine feeds something else than the head was trained on."""
    if not subject.is_eagle3:
        return
    if subject.trained is None:
        yield Skip(
            check=NAME,
            reason="the trained wiring isn't given: pass --trained-with (such as specforge@0.2.0), --trained-boundaries"
            " (such as 3,31,59) or --shards",
            blocks_verdict=True,
        )
    elif subject.trained_slots is None:
        yield Skip(
            check=NAME,
            reason=f"the trained wiring {subject.trained.wiring} isn't known in every slot",
            blocks_verdict=True,
        )
    for group, cause in subject.by_cause(LAYER_ID_CONVENTION, SPURIOUS_EMBEDDING, MISSING_EMBEDDING):
        difference = cause.difference
        slots = difference.slots if difference is not None else ()
        late = cause.kind is SPURIOUS_EMBEDDING and difference is not None and difference.late_slots
        yield cause.kind.finding(
            _message(subject, group) + (_LATE if late else ""),
            evidence=subject.evidence(group, cause),
            remedy=subject.advice(group),
            slot=slots[0] if len(slots) == 1 else None,
            engine=group.label,
        )


def _message(subject: ConfigSubject, group: Variants) -> str:
    served = group.first
    message = f"{group.title} {group.each(_how)}; {subject.trained_words()}."
    trained = subject.trained_slots
    if trained is not None and len(trained) != len(served.boundaries):
        message += f" The head takes {len(trained)} slots, not {len(served.boundaries)}."
    reading = subject.reading(group) if served.boundaries != (POST_NORM,) else ""
    if reading:
        message += f" {_capital(reading)}."
    if not served.list_serves:
        message += f" It {failing(group)}."
    return message


def _how(served: Served) -> str:
    """How one variant comes to its wiring."""
    verb = "feeds" if served.serves else "asks for"
    wiring = format_boundaries(served.boundaries)
    if served.default and served.ignored:
        lists = " and ".join(f"{entry.key} {entry}" for entry in served.ignored)
        return f"does not read {lists} and {verb} its default {wiring}"
    if served.default:
        return f"finds no list and {verb} its default {wiring}"
    if served.key is None:
        return f"{verb} {wiring}, because eagle_config.use_aux_hidden_state is false"
    return f"reads {served.key} {list(served.ids or ())} and {verb} {wiring}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


CHECK = Check(
    name=NAME,
    question="Does the engine feed the head the boundaries that it was trained on, in that order?",
    emits=(LAYER_ID_CONVENTION, SPURIOUS_EMBEDDING, MISSING_EMBEDDING),
    needs="--engine, --target and the trained wiring",
    run=run,
)
