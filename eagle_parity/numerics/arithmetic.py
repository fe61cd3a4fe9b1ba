"""The three things that a comparison computes of a block of rows, in two ways that agree.

``WholeArrays`` is plain torch in float64: the reference, the choice for little data, and what runs on a GPU.
``Compiled`` is ``kernels``: one pass over cache-sized tiles of the stored numbers, dozens of times faster, and worth
the second that loading it takes from some ten megabytes on.

Shape letters: T rows, D dimensions, N states, P pairs of states.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from eagle_parity.errors import UsageError
from eagle_parity.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

COMPILED_FROM_BYTES = 32 * 1024 * 1024
"""Of states, on both sides: below this, whole arrays are done before the compiled loops are loaded."""

SUMS = 6

_WHOLE_ROWS = 256
_LEAST_ROWS, _MOST_ROWS = 64, 2048
_BLOCK_BYTES = 64 * 1024 * 1024


class Products(NamedTuple):
    """Inner products of rows.

    Attributes:
        squares_NT: float64, squared norms. NaN or infinite where a row isn't finite.
        products_PT: float64, one row a pair.
    """

    squares_NT: torch.Tensor
    products_PT: torch.Tensor


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

    def products(self, states: Sequence[torch.Tensor], pairs: Sequence[tuple[int, int]]) -> Products:
        """Squared norms of all states' rows, and the inner products of pairs of states, row by row."""
        ...

    def squared_differences(
        self, x_TD: torch.Tensor, y_TD: torch.Tensor, x_rows: torch.Tensor, y_rows: torch.Tensor
    ) -> torch.Tensor:
        """``|x[x_rows] - y[y_rows]|^2``, float64; the rows are int64 vectors of one length."""
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
        self, errors_PT: torch.Tensor, keep_T: torch.Tensor, edges_B: torch.Tensor, counts_PB: torch.Tensor
    ) -> None:
        """Adds errors to histograms; NaN is left out.

        Args:
            errors_PT: float, >= 0.
            keep_T: bool, which of them.
            edges_B: float64, ascending, the lower edges of all bins but the first.
            counts_PB: int64, one bin more than there are edges; is added to.
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
        """See ``Arithmetic``."""
        rows = states[0].shape[0]
        wide = [self._wide(state) for state in states]
        squares = [(state * state).sum(1) for state in wide]
        products = [(wide[left] * wide[right]).sum(1) for left, right in pairs]
        return Products(
            torch.stack(squares).cpu(),
            torch.stack(products).cpu() if products else torch.zeros((0, rows), dtype=torch.float64),
        )

    def squared_differences(
        self, x_TD: torch.Tensor, y_TD: torch.Tensor, x_rows: torch.Tensor, y_rows: torch.Tensor
    ) -> torch.Tensor:
        """See ``Arithmetic``."""
        difference_TD = self._wide(x_TD[x_rows]) - self._wide(y_TD[y_rows])
        return (difference_TD * difference_TD).sum(1).cpu()

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
        self, errors_PT: torch.Tensor, keep_T: torch.Tensor, edges_B: torch.Tensor, counts_PB: torch.Tensor
    ) -> None:
        """See ``Arithmetic``."""
        bins_PT = torch.bucketize(errors_PT.double().contiguous(), edges_B, right=True)
        counts_PB.scatter_add_(1, bins_PT.clamp_max(len(edges_B)), (~errors_PT.isnan() & keep_T).long())

    def _wide(self, state: torch.Tensor) -> torch.Tensor:
        return state.to(self.device).double()


class Compiled:
    """Compiled loops over the stored numbers; what is neither bfloat16 nor float32 is widened first."""

    def __init__(self) -> None:
        from eagle_parity.numerics import kernels

        self._kernels = kernels
        self._bins_of: torch.Tensor | None = None
        self._bins: npt.NDArray[np.int32]

    def block_rows(self, row_bytes: int) -> int:
        """See ``Arithmetic``: many, so that what Python does for a block is little beside."""
        return max(_LEAST_ROWS, min(_MOST_ROWS, _BLOCK_BYTES // max(1, row_bytes)))

    def products(self, states: Sequence[torch.Tensor], pairs: Sequence[tuple[int, int]]) -> Products:
        """See ``Arithmetic``."""
        import numpy as np

        held = [_direct(state) for state in states]
        rows, size = held[0].shape
        order = sorted(range(len(pairs)), key=lambda p: pairs[p][1])
        lefts = np.array([pairs[p][0] for p in order], np.int64)
        begins = np.zeros(len(held) + 1, np.int64)
        for _, right in pairs:
            begins[right + 1] += 1
        squares_NT = torch.empty((len(held), rows), dtype=torch.float64)
        products_PT = torch.empty((len(pairs), rows), dtype=torch.float64)
        self._kernels.row_products(
            np.array([state.data_ptr() for state in held], np.uint64),
            np.array([state.stride(0) * state.element_size() for state in held], np.uint64),
            np.array([_CODES[state.dtype] for state in held], np.int64),
            np.isin(np.arange(len(held)), lefts),
            lefts,
            np.cumsum(begins),
            rows,
            size,
            squares_NT.numpy(),
            products_PT.numpy(),
        )
        placed_PT = torch.empty_like(products_PT)
        placed_PT[torch.tensor(order, dtype=torch.int64)] = products_PT
        # Squares of float32 numbers overflow from 1.8e19 on: whether a row is a number is looked at again.
        doubtful = (~squares_NT.isfinite()).any(0).nonzero().flatten()
        if len(doubtful):
            again = WholeArrays().products([state[doubtful] for state in states], pairs)
            squares_NT[:, doubtful], placed_PT[:, doubtful] = again
        return Products(squares_NT, placed_PT)

    def squared_differences(
        self, x_TD: torch.Tensor, y_TD: torch.Tensor, x_rows: torch.Tensor, y_rows: torch.Tensor
    ) -> torch.Tensor:
        """See ``Arithmetic``."""
        x_TD, y_TD = _direct(x_TD), _direct(y_TD)
        out_T = torch.empty(len(x_rows), dtype=torch.float64)
        self._kernels.squared_differences(
            *_flat(x_TD), x_rows.numpy(), *_flat(y_TD), y_rows.numpy(), x_TD.shape[1], out_T.numpy()
        )
        doubtful = (~out_T.isfinite()).nonzero().flatten()
        if len(doubtful):
            again_T = WholeArrays().squared_differences(x_TD, y_TD, x_rows[doubtful], y_rows[doubtful])
            out_T[doubtful] = again_T
        return out_T

    def add_pair_sums(
        self,
        x_TD: torch.Tensor,
        y_TD: torch.Tensor,
        rows: torch.Tensor,
        sums: PairSums,
    ) -> None:
        """See ``Arithmetic``."""
        x_TD, y_TD = _direct(x_TD), _direct(y_TD)
        origins = sums.origin_x_D.float().numpy(), sums.origin_y_D.float().numpy()
        self._kernels.pair_sums(
            *_flat(x_TD),
            *_flat(y_TD),
            rows.numpy(),
            x_TD.shape[1],
            *origins,
            sums.sums_6D.numpy(),
            sums.largest_D.numpy(),
        )

    def count_errors(
        self, errors_PT: torch.Tensor, keep_T: torch.Tensor, edges_B: torch.Tensor, counts_PB: torch.Tensor
    ) -> None:
        """See ``Arithmetic``."""
        edges, first_bins, keep = edges_B.numpy(), self._first_bins(edges_B), keep_T.numpy()
        counts = counts_PB.numpy()
        for place, errors in enumerate(errors_PT.double().contiguous().numpy()):
            self._kernels.count_errors(errors, keep, edges, first_bins, counts[place])

    def _first_bins(self, edges_B: torch.Tensor) -> npt.NDArray[np.int32]:
        """See ``kernels.count_errors``; the same for all histograms."""
        import numpy as np

        if self._bins_of is not edges_B:
            uppers = np.arange(_INFINITE_BITS >> self._kernels.MANTISSA_SHIFT, dtype=np.uint64)
            least = (uppers << np.uint64(self._kernels.MANTISSA_SHIFT)).view(np.float64)
            self._bins = np.searchsorted(edges_B.numpy(), least, side="right").astype(np.int32)
            self._bins_of = edges_B
        return self._bins


_INFINITE_BITS = 0x7FF0_0000_0000_0000
"""Of a float64."""
_CODES = {torch.bfloat16: 0, torch.float32: 1}
"""``kernels.BFLOAT16`` and ``kernels.FLOAT32``, without importing them."""


def _direct(state: torch.Tensor) -> torch.Tensor:
    """The state in a dtype that the loops take, its rows without gaps."""
    if state.dtype not in _CODES:
        state = state.float()
    return state if state.stride(1) == 1 or state.shape[1] == 1 else state.contiguous()


def _flat(state_TD: torch.Tensor) -> tuple[npt.NDArray[np.uint16] | npt.NDArray[np.float32], int, int]:
    """The numbers from the first one to the last, where the first row begins, and how far the next one is."""
    import numpy as np

    rows, size = state_TD.shape
    step = state_TD.stride(0)
    span = (rows - 1) * step + size if rows else 0
    flat = state_TD.as_strided((span,), (1,))
    if state_TD.dtype == torch.bfloat16:
        halves: npt.NDArray[np.uint16] = flat.view(torch.int16).numpy().view(np.uint16)
        return halves, 0, step
    floats: npt.NDArray[np.float32] = flat.numpy()
    return floats, 0, step
