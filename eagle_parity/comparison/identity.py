"""Which known state a measured state is: the nearest one, if it is near enough and nothing else is nearly as near."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.comparison.measurements import EMBEDDING_ROWS, LAST_STATE, Candidate, Measurements, StateMeasurement
from eagle_parity.comparison.thresholds import Thresholds, prior_floor
from eagle_parity.wiring import EMBEDDING, BoundaryEntry, Label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eagle_parity.comparison.measurements import PairMeasurement

MIN_REPEATS = 8
"""Pairs of equal tokens from which "each token always has the same row" is a fact and no accident."""
REPEAT_DISTANCE = 0.002
"""The embedding gives exactly 0; the least 90th percentile measured elsewhere is 0.13, at boundary 1."""
REPEAT_CONTRAST = 0.05
"""So much must rows of different tokens differ (measured for the embedding: 1.4): a dead slot repeats itself too."""
SAME_STATE = 0.0
"""Two states of one side that are one are so to the last bit."""
LARGEST_MARGIN = 1e6
"""An exact match has no finite margin, and JSON no infinity."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a state was found to be.

    Attributes:
        candidate: the nearest known state.
        runner_up: the next one that is another state.
        margin: the runner-up's distance over the nearest one's.
        settled: near enough, and with enough margin.
        tie: near enough, but the runner-up is as well.
    """

    candidate: Candidate
    runner_up: Candidate | None
    margin: float
    settled: bool
    tie: bool

    @property
    def confidence(self) -> float:
        """``1 - 1 / margin**2``: 0.56 at the least margin that settles, 0.99 at ten."""
        return round(min(0.999, max(0.0, 1 - 1 / self.margin**2)), 3) if self.margin > 0 else 0.0

    def evidence(self) -> dict[str, object]:
        """For a finding."""
        return {
            "nearest": self.candidate.label,
            "distance": round(self.candidate.distance, 6),
            "runner_up": self.runner_up.label if self.runner_up else None,
            "runner_up_distance": round(self.runner_up.distance, 6) if self.runner_up else None,
            "margin": round(min(self.margin, LARGEST_MARGIN), 2),
        }


def identify(
    state: StateMeasurement,
    thresholds: Thresholds,
    *,
    family: str,
    names: Callable[[Candidate], Label] = lambda candidate: candidate.label,
) -> Identity | None:
    """The identity of a state among one family of candidates.

    Args:
        state: with its candidates.
        thresholds: for the distance and the margin.
        family: ``boundaries`` (a reference's, the embedding's rows) or ``trained`` (the trained side's states and the
            embedding's rows). The two are not mixed: a trained slot *is* some boundary, and would be its own runner-up.
        names: what each candidate is; candidates of one name are one state, and no runners-up of each other.
    """
    candidates = [c for c in state.candidates if _belongs(c, family) and _measured_enough(c, thresholds)]
    if not candidates:
        return None
    best = candidates[0]
    runner_up = next((c for c in candidates[1:] if names(c) != names(best)), None)
    margin = _ratio(runner_up.distance, best.distance) if runner_up else LARGEST_MARGIN
    near = best.distance <= identity_limit(state.dtype, best.boundary, thresholds)
    apart = margin >= thresholds.margin
    return Identity(best, runner_up, margin, settled=near and apart, tie=near and not apart)


def identity_limit(dtype: str, boundary: BoundaryEntry, thresholds: Thresholds) -> float:
    """Up to where a state can be some boundary's."""
    depth = boundary if isinstance(boundary, int) else None
    return max(thresholds.identity_distance, thresholds.floor_factor * prior_floor(dtype, depth))


def is_embedding(state: StateMeasurement) -> bool:
    """Whether a state gives each token a row of its own, the same wherever it stands: only the embedding does.

    Where the embedding itself was there to compare with, that decides and not this.
    """
    repeated = state.repeated_tokens
    return (
        repeated is not None
        and not any(candidate.boundary == EMBEDDING for candidate in state.candidates)
        and repeated.pairs >= MIN_REPEATS
        and repeated.distance <= REPEAT_DISTANCE
        and repeated.contrast is not None
        and repeated.contrast >= REPEAT_CONTRAST
    )


def pair_limits(
    slot: PairMeasurement, dtype: str, boundary: BoundaryEntry, thresholds: Thresholds
) -> tuple[float, float]:
    """Up to where two slots are the same state, and from where a single row is bad.

    The noise floor is the greatest of the rounding prior and what a second capture shows. A second capture raises the
    first limit to the distance of another layer at the most, and one that differs like another layer is no noise.
    """
    floor = thresholds.floor_factor * prior_floor(dtype, boundary if isinstance(boundary, int) else None)
    noise = thresholds.floor_factor * slot.noise if slot.noise is not None and is_noise(slot, thresholds) else 0.0
    return (
        max(thresholds.parity_distance, floor, min(noise, thresholds.identity_distance)),
        max(thresholds.bad_row_distance, floor, noise),
    )


def is_noise(slot: PairMeasurement, thresholds: Thresholds) -> bool:
    """Whether what a second capture differs by can be noise."""
    return slot.noise is not None and slot.noise <= thresholds.identity_distance


def trained_labels(
    measurements: Measurements, identities: Sequence[Identity | None], thresholds: Thresholds
) -> list[Label]:
    """A label a trained slot: its boundary if measured, else if declared, else a name of its own.

    A declaration that the reference contradicts is no label: the live state would be held against words.
    """
    labels: list[Label] = []
    for slot in range(measurements.trained.slots):
        identity = identities[slot]
        state = measurements.slots[slot].trained
        declared = measurements.trained.declared[slot] if slot < len(measurements.trained.declared) else None
        if identity is not None and identity.settled and identity.candidate.boundary is not None:
            labels.append(identity.candidate.boundary)
        elif state is not None and is_embedding(state):
            labels.append(EMBEDDING)
        elif declared is not None and not (state is not None and _contradicted(state, identity, declared, thresholds)):
            labels.append(declared)
        elif state is not None and (twin := _twin(state)) is not None:
            labels.append(labels[twin])
        else:
            labels.append(trained_label(slot))
    return labels


def last_state_label(measurements: Measurements, labels: Sequence[Label], thresholds: Thresholds) -> Label:
    """What the trained last state is, in the words of the trained slots."""
    state = measurements.trained.last_state
    if state is not None:
        identity = identify(state, thresholds, family="boundaries")
        if identity is not None and identity.settled and identity.candidate.boundary is not None:
            return identity.candidate.boundary
        if (twin := _twin(state)) is not None:
            return labels[twin]
    declared = measurements.trained.last_state_declared
    return LAST_STATE if declared is None else declared


def _twin(state: StateMeasurement) -> int | None:
    """The trained slot that a trained state repeats."""
    return next(
        (c.trained_slot for c in state.candidates if c.trained_slot is not None and c.distance <= SAME_STATE), None
    )


def _contradicted(
    state: StateMeasurement, identity: Identity | None, declared: BoundaryEntry, thresholds: Thresholds
) -> bool:
    """Whether a state is far from the boundary that it is said to be, and not even plainly nearest to that one."""
    measured = next((c for c in state.candidates if c.boundary == declared and _measured_enough(c, thresholds)), None)
    if measured is None or measured.distance <= identity_limit(state.dtype, declared, thresholds):
        return False
    return identity is None or identity.candidate.boundary != declared or identity.margin < thresholds.margin


def trained_label(slot: int) -> str:
    """The name of a trained slot whose boundary isn't known."""
    return f"trained slot {slot}"


def _belongs(candidate: Candidate, family: str) -> bool:
    if candidate.label == EMBEDDING_ROWS:
        return True
    return (candidate.boundary is not None) == (family == "boundaries")


def _measured_enough(candidate: Candidate, thresholds: Thresholds) -> bool:
    return candidate.rows is None or candidate.rows >= thresholds.min_tokens


def _ratio(above: float, below: float) -> float:
    if below <= 0:
        return LARGEST_MARGIN if above > 0 else 1.0
    return min(above / below, LARGEST_MARGIN)
