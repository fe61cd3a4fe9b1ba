"""Are the parts of a set alike?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.comparison.evidence import rounded
from eagle_parity.findings import DISTRIBUTION_DRIFT
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.scan.drift import RangeDrift
    from eagle_parity.scan.measurements import SetMeasurements

BY_CHANCE = 4.0
"""A range is so many times as far from the whole as a random part of its size, before it is told."""
LEAST_DISTANCE = 0.25
"""In deviations of a dimension, the root mean square of all: kinds of text are less far apart, layers further."""


def run(found: SetMeasurements) -> Outcomes:
    """One finding for all ranges and states: what changed between two parts changed all states at once."""
    if not found.drift:
        yield Skip(check=CHECK.name, reason=found.no_drift or "no range of it was measured")
        return
    states = range(len(found.drift[0].distances))
    apart = [(part, state) for part in found.drift for state in states if _is_apart(part, state)]
    if not apart:
        return
    worst, state = max(apart, key=lambda entry: entry[0].distances[entry[1]])
    parts = list({id(part): part for part, _ in apart}.values())
    yield DISTRIBUTION_DRIFT.finding(
        f"{len(parts)} of {len(found.drift)} parts of the set are unlike the whole: {_state(found, state)} of "
        f"{worst.first} to {worst.last} is {worst.distances[state]:.2f} deviations from it, a random part of as many "
        f"rows {worst.by_chance[state]:.2f}",
        evidence={
            "parts": [
                {
                    "first": part.first,
                    "last": part.last,
                    "files": part.files,
                    "distances": [rounded(distance) for distance in part.distances],
                    "by_chance": [rounded(distance) for distance in part.by_chance],
                }
                for part in parts
            ],
            "thresholds": {"by_chance": BY_CHANCE, "least_distance": LEAST_DISTANCE},
        },
        slot=None,
    )


def _is_apart(part: RangeDrift, state: int) -> bool:
    distance = part.distances[state]
    return distance > LEAST_DISTANCE and distance > BY_CHANCE * part.by_chance[state]


def _state(found: SetMeasurements, state: int) -> str:
    return found.states[state].state if state < len(found.states) else f"state {state}"


CHECK = Check(
    name="set-drift",
    question="Are the parts of the set alike, from its first file to its last?",
    emits=(DISTRIBUTION_DRIFT,),
    needs="a training set of at least 128 files",
    run=run,
)
