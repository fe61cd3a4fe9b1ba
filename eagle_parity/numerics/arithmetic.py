"""What a comparison computes of a block of rows, in two ways that agree.

``WholeArrays`` is plain torch in float64: the reference, the choice for little data, and what runs on a GPU.
``Compiled`` is ``kernels``: one pass over cache-sized tiles of the stored numbers, dozens of times faster, and worth
the second that loading it takes from some ten megabytes on.

Distances between states that are compared with many others come from inner products, one for each two states and row:
``|x - y|^2 = |x|^2 + |y|^2 - 2xy``. Where the two are close that difference is mostly rounding, so there, and for the
slots of one place on both sides, the rows are subtracted instead.

Shape letters: T rows, D dimensions, N states, P pairs of states by products, Q by subtraction.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from eagle_parity.errors import UsageError
from eagle_parity.numerics.sinks import stands_out
from eagle_parity.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

COMPILED_FROM_BYTES = 32 * 1024 * 1024
"""Of states, on both sides: below this, whole arrays are done before the compiled loops are loaded."""

SUMS = 6

SUBTRACTED_BELOW = 0.03
"""Relative errors under this are measured by subtraction: by inner products with float32 sums within a tile, a relative
error e is known to about 1e-7 / e, here a tenth of a bin of the histograms."""
HUGE = 1e30
"""Squared norms beyond this leave float32's range somewhere on the way; such rows are added up in float64."""

_WHOLE_ROWS = 256
_LEAST_ROWS, _MOST_ROWS = 64, 2048
_BLOCK_BYTES = 32 * 1024 * 1024


class Products(NamedTuple):
    """Inner products of rows.

    Attributes:
        squares_NT: float64, squared norms. NaN or infinite where a row isn't finite.
        products_PT: float64, one row a pair.
    """

    squares_NT: torch.Tensor
    products_PT: torch.Tensor


class Pairs(NamedTuple):
    """Which states of a block are compared, by their places; (subject, expected) each.

    Attributes:
        by_products: those that are one of many comparisons.
        subtracted: those that are subtracted throughout.
    """

    by_products: tuple[tuple[int, int], ...] = ()
    subtracted: tuple[tuple[int, int], ...] = ()


class Compared(NamedTuple):
    """What was computed of a block.

    Attributes:
        squares_NT: float64, squared norms. NaN or infinite where a row isn't finite.
        errors_RT: float64 ``[P + Q + N, T]``: ``|subject - expected| / |expected|`` of the pairs by products and of the
            subtracted ones, then the norms of the states. Inf where only ``expected`` is zero, NaN where either row
            isn't finite: a row that isn't there is no match.
        standing_T: bool, which rows stand out.
        added: how many rows went into the sums of each subtracted pair.
    """

    squares_NT: torch.Tensor
    errors_RT: torch.Tensor
    standing_T: torch.Tensor
    added: list[int]


class PairSums(NamedTuple):
    """Sums over rows of two states, dimension by dimension; all float64, added to in place.

    Attributes:
        origin_x_D, origin_y_D: around which the sums are taken; of values that float32 holds as well.
        sums_6D: of x, y, x^2, y^2 and xy, all less the origins, and of ``(x - y)^2``.
        largest_D: the greatest ``|x - y|``.
    """

    origin_x_D: torch.Tensor
    origin_y_D: torch.Tensor
    sums_6D: torch.Tensor
    largest_D: torch.Tensor

    @classmethod
    def zeros(cls, hidden_size: int) -> PairSums:
        """Of no rows, around zero."""
        x_D, y_D, largest_D = (torch.zeros(hidden_size, dtype=torch.float64) for _ in range(3))
        return cls(x_D, y_D, torch.zeros((SUMS, hidden_size), dtype=torch.float64), largest_D)


