"""A layer's own output: the difference of two neighbouring boundaries, without the residual stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.measurements import Fit
from eagle_parity.explanations.explanation import Explanation
from eagle_parity.findings import MISSING_RESIDUAL
from eagle_parity.numerics.rows import row_norms
from eagle_parity.wiring import boundary_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eagle_parity.explanations.explanation import Sample, Sources

NOISE_OF_PARTS = 0.04
"""Relative error that each of the two boundaries may carry by itself: the worst median measured for int8 weights."""
MAX_LIMIT = 0.5
"""A difference whose parts' noise alone could make half of it proves nothing."""


def propose(sample: Sample, sources: Sources) -> Iterator[Fit]:
    """Boundary k minus the boundary before it, for each such pair that the reference holds.

    The difference of two nearly equal states carries the noise of both at the full stream's size: its limit is theirs
    scaled by the ratio of the norms.
    """
    for candidate in sources.candidates:
        number = boundary_before(candidate.boundary)
        before = None if number is None else sources.boundary(number)
        if before is None:
            continue
        after_rows, before_rows = sources.rows(candidate), sources.rows(before)
        difference = tuple(a - b for a, b in zip(after_rows, before_rows, strict=True))
        stream = float(row_norms(torch.cat(after_rows)).nanmedian())
        change = float(row_norms(torch.cat(difference)).nanmedian())
        if not change > 0:
            continue
        limit = min(NOISE_OF_PARTS * stream / change, MAX_LIMIT)
        yield Fit(
            name=MISSING_RESIDUAL.name,
            candidate=candidate,
            formula=f"{candidate.label} minus {before.label}",
            distance=sample.score(difference),
            parameters=0,
            values={"stream_to_change": stream / change},
            limit=limit,
        )


WITHOUT_RESIDUAL = Explanation(
    MISSING_RESIDUAL, "a layer's output without the residual", "a reference with neighbouring boundaries", propose
)
