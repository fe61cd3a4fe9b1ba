"""Are the states what the files, or the call, say they are?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.comparison.views import settled
from eagle_parity.findings import MISDECLARED_WIRING, Severity
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.comparison.identity import Identity
    from eagle_parity.comparison.views import Comparison, SlotView


def run(comparison: Comparison) -> Outcomes:
    """One finding a side whose declaration the reference contradicts."""
    for role, side in (("trained", comparison.measurements.trained), ("live", comparison.measurements.live)):
        if side.last_state_note:
            yield Skip(
                check=CHECK.name,
                reason=f"{role}: its final state is compared as the {side.last_state_note}",
                blocks_verdict=side.last_state_guessed,
            )
    if not comparison.enough:
        return
    measurements, views = comparison.measurements, comparison.views
    for role, side in (("trained", measurements.trained), ("live", measurements.live)):
        wrong: list[dict[str, Any]] = []
        for view in views[: side.slots]:
            slot = view.measurement.slot
            identity: Identity | None = getattr(view, role)
            declared = side.declared[slot] if slot < len(side.declared) else None
            if declared is None or identity is None or not identity.settled:
                continue
            if identity.candidate.boundary != declared:
                wrong.append({"slot": slot, "declared": declared, **identity.evidence()})
        if wrong:
            listed = "; ".join(f"slot {w['slot']}: declared {w['declared']}, measured {w['nearest']}" for w in wrong)
            yield MISDECLARED_WIRING.finding(
                f"the {role} side's declared wiring ({side.declared_by or 'declared'}) is not what its states are: "
                f"{listed}",
                evidence={"side": role, "declared": list(side.declared), "slots": wrong},
                # Where the head is fed something else than it was trained on, that is the error.
                severity=None if comparison.difference is None else Severity.WARNING,
            )
    contradicting = [view.measurement.slot for view in views if _contradict(comparison, view)]
    if contradicting:
        trained, live = measurements.trained.declared, measurements.live.declared
        listed = "; ".join(
            f"slot {slot} is {trained[slot]} by the trained side and {live[slot]} by the live side"
            for slot in contradicting
        )
        yield MISDECLARED_WIRING.finding(
            f"both sides hold the same states within {comparison.thresholds.parity_distance:g}, and are declared as "
            f"different ones: {listed}. Either a declaration is wrong, or the head is fed other layers that are nearer "
            "than that to the trained ones",
            evidence={
                "slots": contradicting,
                "trained": list(trained),
                "trained_by": measurements.trained.declared_by,
                "live": list(live),
                "live_by": measurements.live.declared_by,
            },
            remedy="Give a --reference: it tells which of the two it is.",
        )


def _contradict(comparison: Comparison, view: SlotView) -> bool:
    """Whether one state is declared as two boundaries, and no reference settles which of them it is."""
    slot = view.measurement.slot
    trained, live = comparison.measurements.trained.declared, comparison.measurements.live.declared
    if not view.agrees or settled(view.trained) or slot >= min(len(trained), len(live)):
        return False
    return trained[slot] is not None and live[slot] is not None and trained[slot] != live[slot]


CHECK = Check(
    name="declared-wiring",
    question="Are the states the boundaries that a manifest, a trainer's rule or the call says they are?",
    emits=(MISDECLARED_WIRING,),
    needs="a reference, and a declaration",
    run=run,
)
