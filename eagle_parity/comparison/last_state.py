"""Whether the final state of a list is a slot or the last state, where a layout can't say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.hidden_states import HiddenStates, LastStateRule, Unreadable
from eagle_parity.numerics.rows import row_errors
from eagle_parity.wiring import POST_NORM, BoundaryEntry

if TYPE_CHECKING:
    from eagle_parity.comparison.alignment import AlignedPair, Aligner
    from eagle_parity.comparison.pairing import Pairing

PROBE_ROWS = 256
"""Enough to see which boundary a state is."""


def settle_last_states(
    aligner: Aligner,
    pairing: Pairing,
    trained_boundaries: tuple[BoundaryEntry, ...] | None,
    live_boundaries: tuple[BoundaryEntry, ...] | None,
    num_layers: int | None,
) -> tuple[HiddenStates, HiddenStates, dict[str, str]]:
    """Both sides with their final states settled, and how that was done, by role.

    What the user declared settles it, then a reference that holds the target's last boundary, then the other side's
    number of slots.
    """
    notes: dict[str, str] = {}
    sides = {"trained": aligner.trained, "live": aligner.live}
    boundaries = {"trained": trained_boundaries, "live": live_boundaries}
    for role, states in sides.items():
        if states.layout.last_state is not LastStateRule.UNDECIDED:
            continue
        other = sides["live" if role == "trained" else "trained"]
        stored, why = _settle(
            states, other, boundaries[role], role, by_reference=_is_last_boundary(aligner, pairing, role, num_layers)
        )
        notes[role] = f"{'last state' if stored else 'slot'}: {why}"
        sides[role] = states.decide_last_state(stored=stored)
    return sides["trained"], sides["live"], notes


def _settle(
    states: HiddenStates,
    other: HiddenStates,
    declared: tuple[BoundaryEntry, ...] | None,
    role: str,
    *,
    by_reference: bool | None,
) -> tuple[bool, str]:
    if declared is not None and len(declared) == states.layout.slots - 1:
        return True, f"--{role}-boundaries names one state less than there are"
    if by_reference is not None:
        relation = "is" if by_reference else "is not"
        return by_reference, f"by the reference, its final state {relation} the target's last boundary"
    if other.layout.last_state is not LastStateRule.UNDECIDED:
        if other.layout.slots == states.layout.slots - 1:
            return True, f"the other side has {other.layout.slots} slots"
        if other.layout.slots == states.layout.slots:
            return False, f"the other side has {other.layout.slots} slots"
    return False, "nothing tells whether its final state is a slot: it is compared as one"


def _is_last_boundary(aligner: Aligner, pairing: Pairing, role: str, last: int | None) -> bool | None:
    """Whether the final state is nearest the target's last boundary; None where that can't be seen."""
    if last is None or last not in aligner.reference_boundaries:
        return None
    for pair in pairing.pairs:
        aligned = aligner.align(pair)
        if isinstance(aligned, Unreadable) or not aligned.known:
            continue
        distances = _final_state_distances(aligned, role)
        if distances:
            return min(distances, key=distances.__getitem__) in {last, POST_NORM}
    return None


def _final_state_distances(aligned: AlignedPair, role: str) -> dict[BoundaryEntry, float]:
    final = (aligned.trained if role == "trained" else aligned.live)[-1]
    rows = min(PROBE_ROWS, aligned.length)
    x_TD = final.read(0, rows)
    distances: dict[BoundaryEntry, float] = {}
    for candidate, known in aligned.known:
        z_TD = known.read(0, rows)
        if z_TD.shape == x_TD.shape:
            errors_T = row_errors(x_TD, z_TD)
            finite_T = errors_T[errors_T.isfinite()]
            if len(finite_T):
                distances[candidate.boundary] = float(finite_T.median())
    return distances
