"""The numbers that a verdict rests on, each with where it comes from.

"Measured" is on SmolLM2-135M (30 layers), 1,705 tokens of eight real sequences, median relative error per token against
a float32 forward: bfloat16 0.005 to 0.015 (worst single token 0.10), int8 weights 0.009 to 0.037 (worst 0.08), the
nearest other boundary 0.22 to 0.70.
"""

from __future__ import annotations

import math

import msgspec

from eagle_parity.errors import UsageError

UNIT_ROUNDOFF = {
    "float64": 2.0**-24,  # hidden states of models that compute in float32 at best
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
STORED_FLOAT8 = {"float8_e4m3fn": 0.034, "float8_e5m2": 0.068}
"""Relative error of a row that was stored in float8 with a scale a token: 0.034 was measured on genuine e4m3 shards of
hs-connectors 0.9.0; e5m2 has one mantissa bit less."""
ASSUMED_DEPTH = 64
"""Where a slot's boundary isn't known: deep, so that the prior is generous."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """What ``diff-captures`` judges by; ``report --threshold NAME=VALUE`` judges a saved result by others.

    Attributes:
        min_tokens: fewer compared tokens (sinks left out) judge nothing. Measured: from 3 tokens on every random draw
            names the right boundary with a margin over 9, from single tokens too but with margins down to 2.3; 8 leave
            room for models whose layers are more alike. What takes more says so by itself: rows of a token that repeats
            name the embedding without the target's weights from 100 tokens on (8 repetitions), gains of a norm are
            fitted from 100 on (32 rows and sinks left out); until then these faults are errors without that name.
        parity_distance: up to here two slots are the same state, whatever a reference says: above every measured
            numeric median (0.037), far below every measured neighbour (0.22).
        identity_distance: up to here a state can be a boundary's; also the end of the range in which, without a
            reference, numerics and a neighbouring layer can't be told apart. Deep mixture-of-experts layers were seen
            to drift to 0.12 in bfloat16.
        margin: the runner-up must be this much further away.
        floor_factor: distances up to this multiple of the noise floor are noise, where that is more than the above.
            int8 weights were measured at 2.4 times it.
        bad_row_distance: a row further off than this is bad: above the worst measured token (0.10).
        bad_row_share: from this share of bad rows on a slot differs although its median agrees.
    """

    min_tokens: int = 8
    parity_distance: float = 0.06
    identity_distance: float = 0.15
    margin: float = 1.5
    floor_factor: float = 3.0
    bad_row_distance: float = 0.15
    bad_row_share: float = 0.02

    def as_dict(self) -> dict[str, float]:
        """By name."""
        return msgspec.structs.asdict(self)

    def replace(self, assignments: list[str]) -> Thresholds:
        """These with some replaced: ``["parity_distance=0.1"]``.

        Raises:
            UsageError: no such threshold, or no positive number.
        """
        values = msgspec.structs.asdict(self)
        for assignment in assignments:
            name, _, text = assignment.partition("=")
            name = name.strip().replace("-", "_")
            if name not in values:
                raise UsageError(f"--threshold {assignment}: no such threshold; there are {', '.join(values)}")
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"--threshold {assignment}: expected a positive number after {name}=")
            values[name] = max(1, round(value)) if name == "min_tokens" else value
        return Thresholds(**values)


def prior_floor(dtype: str, boundary: int | None) -> float:
    """The distance that rounding alone makes at a depth: the lower bound of every noise floor.

    ``u * sqrt(1 + k / 2)`` with the unit roundoff u of the dtype that the target computes in and the boundary k:
    rounding errors of the layers add up like a random walk. Measured for bfloat16 it is 0.0055 against 0.0046 at
    boundary 2, 0.0117 against 0.0097 at 16 and 0.0156 against 0.0146 at 30. Float8 is how states are stored, once and
    after all layers: nobody computes in it, so its error stands beside bfloat16's and doesn't grow.
    """
    depth = ASSUMED_DEPTH if boundary is None else boundary
    computed = UNIT_ROUNDOFF.get(dtype, UNIT_ROUNDOFF["bfloat16"]) * math.sqrt(1 + depth / 2)
    return max(computed, STORED_FLOAT8.get(dtype, 0.0))
