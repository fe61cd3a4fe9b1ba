"""Was the draft made for a target of this hidden size?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.findings import HIDDEN_SIZE
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject

NAME = "hidden-size"


def run(subject: ConfigSubject) -> Outcomes:
    """One error where fc, ``target_hidden_size`` or the draft's own hidden size doesn't fit the target."""
    draft, size = subject.draft, subject.target.hidden_size
    evidence = {
        "target_hidden_size": size,
        "draft_target_hidden_size": draft.target_hidden_size,
        "draft_hidden_size": draft.hidden_size,
        "fc_shape": None if draft.fc_shape is None else list(draft.fc_shape),
    }
    if not subject.is_eagle3:
        return
    if draft.fc_shape is not None and draft.fc_slots(size) is None:
        yield HIDDEN_SIZE.finding(
            f"The head's fc takes {draft.fc_shape[1]:,} numbers, which is no multiple of the target's hidden size"
            f" {size:,}.",
            evidence=evidence,
        )
    elif draft.width_per_slot is None:
        yield Skip(check=NAME, reason="the draft's config states no hidden_size")
    elif draft.target_hidden_size is not None and draft.target_hidden_size != size:
        yield HIDDEN_SIZE.finding(
            f"The draft's target_hidden_size is {draft.target_hidden_size:,}, the target's hidden size is {size:,}.",
            evidence=evidence,
        )
    elif draft.width_per_slot != size:
        yield HIDDEN_SIZE.finding(
            f"The draft's hidden_size is {draft.hidden_size:,}, the target's {size:,}, and the draft states no"
            " target_hidden_size: engines build fc for slots of the draft's own size.",
            evidence=evidence,
            remedy=f"Write target_hidden_size: {size}, if the head was trained for it; else use the right target.",
        )
    shards = subject.shards
    if shards is not None and shards.hidden_size != size:
        yield HIDDEN_SIZE.finding(
            f"The shards hold states of {shards.hidden_size:,} numbers, the target's hidden size is {size:,}.",
            evidence={"target_hidden_size": size, "shards_hidden_size": shards.hidden_size},
            remedy="Pass the target that the shards were made from.",
        )


CHECK = Check(
    name=NAME,
    question="Was the draft made for a target of this hidden size?",
    emits=(HIDDEN_SIZE,),
    needs="--target",
    run=run,
)
