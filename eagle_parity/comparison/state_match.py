"""One state of one side against all its candidates, over any number of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.comparison.block_numbers import error_row, norm_row
from eagle_parity.comparison.measurements import Candidate, RepeatedTokens, StateMeasurement
from eagle_parity.comparison.states import json_number
from eagle_parity.numerics.histogram import ErrorHistograms

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from eagle_parity.numerics.arithmetic import Pairs


_BEHIND = 3
REPEATS, CONTRASTS, NORMS = range(-_BEHIND, 0)
"""Histograms of a state behind those of its candidates: how rows of one token differ, how others do, and norms."""


@dataclass
class StateMatch:
    """One state of one side against all its candidates, as a state that merges.

    Attributes:
        candidates: what it is compared with.
        histograms: of its errors against each, and behind them ``REPEATS``, ``CONTRASTS`` and ``NORMS``.
        dtype: as stored.
        rows, non_finite: how many were numbers, and how many weren't.
    """

    candidates: tuple[Candidate, ...]
    histograms: ErrorHistograms
    dtype: str
    rows: int = 0
    non_finite: int = 0

    @classmethod
    def start(cls, candidates: tuple[Candidate, ...], dtype: str) -> StateMatch:
        """An empty one."""
        return cls(candidates, ErrorHistograms(len(candidates) + _BEHIND), dtype)

    def targets(self, pairs: Pairs, state: int, expected: Mapping[str, int]) -> list[tuple[int, torch.Tensor]]:
        """Which rows of a block's errors go into which counts.

        Args:
            pairs: that are compared in the block.
            state: this state's place there.
            expected: the places of the candidates' states, by label.
        """
        return [
            *(
                (error_row(pairs, state, expected[candidate.label]), self.histograms.counts_PB[place])
                for place, candidate in enumerate(self.candidates)
                if candidate.label in expected
            ),
            (norm_row(pairs, state), self.histograms.counts_PB[NORMS]),
        ]

    def merge(self, other: StateMatch) -> StateMatch:
        """Adds what another has seen of the same candidates."""
        self.histograms.merge(other.histograms)
        self.rows += other.rows
        self.non_finite += other.non_finite
        return self

    def compute(self) -> StateMeasurement:
        """The measurement; candidates that no row was compared with are left out."""
        measured = []
        every = self.histograms.all_quantiles()
        for candidate, quantiles in zip(self.candidates, every, strict=False):
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
        repeats, contrasts, norms = (every[place] for place in (REPEATS, CONTRASTS, NORMS))
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
