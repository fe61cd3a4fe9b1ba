"""A comparison's arithmetic in plain torch: the reference that the compiled one is tested against.

It is the choice for little data, and what runs on a GPU.

Shape letters: T rows, D dimensions, N states, P pairs of states by products, Q by subtraction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from eagle_parity.numerics.arithmetic import SUBTRACTED_BELOW, Compared, Pairs, PairSums
from eagle_parity.numerics.file_rows import rows_between
from eagle_parity.numerics.sinks import stands_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.numerics.arithmetic import Arithmetic, Limits
    from eagle_parity.numerics.file_rows import BlockState
    from eagle_parity.numerics.stacked_rows import StackedRows

_WHOLE_ROWS = 256
_FIRST_BYTES = 4 * 1024 * 1024
"""As they are stored; as float64 they are four times that, several times over."""


class Products(NamedTuple):
    """Inner products of rows.

    Attributes:
        squares_NT: float64, squared norms. NaN or infinite where a row isn't finite.
        products_PT: float64, one row a pair.
    """

    squares_NT: torch.Tensor
    products_PT: torch.Tensor


class WholeArrays:
    """Torch, in float64.

    Args:
        device: ``cpu``, or a GPU to which blocks are copied. No GPU was at hand when this was written.
    """

    in_files: frozenset[str] = frozenset()
    first_bytes: int = _FIRST_BYTES

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def block_rows(self, row_bytes: int) -> int:
        """See ``Arithmetic``: each number takes up to 8 bytes several times over."""
        del row_bytes
        return _WHOLE_ROWS

    def products(self, states: Sequence[torch.Tensor], pairs: Sequence[tuple[int, int]]) -> Products:
        """Squared norms of all states' rows, and the inner products of pairs of states, row by row."""
        rows = states[0].shape[0]
        wide = [self._wide(state) for state in states]
        squares = [(state * state).sum(1) for state in wide]
        products = [(wide[left] * wide[right]).sum(1) for left, right in pairs]
        return Products(
            torch.stack(squares).cpu(),
            torch.stack(products).cpu() if products else torch.zeros((0, rows), dtype=torch.float64),
        )

    def compare(
        self,
        pieces: Sequence[Sequence[BlockState]],
        pairs: Pairs,
        limits: Limits | None = None,
        sums: Sequence[PairSums | None] = (),
    ) -> Compared:
        """See ``Arithmetic``."""
        parts = [rows_between(states, 0, states[0].shape[0]) for states in pieces]
        held = parts[0] if len(parts) == 1 else [torch.cat(state) for state in zip(*parts, strict=True)]
        squares_NT, products_PT = self.products(held, pairs.by_products)
        rows = squares_NT.shape[1]
        norms_NT = torch.where(squares_NT.isfinite(), squares_NT.sqrt(), torch.nan)
        standing_T = torch.zeros(rows, dtype=torch.bool)
        if limits is not None:
            limits_NT = limits.norms_SN.T[:, limits.sequence_T]
            standing_T = stands_out(norms_NT[: len(limits_NT)], limits_NT)
        everything = torch.arange(rows)
        squared_QT = self.squared_differences(held, pairs.subtracted, everything, everything)
        errors = (
            self._errors_by_products(held, pairs.by_products, squares_NT, products_PT),
            _relative(squared_QT, *_ends(squares_NT, pairs.subtracted)),
        )
        added = [0] * len(pairs.subtracted)
        for place, ((subject, expected), pair_sums) in enumerate(zip(pairs.subtracted, sums, strict=False)):
            if pair_sums is not None:
                kept_T = ~standing_T & norms_NT[subject].isfinite() & norms_NT[expected].isfinite()
                added[place] = int(kept_T.sum())
                self.add_pair_sums(held[expected], held[subject], kept_T.nonzero().flatten(), pair_sums)
        return Compared(squares_NT, torch.cat([*errors, norms_NT]), standing_T, added)

    def read_first(self, pieces: Sequence[Sequence[BlockState]], stacked: StackedRows) -> torch.Tensor:
        """See ``Arithmetic``."""
        return stack(self, pieces, stacked)

    def _errors_by_products(
        self,
        states: Sequence[torch.Tensor],
        pairs: Sequence[tuple[int, int]],
        squares_NT: torch.Tensor,
        products_PT: torch.Tensor,
    ) -> torch.Tensor:
        subject_PT, expected_PT = _ends(squares_NT, pairs)
        squared_PT = subject_PT + expected_PT - 2 * products_PT
        close_PT = (squared_PT < SUBTRACTED_BELOW**2 * expected_PT) | (expected_PT == 0) | (squared_PT < 0)
        for place in close_PT.any(1).nonzero().flatten().tolist():
            close = close_PT[place].nonzero().flatten()
            squared_PT[place, close] = self.squared_differences(states, [pairs[place]], close, close)[0]
        return _relative(squared_PT, subject_PT, expected_PT)

    def squared_differences(
        self,
        states: Sequence[torch.Tensor],
        pairs: Sequence[tuple[int, int]],
        x_rows: torch.Tensor,
        y_rows: torch.Tensor,
    ) -> torch.Tensor:
        """See ``Arithmetic``."""
        squared_QT = torch.empty((len(pairs), len(x_rows)), dtype=torch.float64)
        for place, (x, y) in enumerate(pairs):
            difference_TD = self._wide(states[x][x_rows]) - self._wide(states[y][y_rows])
            squared_QT[place] = (difference_TD * difference_TD).sum(1).cpu()
        return squared_QT

    def add_pair_sums(
        self,
        x_TD: torch.Tensor,
        y_TD: torch.Tensor,
        rows: torch.Tensor,
        sums: PairSums,
    ) -> None:
        """See ``Arithmetic``."""
        if not len(rows):
            return
        x_TD, y_TD = self._wide(x_TD[rows]), self._wide(y_TD[rows])
        difference_TD = x_TD - y_TD
        x_TD, y_TD = x_TD - sums.origin_x_D.to(x_TD.device), y_TD - sums.origin_y_D.to(x_TD.device)
        added = (x_TD, y_TD, x_TD * x_TD, y_TD * y_TD, x_TD * y_TD, difference_TD * difference_TD)
        sums.sums_6D.add_(torch.stack([each_TD.sum(0) for each_TD in added]).cpu())
        torch.maximum(sums.largest_D, difference_TD.abs().amax(0).cpu(), out=sums.largest_D)

    def count_errors(
        self,
        errors_RT: torch.Tensor,
        rows: Sequence[int],
        keep_T: torch.Tensor,
        edges_B: torch.Tensor,
        counts: Sequence[torch.Tensor],
    ) -> None:
        """See ``Arithmetic``."""
        bins_RT = torch.bucketize(errors_RT.double().contiguous(), edges_B, right=True).clamp_max(len(edges_B))
        counted_RT = (~errors_RT.isnan() & keep_T).long()
        for row, counts_B in zip(rows, counts, strict=True):
            counts_B.scatter_add_(0, bins_RT[row], counted_RT[row])

    def _wide(self, state: torch.Tensor) -> torch.Tensor:
        return state.to(self.device).double()


def stack(arithmetic: Arithmetic, pieces: Sequence[Sequence[BlockState]], stacked: StackedRows) -> torch.Tensor:
    """Brings rows of any kind into memory: see ``Arithmetic.read_first``."""
    held = [rows_between(states, 0, states[0].shape[0]) for states in pieces]
    for states in held:
        stacked.add(states)
    return arithmetic.compare(held, Pairs()).squares_NT


def _ends(squares_NT: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared norms of the subjects and of what is expected, ``[P, T]`` each."""
    subjects, expected = (torch.tensor([pair[end] for pair in pairs], dtype=torch.int64) for end in (0, 1))
    return squares_NT[subjects], squares_NT[expected]


def _relative(squared_PT: torch.Tensor, subject_PT: torch.Tensor, expected_PT: torch.Tensor) -> torch.Tensor:
    # Not "where expected > 0": that is false for NaN too, and would make a missing row an exact match.
    found_PT = torch.where((expected_PT == 0) & (squared_PT == 0), 0.0, (squared_PT / expected_PT).sqrt())
    return torch.where(subject_PT.isfinite() & expected_PT.isfinite(), found_PT, torch.nan)
