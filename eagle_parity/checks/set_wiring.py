"""Are the slots of a set what they are said to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.findings import MISDECLARED_WIRING
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.scan.measurements import SetMeasurements


def run(found: SetMeasurements) -> Outcomes:
    """One finding for all slots; what a reference was given for and didn't tell leaves the verdict open."""
    wiring = found.wiring
    if wiring is None:
        yield Skip(check=CHECK.name, reason="no --reference: nothing tells which layers the states are of")
        return
    if not wiring.compared:
        yield Skip(
            check=CHECK.name,
            reason=f"none of {wiring.looked_into:,} sequences of the set is one of the reference's: record it with"
            " `eagle-parity capture transformers --replay SHARDS`",
            blocks_verdict=True,
        )
        return
    if wiring.wrong:
        listed = "; ".join(f"slot {w['slot']}: declared {w['declared']}, measured {w['nearest']}" for w in wiring.wrong)
        yield MISDECLARED_WIRING.finding(
            f"the declared wiring ({wiring.declared_by or 'declared'}) is not what the states are: {listed}",
            evidence={"declared": wiring.declared, "slots": wiring.wrong, "sequences": wiring.compared},
        )
    if wiring.measured is None or any(boundary is None for boundary in wiring.measured):
        why = f" ({wiring.left_open[0]})" if wiring.left_open else ""
        yield Skip(
            check=CHECK.name,
            reason=f"not every slot is one of the reference's boundaries by margin{why}",
            blocks_verdict=True,
        )


CHECK = Check(
    name="set-wiring",
    question="Are the slots of the set the boundaries that a manifest or the call says they are?",
    emits=(MISDECLARED_WIRING,),
    needs="a training set, and a reference over some of its sequences",
    run=run,
)
