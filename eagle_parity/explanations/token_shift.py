"""A known state whose rows belong to earlier or later tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.measurements import Fit
from eagle_parity.explanations.explanation import Explanation
from eagle_parity.findings import TOKEN_SHIFT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eagle_parity.explanations.explanation import Sample, Segments, Sources

MAX_SHIFT = 4
"""Draft heads shift by one; a bug adds or forgets one, or one for each speculative step."""


def shift_rows(rows: Segments, shift: int) -> Segments:
    """Row t becomes row t + shift; rows that have no source are NaN and count for nothing."""
    shifted = []
    for rows_TD in rows:
        out_TD = torch.full_like(rows_TD, torch.nan)
        if shift > 0:
            out_TD[:-shift] = rows_TD[shift:]
        else:
            out_TD[-shift:] = rows_TD[:shift]
        shifted.append(out_TD)
    return tuple(shifted)


def propose(sample: Sample, sources: Sources) -> Iterator[Fit]:
    """Every candidate, shifted by up to ``MAX_SHIFT`` tokens either way."""
    longest = min((len(rows) for rows in sample.subject), default=0) - 1
    for candidate in sources.candidates:
        rows = sources.rows(candidate)
        for size in range(1, min(MAX_SHIFT, longest) + 1):
            for shift in (size, -size):
                yield Fit(
                    name=TOKEN_SHIFT.name,
                    candidate=candidate,
                    formula=f"{candidate.label} of the token {size} {'later' if shift > 0 else 'earlier'}",
                    distance=sample.score(shift_rows(rows, shift)),
                    parameters=1,
                    values={"shift": shift},
                )


SHIFTED_TOKENS = Explanation(
    TOKEN_SHIFT, "a known state of the tokens before or after", "sequences longer than the shift", propose
)
