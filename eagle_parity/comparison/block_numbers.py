"""What is known of one block of rows: norms, which rows are numbers, and how far states are from each other.

Distances between states that are compared with many others come from inner products, one for each two states and row:
``|x - y|^2 = |x|^2 + |y|^2 - 2xy``. Where the two are close that difference is mostly rounding, so there, and for the
slots of one place on both sides, the rows are subtracted instead.

Shape letters: T rows of the block, N states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.numerics.arithmetic import WholeArrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eagle_parity.numerics.arithmetic import Arithmetic
    from eagle_parity.numerics.moments import PairMoments

SUBTRACTED_BELOW = 0.03
"""Relative errors under this are measured by subtraction: by inner products with float32 sums within a tile, a relative
error e is known to about 1e-7 / e, here a tenth of a bin of the histograms."""
HUGE = 1e30
"""Squared norms beyond this leave float32's range somewhere on the way; such rows are added up in float64."""


class BlockNumbers:
    """The numbers of a block.

    Args:
        states: ``[T, D]`` each, as stored.
        pairs: (subject, expected) places of states whose errors will be asked for.
        arithmetic: how.
    """

    def __init__(
        self, states: Sequence[torch.Tensor], pairs: Iterable[tuple[int, int]], arithmetic: Arithmetic
    ) -> None:
        self.states = states
        self.arithmetic = arithmetic
        listed = list(pairs)
        self._place = {pair: place for place, pair in enumerate(listed)}
        self.squares_NT, products_PT = arithmetic.products(states, listed)
        self.finite_NT = self.squares_NT.isfinite()
        self._errors_PT = self._by_products(listed, products_PT)
        self._subtracted: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def rows(self) -> int:
        """T."""
        return self.squares_NT.shape[1]

    def norms(self, state: int) -> torch.Tensor:
        """Of a state's rows, float64 ``[T]``."""
        return self.squares_NT[state].sqrt()

    def errors(self, subject: int, expected: int) -> torch.Tensor:
        """``|subject - expected| / |expected|`` a row: float64 ``[T]``.

        Inf where only ``expected`` is zero, NaN where either row isn't finite: a row that isn't there is no match.
        """
        if (subject, expected) in self._subtracted:
            return self._subtracted[subject, expected]
        return self._errors_PT[self._place[subject, expected]]

    def subtract(self, subject: int, expected: int) -> torch.Tensor:
        """As ``errors``, by subtraction throughout; the pair needs no product."""
        everything = torch.arange(self.rows)
        squared_T = self.arithmetic.squared_differences(
            self.states[subject], self.states[expected], everything, everything
        )
        found_T = self._relative(squared_T, expected)
        self._subtracted[subject, expected] = found_T
        return found_T

    def neighbour_errors(self, state: int, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Errors of rows ``second`` of one state against rows ``first`` of it: float64, one a pair."""
        squared_T = self.arithmetic.squared_differences(self.states[state], self.states[state], second, first)
        return _relative(squared_T, self.squares_NT[state, first])

    def add_to(self, moments: PairMoments, subject: int, expected: int, keep_T: torch.Tensor) -> None:
        """Adds the kept rows to a pair's sums, ``expected`` as x and ``subject`` as y."""
        huge_T = (self.squares_NT[subject] > HUGE) | (self.squares_NT[expected] > HUGE)
        x_TD, y_TD = self.states[expected], self.states[subject]
        for arithmetic, chosen_T in ((self.arithmetic, keep_T & ~huge_T), (WholeArrays(), keep_T & huge_T)):
            moments.add(arithmetic, x_TD, y_TD, chosen_T.nonzero().flatten())

    def _relative(self, squared_T: torch.Tensor, expected: int) -> torch.Tensor:
        return _relative(squared_T, self.squares_NT[expected])

    def _by_products(self, pairs: Sequence[tuple[int, int]], products_PT: torch.Tensor) -> torch.Tensor:
        """The errors of all pairs, float64 ``[P, T]``, by subtraction where products say too little."""
        if not pairs:
            return products_PT
        subjects, expecteds = torch.tensor(pairs).T
        expected_PT = self.squares_NT[expecteds]
        squared_PT = self.squares_NT[subjects] + expected_PT - 2 * products_PT
        close_PT = (squared_PT < SUBTRACTED_BELOW**2 * expected_PT) | (expected_PT == 0) | (squared_PT < 0)
        for place in close_PT.any(1).nonzero().flatten().tolist():
            subject, expected = pairs[place]
            close = close_PT[place].nonzero().flatten()
            squared_PT[place, close] = self.arithmetic.squared_differences(
                self.states[subject], self.states[expected], close, close
            )
        return _relative(squared_PT, expected_PT)


def _relative(squared_T: torch.Tensor, expected_T: torch.Tensor) -> torch.Tensor:
    # Not "where expected > 0": that is false for NaN too, and would make a missing row an exact match.
    return torch.where((expected_T == 0) & (squared_T == 0), 0.0, (squared_T / expected_T).sqrt())
