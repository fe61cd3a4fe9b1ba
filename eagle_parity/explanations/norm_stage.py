"""A known state after a norm: the final norm where its weight is known, else any RMS norm with fitted gains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.measurements import Fit
from eagle_parity.explanations.explanation import Explanation
from eagle_parity.findings import NORM_STAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eagle_parity.explanations.explanation import Sample, Sources

EPSILON = 1e-6
"""The usual epsilon of RMS norms; residual streams are thousands of times larger."""
MIN_FIT_ROWS = 32
"""Gains are fitted one a dimension, each on all rows: with fewer they follow the noise."""


def normalise(rows_TD: torch.Tensor) -> torch.Tensor:
    """Rows divided by their root mean square."""
    return rows_TD * (rows_TD.square().mean(1, keepdim=True) + EPSILON).rsqrt()


def propose(sample: Sample, sources: Sources) -> Iterator[Fit]:
    """The target's final norm on each candidate, and an RMS norm with gains fitted by least squares."""
    for candidate in sources.candidates:
        normed = tuple(normalise(rows) for rows in sources.rows(candidate))
        if sources.final_norm is not None:
            gain_D = sources.final_norm
            yield Fit(
                name=NORM_STAGE.name,
                candidate=candidate,
                formula=f"{candidate.label} after the target's final norm",
                distance=sample.score(tuple(rows * gain_D for rows in normed)),
                parameters=0,
                values={"norm": "final"},
            )
        y_TD, n_TD = sample.for_fitting(normed)
        if y_TD.shape[0] < MIN_FIT_ROWS:
            continue
        gain_D = (y_TD * n_TD).sum(0) / (n_TD * n_TD).sum(0).clamp_min(torch.finfo(torch.float32).tiny)
        if not bool((gain_D != 0).any()):
            continue  # gains of zero make any norm a dead state
        yield Fit(
            name=NORM_STAGE.name,
            candidate=candidate,
            formula=f"{candidate.label} after an RMS norm with its own gains",
            distance=sample.score(tuple(rows * gain_D for rows in normed)),
            parameters=y_TD.shape[1],
            values={"norm": "fitted", "median_gain": float(gain_D.median())},
        )


NORMED_STATE = Explanation(NORM_STAGE, "a known state after a norm", f"{MIN_FIT_ROWS} rows to fit gains on", propose)
