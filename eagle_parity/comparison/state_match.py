"""One state of one side against all its candidates, over any number of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.measurements import Candidate, RepeatedTokens, StateMeasurement
from eagle_parity.comparison.states import json_number
from eagle_parity.numerics.histogram import ErrorHistograms
from eagle_parity.numerics.rows import token_neighbours

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.comparison.block_numbers import BlockNumbers


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

    def update(
        self, numbers: BlockNumbers, state: int, expected: Mapping[str, int], keep_T: torch.Tensor, seen_T: torch.Tensor
    ) -> None:
        """Adds a block.

        Args:
            numbers: of the block.
            state: its place there.
            expected: the places of the candidates' states, by label.
            keep_T: bool ``[T]``, which rows count.
            seen_T: bool ``[T]``, which rows can't come again: those that count, and sinks.
        """
        finite_T = numbers.finite_NT[state]
        self.non_finite += int((~finite_T & seen_T).sum())
        keep_T = keep_T & finite_T
        self.rows += int(keep_T.sum())
        errors_PT = torch.full((len(self.candidates), numbers.rows), torch.nan, dtype=torch.float64)
        for place, candidate in enumerate(self.candidates):
            if candidate.label in expected:
                errors_PT[place] = numbers.errors(state, expected[candidate.label])
        self.errors.update(errors_PT, keep_T, numbers.arithmetic)
        self.norms.update(numbers.norms(state)[None], keep_T, numbers.arithmetic)

    def update_repeats(self, numbers: BlockNumbers, state: int, keep_T: torch.Tensor, ids_T: torch.Tensor) -> None:
        """Adds the first rows of a sequence: how rows of one token, and of different ones, differ."""
        kept = keep_T.nonzero().flatten()
        first, second, same_T = token_neighbours(ids_T[kept])
        errors_T = numbers.neighbour_errors(state, kept[first], kept[second])
        self.repeats.update(errors_T[None], same_T, numbers.arithmetic)
        self.contrasts.update(errors_T[None], ~same_T, numbers.arithmetic)

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
