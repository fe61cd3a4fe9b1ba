"""Which files couldn't be read? The others were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.findings import UNREADABLE_SHARD

if TYPE_CHECKING:
    from eagle_parity.comparison.views import Comparison


def run(comparison: Comparison) -> Outcomes:
    """One finding a file."""
    measurements = comparison.measurements
    for role, side in (("trained", measurements.trained), ("live", measurements.live)):
        for name, reason in side.unreadable:
            yield UNREADABLE_SHARD.finding(
                f"{role}: {name}: {reason}", evidence={"side": role, "file": name, "reason": reason}
            )


CHECK = Check(
    name="unreadable-files",
    question="Could every file of both sides be read?",
    emits=(UNREADABLE_SHARD,),
    needs="two captures or sets of shards",
    run=run,
)
