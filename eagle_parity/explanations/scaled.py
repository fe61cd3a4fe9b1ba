"""The right state times a constant: an embedding multiplier, a residual scale, a forgotten dequantisation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eagle_parity.comparison.measurements import Fit
from eagle_parity.explanations.explanation import Explanation
from eagle_parity.findings import SCALED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eagle_parity.explanations.explanation import Sample, Sources

MIN_LOG_FACTOR = math.log(1.05)
"""A factor nearer to one than 5 % is no scale: it is drift, and the identity explains it as well."""


def propose(sample: Sample, sources: Sources) -> Iterator[Fit]:
    """One factor for each candidate: the median over tokens of the projection on it."""
    for candidate in sources.candidates:
        source = sources.rows(candidate)
        y_TD, z_TD = sample.for_fitting(source)
        power_T = (z_TD * z_TD).sum(1)
        usable_T = power_T > 0
        if not bool(usable_T.any()):
            continue
        factor = float(((y_TD * z_TD).sum(1)[usable_T] / power_T[usable_T]).median())
        if not math.isfinite(factor) or factor == 0:
            continue
        if factor > 0 and abs(math.log(factor)) < MIN_LOG_FACTOR:
            continue
        yield Fit(
            name=SCALED.name,
            candidate=candidate,
            formula=f"{factor:.4g} times {candidate.label}",
            distance=sample.score(tuple(factor * rows for rows in source)),
            parameters=1,
            values={"factor": factor},
        )


SCALED_STATE = Explanation(SCALED, "a known state times one constant", "nothing more", propose)
