"""Are the states numbers, of one shape on both sides?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.findings import NON_FINITE, SHAPE_MISMATCH

if TYPE_CHECKING:
    from eagle_parity.comparison.views import Comparison


def run(comparison: Comparison) -> Outcomes:
    """Another hidden size ends the comparison; NaN rows are told and left out of every other number."""
    measurements = comparison.measurements
    if not comparison.same_shape:
        if comparison.by_ranks:
            return  # each rank holds a share of the dimensions
        trained, live = measurements.trained.hidden_size, measurements.live.hidden_size
        yield SHAPE_MISMATCH.finding(
            f"trained states have hidden size {trained}, live ones {live}",
            evidence={"trained_hidden_size": trained, "live_hidden_size": live},
        )
        return
    for role in ("trained", "live"):
        slots = {
            s.slot: state.non_finite_rows
            for s in measurements.slots
            if (state := getattr(s, role)) is not None and state.non_finite_rows
        }
        if slots:
            yield NON_FINITE.finding(
                f"the {role} side has rows with NaN or infinity: "
                + ", ".join(f"{count} in slot {slot}" for slot, count in slots.items()),
                evidence={"side": role, "rows_by_slot": {str(slot): count for slot, count in slots.items()}},
                slot=next(iter(slots)) if len(slots) == 1 else None,
            )


CHECK = Check(
    name="numbers",
    question="Are the states finite, and of one hidden size?",
    emits=(SHAPE_MISMATCH, NON_FINITE),
    needs="sequences with the same tokens",
    run=run,
)
