"""Are the parts of a set alike?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.comparison.evidence import rounded
from eagle_parity.findings import DISTRIBUTION_DRIFT
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.scan.drift import PartDrift
    from eagle_parity.scan.measurements import SetMeasurements

BY_CHANCE = 4.0
"""Parts are so many times as far apart as random parts of their sizes, before it is told."""
LEAST_DISTANCE = 0.2
"""In deviations of a dimension, the root mean square of all. Measured on SmolLM2-135M over the boundaries 0 to 30, a
sixteenth of 160 sequences of 64 tokens against the others: the next layer's states instead of the right one's 0.24 to
0.84, code among English prose 0.15 to 0.28, a random sixteenth 0.04 to 0.09. So a change of layer and one of text can't
be told from each other here: a reference tells."""


def run(found: SetMeasurements) -> Outcomes:
    """One finding for all parts and states: what changed between two parts changed all states at once."""
    if not found.drift:
        yield Skip(check=CHECK.name, reason=found.no_drift or "no part of it was measured")
        return
    states = range(len(found.drift[0].distances))
    apart = [(part, state) for part in found.drift for state in states if _is_apart(part, state)]
    if not apart:
        return
    worst, state = max(apart, key=lambda entry: entry[0].distances[entry[1]])
    parts = list({id(part): part for part, _ in apart}.values())
    which = f"the files from {worst.first} on" if worst.to_the_end else f"the files {worst.first} to {worst.last}"
    yield DISTRIBUTION_DRIFT.finding(
        f"{which} are unlike the others: the means of {_state(found, state)} are {worst.distances[state]:.2f} "
        f"deviations apart (root mean square over its dimensions), those of random parts of as many rows "
        f"{worst.by_chance[state]:.2f}",
        evidence={
            "parts": [_entry(part) for part in sorted(parts, key=lambda part: -max(part.distances))],
            "thresholds": {"by_chance": BY_CHANCE, "least_distance": LEAST_DISTANCE},
        },
    )


def _is_apart(part: PartDrift, state: int) -> bool:
    distance = part.distances[state]
    return distance > LEAST_DISTANCE and distance > BY_CHANCE * part.by_chance[state]


def _state(found: SetMeasurements, state: int) -> str:
    return found.states[state].state if state < len(found.states) else f"state {state}"


def _entry(part: PartDrift) -> dict[str, Any]:
    return {
        "first": part.first,
        "last": part.last,
        "to_the_end": part.to_the_end,
        "files": part.files,
        "distances": [rounded(distance) for distance in part.distances],
        "by_chance": [rounded(distance) for distance in part.by_chance],
    }


CHECK = Check(
    name="set-drift",
    question="Are the parts of the set alike, from its first file to its last?",
    emits=(DISTRIBUTION_DRIFT,),
    needs="a training set of at least 160 files",
    run=run,
)