class Arithmetic(Protocol):
    """What both ways offer. States are ``[T, D]`` with stride 1 along D, in any float dtype."""

    def block_rows(self, row_bytes: int) -> int:
        """How many rows a block should have, if a row of all states has so many bytes."""
        ...

    def compare(
        self,
        states: Sequence[torch.Tensor],
        pairs: Pairs,
        limits: torch.Tensor | None = None,
        sums: Sequence[PairSums | None] = (),
    ) -> Compared:
        """Everything about a block.

        Args:
            states: of the block.
            pairs: which of them are compared.
            limits: float64, the norms beyond which a row stands out, of so many states, the first ones.
            sums: of the subtracted pairs, the first ones, with ``expected`` as x: rows that don't stand out and are
                numbers on both sides are added to them.
        """
        ...

    def squared_differences(
        self,
        states: Sequence[torch.Tensor],
        pairs: Sequence[tuple[int, int]],
        x_rows: torch.Tensor,
        y_rows: torch.Tensor,
    ) -> torch.Tensor:
        """``|x[x_rows] - y[y_rows]|^2`` for pairs (x, y): float64 ``[Q, T]``; rows are int64 vectors of one length."""
        ...

    def add_pair_sums(
        self,
        x_TD: torch.Tensor,
        y_TD: torch.Tensor,
        rows: torch.Tensor,
        sums: PairSums,
    ) -> None:
        """Adds rows (int64) to the sums of each dimension."""
        ...

    def count_errors(
        self,
        errors_RT: torch.Tensor,
        rows: Sequence[int],
        keep_T: torch.Tensor,
        edges_B: torch.Tensor,
        counts: Sequence[torch.Tensor],
    ) -> None:
        """Adds errors to histograms; NaN is left out.

        Args:
            errors_RT: float, >= 0.
            rows: which rows of them.
            keep_T: bool, which columns.
            edges_B: float64, ascending, the lower edges of all bins but the first.
            counts: int64 ``[B + 1]``, one for each of ``rows``, a bin more than there are edges; are added to.
        """
        ...


def choose_arithmetic(state_bytes: int, device: str = "cpu") -> Arithmetic:
    """The faster way for so much data.

    Args:
        state_bytes: of all states that will be read.
        device: where to compute; on another one than the CPU it is torch.
    """
    if device != "cpu" or state_bytes < COMPILED_FROM_BYTES or importlib.util.find_spec("numba") is None:
        return WholeArrays(device)
    return Compiled()


def check_device(device: str) -> None:
    """Whether anything can be computed there.

    Args:
        device: as torch names it: ``cpu``, ``cuda``, ``cuda:1``.

    Raises:
        UsageError: torch knows no such device, or there is none.
    """
    try:
        # float64, which some devices don't have, and a number brought back, which ``meta`` doesn't.
        float(torch.ones(1, dtype=torch.float64, device=device).sum().cpu())
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise UsageError(f"--device {device}: nothing can be computed there ({one_line(error)})") from error


class WholeArrays:
    """Torch, in float64.

    Args:
        device: ``cpu``, or a GPU to which blocks are copied. No GPU was at hand when this was written.
    """

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
        states: Sequence[torch.Tensor],
        pairs: Pairs,
        limits: torch.Tensor | None = None,
        sums: Sequence[PairSums | None] = (),
    ) -> Compared:
        """See ``Arithmetic``."""
        squares_NT, products_PT = self.products(states, pairs.by_products)
        rows = squares_NT.shape[1]
        norms_NT = torch.where(squares_NT.isfinite(), squares_NT.sqrt(), torch.nan)
        standing_T = torch.zeros(rows, dtype=torch.bool)
        if limits is not None:
            standing_T = stands_out(norms_NT[: len(limits)], limits)
        everything = torch.arange(rows)
        errors = [
            self._errors_by_products(states, pair, squares_NT, products_T)
            for pair, products_T in zip(pairs.by_products, products_PT, strict=True)
        ]
        errors += [
            _relative(squared_T, squares_NT[subject], squares_NT[expected])
            for (subject, expected), squared_T in zip(
                pairs.subtracted,
                self.squared_differences(states, pairs.subtracted, everything, everything),
                strict=True,
            )
        ]
        added = [0] * len(pairs.subtracted)
        for place, ((subject, expected), pair_sums) in enumerate(zip(pairs.subtracted, sums, strict=False)):
            if pair_sums is not None:
                kept_T = ~standing_T & norms_NT[subject].isfinite() & norms_NT[expected].isfinite()
                added[place] = int(kept_T.sum())
                self.add_pair_sums(states[expected], states[subject], kept_T.nonzero().flatten(), pair_sums)
        return Compared(squares_NT, torch.stack([*errors, *norms_NT]), standing_T, added)

    def _errors_by_products(
        self, states: Sequence[torch.Tensor], pair: tuple[int, int], squares_NT: torch.Tensor, products_T: torch.Tensor
    ) -> torch.Tensor:
        subject_T, expected_T = squares_NT[pair[0]], squares_NT[pair[1]]
        squared_T = subject_T + expected_T - 2 * products_T
        close = (
            ((squared_T < SUBTRACTED_BELOW**2 * expected_T) | (expected_T == 0) | (squared_T < 0)).nonzero().flatten()
        )
        if len(close):
            squared_T[close] = self.squared_differences(states, [pair], close, close)[0]
        return _relative(squared_T, subject_T, expected_T)

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


