"""One state of one side against all its candidates, over any number of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eagle_parity.comparison.block_numbers import error_row, norm_row
from eagle_parity.comparison.measurements import Candidate, RepeatedTokens, StateMeasurement
from eagle_parity.comparison.states import json_number
from eagle_parity.numerics.histogram import ErrorHistograms

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from eagle_parity.numerics.arithmetic import Pairs


@dataclass
class StateMatch:
    """One state of one side against all its candidates, as a state that merges."""

    candidates: tuple[Candidate, ...]
    errors: ErrorHistograms
    dtype: str
    rows: int = 0
    non_finite: int = 0
    repeats: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))
    contrasts: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))
    norms: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))

    @classmethod
    def start(cls, candidates: tuple[Candidate, ...], dtype: str) -> StateMatch:
        """An empty one."""
        return cls(candidates, ErrorHistograms(len(candidates)), dtype)

    def targets(self, pairs: Pairs, state: int, expected: Mapping[str, int]) -> list[tuple[int, torch.Tensor]]:
        """Which rows of a block's errors go into which counts.

        Args:
            pairs: that are compared in the block.
            state: this state's place there.
            expected: the places of the candidates' states, by label.
        """
        return [
            *(
                (error_row(pairs, state, expected[candidate.label]), self.errors.counts_PB[place])
                for place, candidate in enumerate(self.candidates)
                if candidate.label in expected
            ),
            (norm_row(pairs, state), self.norms.counts_PB[0]),
        ]

    def merge(self, other: StateMatch) -> StateMatch:
        """Adds what another has seen of the same candidates."""
        self.errors.merge(other.errors)
        self.repeats.merge(other.repeats)
        self.contrasts.merge(other.contrasts)
        self.norms.merge(other.norms)
        self.rows += other.rows
        self.non_finite += other.non_finite
        return self

    def compute(self) -> StateMeasurement:
        """The measurement; candidates that no row was compared with are left out."""
        measured = []
        for place, candidate in enumerate(self.candidates):
            quantiles = self.errors.quantiles(place)
            if quantiles.count:
                measured.append(
                    Candidate(
                        label=candidate.label,
                        boundary=candidate.boundary,
                        trained_slot=candidate.trained_slot,
                        distance=json_number(quantiles.median),
                        rows=quantiles.count,
                    )
                )
        repeats, contrasts, norms = self.repeats.quantiles(0), self.contrasts.quantiles(0), self.norms.quantiles(0)
        return StateMeasurement(
            rows=self.rows,
            non_finite_rows=self.non_finite,
            dtype=self.dtype,
            candidates=sorted(measured, key=lambda c: c.distance),
            median_norm=json_number(norms.median) if norms.count else None,
            repeated_tokens=RepeatedTokens(
                pairs=repeats.count,
                distance=json_number(repeats.p90),
                contrast=json_number(contrasts.median) if contrasts.count else None,
            )
            if repeats.count
            else None,
        )
