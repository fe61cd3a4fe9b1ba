"""A comparison's arithmetic in compiled loops: one pass over cache-sized pieces of the stored numbers.

Shape letters: T rows, D dimensions, N states, P pairs of states by products, Q by subtraction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.errors import InputError
from eagle_parity.numerics.arithmetic import SUBTRACTED_BELOW, Compared, Limits, Pairs, PairSums
from eagle_parity.numerics.block_plan import Plan, Scratch, wide
from eagle_parity.numerics.file_rows import FileRows, rows_between
from eagle_parity.numerics.located import CODES, groups_of, locate
from eagle_parity.numerics.loops.shapes import MANTISSA_SHIFT, SUMS
from eagle_parity.numerics.product_tables import arrange
from eagle_parity.numerics.stacked_rows import ROOM_BYTES
from eagle_parity.numerics.whole_arrays import WholeArrays, stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from eagle_parity.numerics.file_rows import BlockState, FileSource
    from eagle_parity.numerics.product_tables import Tables
    from eagle_parity.numerics.stacked_rows import Room, StackedRows

_LEAST_ROWS, _MOST_ROWS = 64, 16384
_BLOCK_BYTES = 32 * 1024 * 1024
_WIDE_BYTES = 8
"""Of a float64."""


class Compiled:
    """Compiled loops over the stored numbers; what is neither bfloat16 nor float32 is widened first."""

    in_files: frozenset[str] = frozenset({"bfloat16", "float32"})
    first_bytes: int = ROOM_BYTES

    def __init__(self) -> None:
        from eagle_parity.numerics import machine_code

        self._loops = machine_code.load()
        self._bins_of: torch.Tensor | None = None
        self._bins: npt.NDArray[np.int32]
        self._tables: dict[tuple[tuple[tuple[int, int], ...], int], Tables] = {}

    def block_rows(self, row_bytes: int) -> int:
        """See ``Arithmetic``: many, so that what Python does for a block is little beside."""
        return max(_LEAST_ROWS, min(_MOST_ROWS, _BLOCK_BYTES // max(1, row_bytes)))

    def compare(
        self,
        pieces: Sequence[Sequence[BlockState]],
        pairs: Pairs,
        limits: Limits | None = None,
        sums: Sequence[PairSums | None] = (),
    ) -> Compared:
        """See ``Arithmetic``."""
        return self._compare(pieces, pairs, limits, sums)

    def read_first(self, pieces: Sequence[Sequence[BlockState]], stacked: StackedRows) -> torch.Tensor:
        """See ``Arithmetic``."""
        if all(isinstance(state, FileRows) for states in pieces for state in states):
            room = stacked.room([locate(states) for states in pieces], pieces[0][0].shape[1])
            if room is not None:
                return self._compare(pieces, Pairs(), room=room).squares_NT
        return stack(self, pieces, stacked)

    def _compare(
        self,
        pieces: Sequence[Sequence[BlockState]],
        pairs: Pairs,
        limits: Limits | None = None,
        sums: Sequence[PairSums | None] = (),
        room: Room | None = None,
    ) -> Compared:
        """As ``compare``; what is read of files stays in the room, where there is some."""
        import numpy as np

        held = [[_direct(state) for state in piece] for piece in pieces]
        located = [locate(piece) for piece in held]
        states, size = len(held[0]), held[0][0].shape[1]
        rows = sum(piece.rows for piece in located)
        if limits is None:
            limits = Limits(torch.empty((1, 0), dtype=torch.float64), torch.zeros(rows, dtype=torch.int64))
        _check(held, limits, sums)
        limits_SN = np.full((len(limits.norms_SN), states), np.inf)
        limits_SN[:, : limits.norms_SN.shape[1]] = limits.norms_SN.numpy()
        sums_4Q = np.zeros((4, len(pairs.subtracted)), np.uint64)
        for place, pair_sums in enumerate(sums):
            if pair_sums is not None:
                sums_4Q[:, place] = [tensor.data_ptr() for tensor in pair_sums]
        compared_rows = len(pairs.by_products) + len(pairs.subtracted) + states
        squares_NT = torch.empty((states, rows), dtype=torch.float64)
        errors_RT = torch.empty((compared_rows, rows), dtype=torch.float64)
        standing_T, huge_T = (torch.empty(rows, dtype=torch.bool) for _ in range(2))
        added_Q = np.zeros(len(pairs.subtracted), np.int64)
        common: dict[str, npt.NDArray[np.generic] | int] = {
            **self._tables_of(pairs.by_products, states)._asdict(),
            "subtracted_2Q": np.array(pairs.subtracted, np.int64).reshape(-1, 2).T.copy(),
            "limits_SN": limits_SN,
            "sequence_T": limits.sequence_T.contiguous().numpy(),
            "sums_4Q": sums_4Q,
            "size": size,
            "subtracted_below": np.array([SUBTRACTED_BELOW]),
            "squares_NT": squares_NT.numpy(),
            "errors_PT": errors_RT.numpy(),
            "standing_T": standing_T.numpy(),
            "huge_T": huge_T.numpy(),
            "added_Q": added_Q,
        }
        subtracted = {place for pair in pairs.subtracted for place in pair}
        done = 0
        for group in groups_of(located):
            plan = Plan.of(group, max(piece.rows for piece in group.pieces), size, subtracted, room)
            scratch = Scratch.of(states, len(pairs.by_products), len(pairs.subtracted), size, in_words=plan.in_words)
            unread = self._loops.compare_block(
                **common, **group.arrays(done)._asdict(), **plan._asdict(), **scratch._asdict()
            )
            if unread >= 0:
                piece, source = divmod(unread, len(group.layout.pitches))
                raise why_not_read(group.pieces[piece].sources[source], group.pieces[piece].rows)
            done += sum(piece.rows for piece in group.pieces)
        found = Compared(squares_NT, errors_RT, standing_T, added_Q.tolist())
        if huge_T.numpy().any():
            self._compare_huge(pieces, pairs, limits, sums, huge_T=huge_T, found=found)
        return found

    def _compare_huge(
        self,
        pieces: Sequence[Sequence[BlockState]],
        pairs: Pairs,
        limits: Limits,
        sums: Sequence[PairSums | None],
        *,
        huge_T: torch.Tensor,
        found: Compared,
    ) -> None:
        """Computes rows again of which float32 may have lost something, and puts them into what was found."""
        first = 0
        for states in pieces:
            rows, size = states[0].shape
            # As float64 these rows take several times what they are stored in, and there may be many.
            step = max(1, _BLOCK_BYTES // (_WIDE_BYTES * size * len(states)))
            for low in range(0, rows, step):
                huge = huge_T[first + low : first + min(low + step, rows)].nonzero().flatten()
                if len(huge):
                    few = [state[huge] for state in rows_between(states, low, low + step)]
                    places = first + low + huge
                    of_few = limits._replace(sequence_T=limits.sequence_T[places])
                    again = WholeArrays().compare([few], pairs, of_few, sums)
                    found.squares_NT[:, places], found.errors_RT[:, places], found.standing_T[places] = again[:3]
                    for place, more in enumerate(again.added):
                        found.added[place] += more
            first += rows

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
        block = locate(held)
        self._loops.row_distances(
            addresses_N=np.array(block.addresses, np.uint64),
            steps_N=np.array(block.steps, np.uint64),
            codes_N=np.array(block.layout.codes, np.int64),
            x_Q=x,
            y_Q=y,
            x_rows_T=x_rows.contiguous().numpy(),
            y_rows_T=y_rows.contiguous().numpy(),
            size=held[0].shape[1],
            wide=wide(),
            out_QT=squared_QT.numpy(),
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
            self.compare([[x_TD[rows], y_TD[rows]]], Pairs(subtracted=((1, 0),)), sums=[sums])

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

        self._loops.count_errors(
            errors_PT=errors_RT.double().contiguous().numpy(),
            rows_R=np.array(rows, np.int64),
            keep_T=keep_T.contiguous().numpy(),
            edges_B=edges_B.numpy(),
            first_bins=self._first_bins(edges_B),
            counts_R=np.array([counts_B.data_ptr() for counts_B in counts], np.uint64),
        )

    def _first_bins(self, edges_B: torch.Tensor) -> npt.NDArray[np.int32]:
        """See ``histograms.count_errors``; the same for all histograms."""
        import numpy as np

        if self._bins_of is not edges_B:
            lowest, highest = (edges_B.numpy()[[0, -1]].view(np.uint64) >> np.uint64(MANTISSA_SHIFT)).tolist()
            uppers = np.arange(lowest, highest + 1, dtype=np.uint64)
            least = (uppers << np.uint64(MANTISSA_SHIFT)).view(np.float64)
            self._bins = np.searchsorted(edges_B.numpy(), least, side="right").astype(np.int32)
            self._bins_of = edges_B
        return self._bins

    def _tables_of(self, pairs: tuple[tuple[int, int], ...], states: int) -> Tables:
        found = self._tables.get((pairs, states))
        if found is None:
            found = self._tables[pairs, states] = arrange(pairs, states)
        return found


def _check(held: Sequence[Sequence[BlockState]], limits: Limits, sums: Sequence[PairSums | None]) -> None:
    """Whether a loop, which takes addresses, stays within what is there.

    Raises:
        ValueError: it wouldn't.
    """
    states, size = len(held[0]), held[0][0].shape[1]
    rows = 0
    for piece in held:
        shape = piece[0].shape[0], size
        if len(piece) != states or any(tuple(state.shape) != shape for state in piece):
            raise ValueError("states of one shape are needed in a piece, and of one size in all of them")
        rows += shape[0]
    told_T = limits.sequence_T.numpy()
    if len(told_T) != rows or (rows and not 0 <= told_T.min() <= told_T.max() < len(limits.norms_SN)):
        raise ValueError("a sequence with limits is needed for every row")
    if any(each is not None and each.sums_6D.shape != (SUMS, size) for each in sums):
        raise ValueError(f"sums of {size} dimensions are needed")


def _direct(state: BlockState) -> BlockState:
    """The state in a dtype that the loops take, its rows without gaps."""
    if isinstance(state, FileRows):
        return state
    if state.dtype not in CODES:
        state = state.float()
    return state if state.stride(1) == 1 or state.shape[1] == 1 else state.contiguous()


def why_not_read(source: FileSource, rows: int) -> InputError:
    """What is wrong with a file that a compiled loop got too little of: reading it once more says it."""
    try:
        for first in range(0, rows, _LEAST_ROWS):
            source.read(first, min(first + _LEAST_ROWS, rows))
    except InputError as error:
        return error
    return InputError(source.file.path, "a read of it failed, and then it did not", remedy="run the command again")