class Compiled:
    """Compiled loops over the stored numbers; what is neither bfloat16 nor float32 is widened first."""

    def __init__(self) -> None:
        from eagle_parity.numerics import kernels

        self._kernels = kernels
        self._bins_of: torch.Tensor | None = None
        self._bins: npt.NDArray[np.int32]
        self._tables: dict[tuple[object, ...], _Tables] = {}

    def block_rows(self, row_bytes: int) -> int:
        """See ``Arithmetic``: many, so that what Python does for a block is little beside."""
        return max(_LEAST_ROWS, min(_MOST_ROWS, _BLOCK_BYTES // max(1, row_bytes)))

    def compare(
        self,
        states: Sequence[torch.Tensor],
        pairs: Pairs,
        limits: torch.Tensor | None = None,
        sums: Sequence[PairSums | None] = (),
    ) -> Compared:
        """See ``Arithmetic``."""
        import numpy as np

        held = [_direct(state) for state in states]
        rows, size = held[0].shape
        addresses, steps, codes = _addressed(held)
        tables = self._tables_of(pairs.by_products, held)
        limits_N = np.full(len(held), np.inf)
        if limits is not None:
            limits_N[: len(limits)] = limits.numpy()
        sums_4Q = np.zeros((4, len(pairs.subtracted)), np.uint64)
        for place, pair_sums in enumerate(sums):
            if pair_sums is not None:
                sums_4Q[:, place] = [tensor.data_ptr() for tensor in pair_sums]
        compared_rows = len(pairs.by_products) + len(pairs.subtracted) + len(held)
        squares_NT = torch.empty((len(held), rows), dtype=torch.float64)
        errors_RT = torch.empty((compared_rows, rows), dtype=torch.float64)
        standing_T, huge_T = (torch.empty(rows, dtype=torch.bool) for _ in range(2))
        added_Q = np.zeros(len(pairs.subtracted), np.int64)
        self._kernels.compare_block(
            addresses,
            steps,
            codes,
            *tables[:4],
            tables.pairs,
            np.array(pairs.subtracted, np.int64).reshape(-1, 2).T.copy(),
            limits_N,
            sums_4Q,
            rows,
            size,
            SUBTRACTED_BELOW,
            squares_NT.numpy(),
            errors_RT.numpy(),
            standing_T.numpy(),
            huge_T.numpy(),
            added_Q,
        )
        added: list[int] = added_Q.tolist()
        if bool(huge_T.any()):
            huge = huge_T.nonzero().flatten()
            again = WholeArrays().compare([state[huge] for state in states], pairs, limits, sums)
            squares_NT[:, huge], errors_RT[:, huge], standing_T[huge] = again[:3]
            added = [one + other for one, other in zip(added, again.added, strict=True)]
        return Compared(squares_NT, errors_RT, standing_T, added)

    def squared_differences(
        self,
        states: Sequence[torch.Tensor],
        pairs: Sequence[tuple[int, int]],
        x_rows: torch.Tensor,
        y_rows: torch.Tensor,
    ) -> torch.Tensor:
        """See ``Arithmetic``."""
        import numpy as np

        held = [_direct(state) for state in states]
        squared_QT = torch.empty((len(pairs), len(x_rows)), dtype=torch.float64)
        x, y = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
        self._kernels.row_distances(
            *_addressed(held), x, y, x_rows.numpy(), y_rows.numpy(), held[0].shape[1], squared_QT.numpy()
        )
        doubtful = squared_QT.isinf().any(0).nonzero().flatten()
        if len(doubtful):
            squared_QT[:, doubtful] = WholeArrays().squared_differences(
                states, pairs, x_rows[doubtful], y_rows[doubtful]
            )
        return squared_QT

    def add_pair_sums(
        self,
        x_TD: torch.Tensor,
        y_TD: torch.Tensor,
        rows: torch.Tensor,
        sums: PairSums,
    ) -> None:
        """See ``Arithmetic``."""
        if len(rows):
            self.compare([x_TD[rows], y_TD[rows]], Pairs(subtracted=((1, 0),)), sums=[sums])

    def count_errors(
        self,
        errors_RT: torch.Tensor,
        rows: Sequence[int],
        keep_T: torch.Tensor,
        edges_B: torch.Tensor,
        counts: Sequence[torch.Tensor],
    ) -> None:
        """See ``Arithmetic``."""
        import numpy as np

        self._kernels.count_errors(
            errors_RT.double().contiguous().numpy(),
            np.array(rows, np.int64),
            keep_T.numpy(),
            edges_B.numpy(),
            self._first_bins(edges_B),
            np.array([counts_B.data_ptr() for counts_B in counts], np.uint64),
        )

    def _first_bins(self, edges_B: torch.Tensor) -> npt.NDArray[np.int32]:
        """See ``kernels.count_errors``; the same for all histograms."""
        import numpy as np

        if self._bins_of is not edges_B:
            uppers = np.arange(_INFINITE_BITS >> self._kernels.MANTISSA_SHIFT, dtype=np.uint64)
            least = (uppers << np.uint64(self._kernels.MANTISSA_SHIFT)).view(np.float64)
            self._bins = np.searchsorted(edges_B.numpy(), least, side="right").astype(np.int32)
            self._bins_of = edges_B
        return self._bins

    def _tables_of(self, pairs: tuple[tuple[int, int], ...], held: Sequence[torch.Tensor]) -> _Tables:
        dtypes = tuple(state.dtype for state in held)
        key = (pairs, dtypes)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = _arrange(pairs, dtypes, self._kernels.RIGHTS, self._kernels.LEFTS)
        return found


class _Tables(NamedTuple):
    """How products are computed together; see ``kernels.compare_block``."""

    staged: npt.NDArray[np.bool_]
    rights_2K: npt.NDArray[np.int64]
    lefts_4K: npt.NDArray[np.int64]
    outs_8K: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int64]


_STAGED_STATES = 12
"""So many states' tiles fit into the first-level cache; of more only those are widened beforehand that are subjects."""


def _arrange(pairs: Sequence[tuple[int, int]], dtypes: Sequence[torch.dtype], rights: int, lefts: int) -> _Tables:
    """Pairs in tables of so many expected states and so many subjects."""
    import numpy as np

    states = len(dtypes)
    subjects = {subject for subject, _ in pairs}
    staged = [states <= _STAGED_STATES or state in subjects for state in range(states)]
    place = {pair: number for number, pair in enumerate(pairs)}
    alike: dict[object, list[int]] = {}
    for state in sorted({expected for _, expected in pairs}):
        alike.setdefault("staged" if staged[state] else dtypes[state], []).append(state)
    tables: list[tuple[list[int], list[int], list[int]]] = []
    for group in alike.values():
        for first in range(0, len(group), rights):
            expected = group[first : first + rights]
            expected += expected[-1:] * (rights - len(expected))
            wanted = sorted({subject for subject in subjects if any((subject, state) in place for state in expected)})
            for begin in range(0, len(wanted), lefts):
                row = wanted[begin : begin + lefts]
                row += [states] * (lefts - len(row))
                # Where a state is there twice, its products are computed twice and kept once.
                kept = {n for n, state in enumerate(expected) if state not in expected[:n]}
                outs = [
                    place.get((subject, state), len(pairs)) if n in kept else len(pairs)
                    for n, state in enumerate(expected)
                    for subject in row
                ]
                tables.append((expected, row, outs))

    def columns(part: int, width: int) -> npt.NDArray[np.int64]:
        return np.array([table[part] for table in tables], np.int64).reshape(len(tables), width).T.copy()

    return _Tables(
        np.array(staged),
        columns(0, rights),
        columns(1, lefts),
        columns(2, rights * lefts),
        np.array(pairs, np.int64).reshape(-1, 2).T.copy(),
    )


_INFINITE_BITS = 0x7FF0_0000_0000_0000
"""Of a float64."""
_CODES = {torch.bfloat16: 0, torch.float32: 1}
"""``kernels.BFLOAT16`` and ``kernels.FLOAT32``, without importing them."""


def _direct(state: torch.Tensor) -> torch.Tensor:
    """The state in a dtype that the loops take, its rows without gaps."""
    if state.dtype not in _CODES:
        state = state.float()
    return state if state.stride(1) == 1 or state.shape[1] == 1 else state.contiguous()


def _addressed(
    held: Sequence[torch.Tensor],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Where each state's first row is, bytes from row to row, and the dtype's code."""
    import numpy as np

    return (
        np.array([state.data_ptr() for state in held], np.uint64),
        np.array([state.stride(0) * state.element_size() for state in held], np.uint64),
        np.array([_CODES[state.dtype] for state in held], np.int64),
    )


def _relative(squared_T: torch.Tensor, subject_T: torch.Tensor, expected_T: torch.Tensor) -> torch.Tensor:
    # Not "where expected > 0": that is false for NaN too, and would make a missing row an exact match.
    found_T = torch.where((expected_T == 0) & (squared_T == 0), 0.0, (squared_T / expected_T).sqrt())
    return torch.where(subject_T.isfinite() & expected_T.isfinite(), found_T, torch.nan)
