"""Which known state a measured state is: the nearest one, if it is near enough and nothing else is nearly as near."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.comparison.measurements import EMBEDDING_ROWS, Candidate, Measurements, StateMeasurement
from eagle_parity.comparison.thresholds import Thresholds, prior_floor
from eagle_parity.wiring import EMBEDDING, BoundaryEntry, Label

if TYPE_CHECKING:
    from eagle_parity.comparison.measurements import PairMeasurement

MIN_REPEATS = 8
"""Pairs of equal tokens from which "each token always has the same row" is a fact and no accident."""
REPEAT_DISTANCE = 0.002
"""The embedding gives exactly 0; the least 90th percentile measured elsewhere is 0.13, at boundary 1."""
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


def identify(state: StateMeasurement, thresholds: Thresholds, *, family: str) -> Identity | None:
    """The identity of a state among one family of candidates.

    Args:
        state: with its candidates.
        thresholds: for the distance and the margin.
        family: ``boundaries`` (a reference's, the embedding's rows) or ``trained`` (the trained side's states and the
            embedding's rows). The two are not mixed: a trained slot *is* some boundary, and would be its own runner-up.
    """
    candidates = [c for c in state.candidates if _belongs(c, family)]
    if not candidates:
        return None
    best = candidates[0]
    runner_up = candidates[1] if len(candidates) > 1 else None
    margin = _ratio(runner_up.distance, best.distance) if runner_up else LARGEST_MARGIN
    boundary = best.boundary if isinstance(best.boundary, int) else None
    limit = max(thresholds.identity_distance, thresholds.floor_factor * prior_floor(state.dtype, boundary))
    near = best.distance <= limit
    apart = margin >= thresholds.margin
    return Identity(best, runner_up, margin, settled=near and apart, tie=near and not apart)


def is_embedding(state: StateMeasurement) -> bool:
    """Whether a state gives each token the same row wherever it stands: only the embedding does."""
    repeated = state.repeated_tokens
    return repeated is not None and repeated.pairs >= MIN_REPEATS and repeated.distance <= REPEAT_DISTANCE


def pair_limits(
    slot: PairMeasurement, dtype: str, boundary: BoundaryEntry, thresholds: Thresholds
) -> tuple[float, float]:
    """Up to where two slots are the same state, and from where a single row is bad.

    The noise floor is the greatest of the rounding prior and what a second capture shows.
    """
    floor = max(prior_floor(dtype, boundary if isinstance(boundary, int) else None), slot.noise or 0.0)
    return (
        max(thresholds.parity_distance, thresholds.floor_factor * floor),
        max(thresholds.bad_row_distance, thresholds.floor_factor * floor),
    )


def trained_labels(measurements: Measurements, identities: list[Identity | None]) -> list[Label]:
    """A label a trained slot: its boundary if measured, else if declared, else a name of its own."""
    labels: list[Label] = []
    for slot in range(measurements.trained.slots):
        identity = identities[slot]
        state = measurements.slots[slot].trained
        declared = measurements.trained.declared[slot] if slot < len(measurements.trained.declared) else None
        if identity is not None and identity.settled and identity.candidate.boundary is not None:
            labels.append(identity.candidate.boundary)
        elif state is not None and is_embedding(state):
            labels.append(EMBEDDING)
        elif declared is not None:
            labels.append(declared)
        else:
            labels.append(trained_label(slot))
    return labels


def trained_label(slot: int) -> str:
    """The name of a trained slot whose boundary isn't known."""
    return f"trained slot {slot}"


def _belongs(candidate: Candidate, family: str) -> bool:
    if candidate.label == EMBEDDING_ROWS:
        return True
    return (candidate.boundary is not None) == (family == "boundaries")


def _ratio(above: float, below: float) -> float:
    if below <= 0:
        return LARGEST_MARGIN if above > 0 else 1.0
    return min(above / below, LARGEST_MARGIN)
