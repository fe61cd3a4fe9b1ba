"""Does the running target capture what the rule tables say for the running draft?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.findings import RULE_CONTRADICTED
from eagle_parity.results import Skip
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from eagle_parity.checks.recording_subject import RecordingSubject


def run(subject: RecordingSubject) -> Outcomes:
    """An error where no variant that the launch can be asks for what the live module holds, or has it run at all."""
    rule = subject.recording.rule
    if rule.not_compared is not None:
        yield Skip(check=CHECK.name, reason=rule.not_compared)
        return
    if rule.agrees:
        return
    if not rule.variants:
        yield Skip(check=CHECK.name, reason="the tables have no rule for it")
        return
    first = next((v for v in rule.variants if v.asked != rule.live), rule.variants[0])
    live = format_boundaries(rule.live or [])
    if first.asked == rule.live:
        told = f"the rule for {rule.engine} has it fail with this draft ({first.reason}), and it runs with {live}"
    else:
        said = format_boundaries(first.asked)
        told = f"the running target captures {live}, where the rule for {rule.engine} says {said}"
    yield RULE_CONTRADICTED.finding(
        f"{told} ({first.source})",
        evidence={
            "layer_set": rule.layer_set,
            "live": rule.live,
            "rule": [
                {
                    "options": variant.options,
                    "boundaries": variant.asked,
                    "outcome": variant.outcome,
                    "reason": variant.reason,
                    "source": variant.source,
                }
                for variant in rule.variants
            ],
        },
        engine=rule.engine,
    )


CHECK = Check(
    name="live-rule",
    question="Does the running target capture what the rule tables say for the running draft?",
    emits=(RULE_CONTRADICTED,),
    needs="a capture of a running server with its layer set, and a rule for its release and class",
    run=run,
)
