"""Do the shards and the command line state the same trained wiring?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.findings import MISDECLARED_WIRING
from eagle_parity.hidden_states import LastStateRule
from eagle_parity.results import Skip
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject


def run(subject: ConfigSubject) -> Outcomes:
    """An error where ``--shards`` and the stated wiring contradict each other, by boundaries or by number of slots."""
    if subject.not_trained_so is not None:
        yield Skip(check=CHECK.name, reason=subject.not_trained_so, blocks_verdict=subject.trained is None)
    trained = subject.trained
    if trained is not None and trained.derived_from is not None and trained.ids is not None and trained.key is not None:
        yield Skip(
            check=CHECK.name,
            reason=f"the trained wiring was read from {trained.key}, the very list that is checked: one that was edited"
            " after training goes unnoticed; --trained-boundaries or --shards says what the head was trained on",
        )
    shards, declared = subject.shards, subject.declared
    if shards is None or declared is None:
        return
    stated = declared.wiring.slots
    evidence = {"stated": list(stated), "stated_by": declared.source, "shards_slots": shards.slots}
    if shards.declared is not None and subject.trained is not None and subject.trained.wiring.slots != stated:
        found = subject.trained.wiring.slots
        yield MISDECLARED_WIRING.finding(
            f"The shards state {format_boundaries(found)} ({shards.declared_by}), the command line"
            f" {format_boundaries(stated)} ({declared.source}); the shards were believed.",
            evidence=evidence | {"shards": list(found)},
            remedy="Leave the wrong one out; `eagle-parity diff-captures --reference` measures what the shards hold.",
        )
        return
    allowed = {len(stated)} | ({len(stated) + 1} if shards.last_state is LastStateRule.UNDECIDED else set())
    if shards.slots not in allowed:
        yield MISDECLARED_WIRING.finding(
            f"The shards hold {shards.slots} slots, the wiring that was stated {format_boundaries(stated)} has"
            f" {len(stated)} ({declared.source}).",
            evidence=evidence,
            remedy="State the wiring of these shards, or pass the shards of this head.",
        )


CHECK = Check(
    name="trained-declaration",
    question="Do the shards and the command line state the same trained wiring?",
    emits=(MISDECLARED_WIRING,),
    needs="--shards and --trained-with or --trained-boundaries",
    run=run,
)
