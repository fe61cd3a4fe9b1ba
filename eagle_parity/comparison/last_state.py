"""Whether the final state of a list is a slot or the last state, where a layout can't say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.comparison.alignment import Lost
from eagle_parity.hidden_states import HiddenStates, LastStateRule
from eagle_parity.numerics.rows import row_errors
from eagle_parity.wiring import POST_NORM, BoundaryEntry

if TYPE_CHECKING:
    from eagle_parity.comparison.alignment import AlignedPair, Aligner
    from eagle_parity.comparison.pairing import Pairing

PROBE_ROWS = 256
"""Enough to see which boundary a state is."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What an undecided final state was taken for.

    Attributes:
        stored: the last state, else a slot.
        why: in words.
        guessed: whether the verdict rests on a guess.
    """

    stored: bool
    why: str
    guessed: bool = False

    def __str__(self) -> str:
        return f"{'last state' if self.stored else 'slot'}: {self.why}"


def settle_last_states(
    aligner: Aligner,
    pairing: Pairing,
    trained_boundaries: tuple[BoundaryEntry, ...] | None,
    live_boundaries: tuple[BoundaryEntry, ...] | None,
    num_layers: int | None,
) -> tuple[HiddenStates, HiddenStates, dict[str, Settled]]:
    """Both sides with their final states settled, and how that was done, by role.

    What the user declared settles it, then a reference that holds the target's last boundary, then the other side's
    number of slots. Of two sides that leave it open, one with one state more, either is possible: it is compared as the
    last state, and the verdict stays open.
    """
    notes: dict[str, Settled] = {}
    sides = {"trained": aligner.trained, "live": aligner.live}
    boundaries = {"trained": trained_boundaries, "live": live_boundaries}
    # What is known of a side itself comes first, then the longer side: the other's number of slots rests on it.
    open_roles = [role for role, states in sides.items() if states.layout.last_state is LastStateRule.UNDECIDED]
    for role in list(open_roles):
        by_reference = _is_last_boundary(aligner, pairing, role, num_layers)
        settled = _settle_by_itself(sides[role], boundaries[role], role, by_reference=by_reference)
        if settled is not None:
            notes[role] = settled
            sides[role] = sides[role].decide_last_state(stored=settled.stored)
            open_roles.remove(role)
    for role in sorted(open_roles, key=lambda role: -sides[role].layout.slots):
        notes[role] = _settle_by_other(sides[role], sides["live" if role == "trained" else "trained"], role)
        sides[role] = sides[role].decide_last_state(stored=notes[role].stored)
    return sides["trained"], sides["live"], notes


def _settle_by_itself(
    states: HiddenStates,
    declared: tuple[BoundaryEntry, ...] | None,
    role: str,
    *,
    by_reference: bool | None,
) -> Settled | None:
    if declared is not None and len(declared) == states.layout.slots - 1:
        return Settled(stored=True, why=f"--{role}-boundaries names one state less than there are")
    if by_reference is None:
        return None
    relation = "is" if by_reference else "is not"
    return Settled(by_reference, f"by the reference, its final state {relation} the target's last boundary")


def _settle_by_other(states: HiddenStates, other: HiddenStates, role: str) -> Settled:
    more = states.layout.slots - other.layout.slots
    if other.layout.last_state is not LastStateRule.UNDECIDED and more in {0, 1}:
        return Settled(more == 1, f"the other side has {other.layout.slots} slots")
    if other.layout.last_state is LastStateRule.UNDECIDED and more == 1:
        return Settled(
            stored=True,
            why="a guess, as it has one state more than the other side; a missing slot would look the same. "
            f"--{role}-boundaries or a --reference with the target's last boundary tells",
            guessed=True,
        )
    return Settled(stored=False, why="nothing tells whether its final state is a slot: it is compared as one")


def _is_last_boundary(aligner: Aligner, pairing: Pairing, role: str, last: int | None) -> bool | None:
    """Whether the final state is nearest the target's last boundary; None where that can't be seen."""
    if last is None or last not in aligner.reference_boundaries:
        return None
    for pair in pairing.pairs:
        aligned = aligner.align(pair)
        if isinstance(aligned, Lost) or not aligned.known:
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
