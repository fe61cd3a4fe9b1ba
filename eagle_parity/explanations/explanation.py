"""What an explanation is: a hypothesis that predicts one side's state from others, and how far off it stays.

Shape letters: T tokens of one sequence, D hidden dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch

from eagle_parity.numerics.rows import row_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eagle_parity.comparison.measurements import Candidate, Fit
    from eagle_parity.findings import FindingKind
    from eagle_parity.wiring import Boundary

SCORED_ROWS = 256
"""Rows of a sequence that score a hypothesis: there are hundreds of hypotheses, and a median of these is plenty."""

Segments: TypeAlias = tuple[torch.Tensor, ...]
"""One float32 ``[T, D]`` tensor a sequence."""


@dataclass(frozen=True)
class Sample:
    """The rows of one unexplained state, a bounded number of sequences.

    Attributes:
        subject: the state to explain.
        keep: bool ``[T]`` a sequence: False for sinks and non-finite rows.
        fit: which sequences numbers may be fitted on; the others score. Both kinds are there.
    """

    subject: Segments
    keep: tuple[torch.Tensor, ...]
    fit: tuple[bool, ...]

    def score(self, predicted: Segments) -> float:
        """Median relative error of the subject against a prediction, over the rows that nothing was fitted on."""
        errors = [
            row_errors(rows[keep][:SCORED_ROWS], expected[keep][:SCORED_ROWS])
            for rows, expected, keep, fitted in zip(self.subject, predicted, self.keep, self.fit, strict=True)
            if not fitted
        ]
        finite = torch.cat(errors)
        finite = finite[finite.isfinite()]
        return float(finite.median()) if len(finite) else float("inf")

    def for_fitting(self, source: Segments) -> tuple[torch.Tensor, torch.Tensor]:
        """Subject and source rows of the fitting half, each ``[rows, D]``; rows that the source lacks are left out."""
        chosen = [i for i, fitted in enumerate(self.fit) if fitted]
        y_TD = torch.cat([self.subject[i][self.keep[i]] for i in chosen])
        z_TD = torch.cat([source[i][self.keep[i]] for i in chosen])
        finite_T = z_TD.isfinite().all(1)
        return y_TD[finite_T], z_TD[finite_T]


class Sources(Protocol):
    """What predictions can start from."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every known state: boundaries of a reference, trained slots, the last state, embedding rows."""
        ...

    @property
    def final_norm(self) -> torch.Tensor | None:
        """The weight of the target's final norm, ``[D]``, where the target's weights were given."""
        ...

    def rows(self, candidate: Candidate) -> Segments:
        """A candidate's rows, aligned with the sample's."""
        ...

    def boundary(self, boundary: Boundary) -> Candidate | None:
        """The reference's candidate for a boundary."""
        ...


@dataclass(frozen=True, slots=True)
class Explanation:
    """One hypothesis.

    Attributes:
        kind: the finding that it amounts to.
        title: one line.
        needs: what it can't be tried without.
        propose: yields a fit for every candidate that it can start from.
    """

    kind: FindingKind
    title: str
    needs: str
    propose: Callable[[Sample, Sources], Iterator[Fit]]
