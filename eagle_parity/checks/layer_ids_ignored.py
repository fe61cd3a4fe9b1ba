"""Does a list stand where the engine doesn't read it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.findings import LAYER_IDS_IGNORED, Severity
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject, Variants
    from eagle_parity.checks.root_cause import RootCause
    from eagle_parity.findings import Finding


def run(subject: ConfigSubject) -> Outcomes:
    """An error where the wiring changes by it, a warning where the default is the same, a note where another is read.

    Where another error is the cause, that one tells it. A config for two engines carries its list twice, each under the
    key of one: that is how it should be.
    """
    for group, cause in subject.by_cause(LAYER_IDS_IGNORED):
        yield _finding(subject, group, Severity.ERROR, cause)
    for evaluation in subject.engines:
        for group in subject.group(evaluation, lambda s: s.ignored and s.list_serves and subject.causes[id(s)] is None):
            if all(entry.raw == group.first.raw for entry in group.first.ignored):
                continue
            yield _finding(subject, group, Severity.WARNING if group.first.default else Severity.NOTE, None)


def _finding(subject: ConfigSubject, group: Variants, severity: Severity, cause: RootCause | None) -> Finding:
    served = group.first
    lists = " and ".join(
        f"{entry.key} {entry}" + (f" ({entry.problem})" if entry.problem else "") for entry in served.ignored
    )
    instead = "takes its default" if served.default else f"reads {served.key} {list(served.ids or ())}"
    message = f"{group.title} does not read {lists}; it {instead} and feeds {format_boundaries(served.boundaries)}."
    trained = subject.trained_words()
    if trained and cause is not None:
        message += f" {trained[0].upper()}{trained[1:]}."
    advice = subject.advice(group)
    version = group.evaluation.version
    key = None if version is None else group.evaluation.engine.id_key(version)
    if not advice and served.default and key is not None:
        advice = f"Move the list to {key}, in the ids that this engine reads: `eagle-parity ids`"
    return LAYER_IDS_IGNORED.finding(
        message,
        evidence=subject.evidence(group, cause),
        remedy=advice if severity is not Severity.NOTE else "Nothing, if that is meant.",
        severity=severity,
        engine=group.label,
    )


CHECK = Check(
    name="layer-ids-ignored",
    question="Does an id list stand where the engine doesn't read it?",
    emits=(LAYER_IDS_IGNORED,),
    needs="--engine",
    run=run,
)
