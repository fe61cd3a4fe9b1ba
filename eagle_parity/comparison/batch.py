"""Pairs of sequences that are computed with together: what is done once for many of them takes no time for each.

Shape letters: S sequences of a batch, R first rows of all of them, T rows of a piece, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from eagle_parity.comparison.pair_states import held_row_bytes, hold, states_of
from eagle_parity.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from eagle_parity.comparison.alignment import AlignedPair
    from eagle_parity.comparison.pair_states import Places, StateRows
    from eagle_parity.numerics.arithmetic import Arithmetic
    from eagle_parity.numerics.file_rows import BlockState
    from eagle_parity.numerics.stacked_rows import StackedRows

_TOGETHER = 4
"""Sequences whose files a thread has open together, on each side: a process may have a thousand, and sixty threads. The
same everywhere, because sums depend on it to their last digits."""
_LEAST_ROWS = 64
"""Fewer of a sequence aren't worth a piece of their own, if there are more."""


class RowsOf(NamedTuple):
    """Which rows of a batch some rows are.

    Attributes:
        sequence_T: int64, of which sequence.
        row_T: int64, which row of it.
    """

    sequence_T: torch.Tensor
    row_T: torch.Tensor


class Block(NamedTuple):
    """Rows that are compared by one call.

    Attributes:
        pieces: the states of some rows of a sequence each, or of the first ones of all: ``[T, D]``, as stored, in
            memory or in their files.
        rows: which ones they are, one piece behind the other.
    """

    pieces: list[list[BlockState]]
    rows: RowsOf


class FirstRows(NamedTuple):
    """The first rows of a batch's sequences, one sequence behind the other.

    Attributes:
        states: ``[R, D]``, as stored, of all states or of those that are judged, by their places in ascending order.
        squares_NR: float64, their squared norms, in this order.
        rows: which ones they are.
    """

    states: dict[int, torch.Tensor]
    squares_NR: torch.Tensor
    rows: RowsOf


@dataclass(frozen=True)
class Batch:
    """Pairs of sequences that have the same states.

    Attributes:
        pairs: S of them.
        states: of each pair, in the order of ``places``.
        places: what is what.
        first: how many first rows of each are in memory together.
        all_states: whether that is so of all states, or of those that are judged alone: of the 62 boundaries of a
            reference even few rows are many.
    """

    pairs: list[AlignedPair]
    states: list[tuple[StateRows, ...]]
    places: Places
    first: list[int]
    all_states: bool

    def read_first(self, arithmetic: Arithmetic, stacked: StackedRows) -> FirstRows:
        """The first rows, in memory.

        Args:
            arithmetic: how they are read, and their norms computed.
            stacked: where they stay.

        Raises:
            InputError: a file can't be read any more.
        """
        chosen = range(self.places.states) if self.all_states else self.places.judged
        squares: list[torch.Tensor] = []
        for low in range(0, len(self.first), _TOGETHER):
            some = slice(low, low + _TOGETHER)
            with OpenFiles() as files:
                pieces = [
                    hold([states[place] for place in chosen], 0, rows, arithmetic.in_files, files)
                    for states, rows in zip(self.states[some], self.first[some], strict=True)
                ]
                squares.append(arithmetic.read_first(pieces, stacked))
        counts = torch.tensor(self.first)
        sequence_R = torch.arange(len(counts)).repeat_interleave(counts)
        row_R = torch.arange(len(sequence_R)) - (counts.cumsum(0) - counts)[sequence_R]
        return FirstRows(
            dict(zip(chosen, stacked.states(), strict=True)), torch.cat(squares, dim=1), RowsOf(sequence_R, row_R)
        )

    def blocks(
        self,
        first: FirstRows,
        in_files: Container[str],
        block_rows: Callable[[int], int],
    ) -> Iterator[Block]:
        """All rows, each once.

        Args:
            first: those of all states are a piece.
            in_files: dtypes of states that stay in their files.
            block_rows: how many rows a block has, if a row has so many bytes that have to be in memory.

        Raises:
            InputError: a file can't be read any more.
        """
        begun = sum(self.first) if self.all_states else 0
        for spans in self._spans(begun, in_files, block_rows):
            pieces: list[list[BlockState]] = []
            rows: list[RowsOf] = []
            if begun:
                pieces, rows, begun = [list(first.states.values())], [first.rows], 0
            with OpenFiles() as files:
                for sequence, low, high in spans:
                    pieces.append(hold(self.states[sequence], low, high, in_files, files))
                    row_T = torch.arange(low, high)
                    rows.append(RowsOf(torch.full_like(row_T, sequence), row_T))
                yield Block(pieces, RowsOf(*(torch.cat(parts) for parts in zip(*rows, strict=True))))
                # States that aren't in files go before the next ones come.
                del pieces

    def _spans(
        self, begun: int, in_files: Container[str], block_rows: Callable[[int], int]
    ) -> Iterator[list[tuple[int, int, int]]]:
        """The sequence, the first row and the row behind the last one of what each block takes of a sequence.

        The first block has some rows already.
        """
        spans: list[tuple[int, int, int]] = []
        rows = begun
        for sequence, (pair, states) in enumerate(zip(self.pairs, self.states, strict=True)):
            low = self.first[sequence] if self.all_states else 0
            most = block_rows(held_row_bytes(states, in_files, pair.length) + self.places.number_bytes)
            while low < pair.length:
                if rows and (most - rows < min(_LEAST_ROWS, pair.length - low) or len(spans) == _TOGETHER):
                    yield spans
                    spans, rows = [], 0
                high = min(low + most - rows, pair.length)
                spans.append((sequence, low, high))
                rows, low = rows + high - low, high
        if rows:
            yield spans


def batches(
    pairs: Iterable[AlignedPair], places_of: Callable[[AlignedPair], Places], first_rows: int, first_bytes: int
) -> Iterator[Batch]:
    """Pairs in their order, as many together as have the same states and whose first rows aren't too many.

    Args:
        pairs: all of them; no more are taken than a batch needs, and the one that begins the next.
        places_of: the places of a pair's states; the same object for pairs that have the same ones.
        first_rows: how many of each sequence should be in memory together.
        first_bytes: how many bytes these may be.
    """
    batch: Batch | None = None
    kind: object = None
    taken = 0
    for pair in pairs:
        places, states = places_of(pair), states_of(pair)
        row_bytes = [state.row_bytes for state in states]
        rows = min(first_rows, pair.length)
        size = rows * sum(row_bytes)
        if batch is not None and kind == (id(places), row_bytes) and taken + size <= first_bytes:
            batch.pairs.append(pair)
            batch.states.append(states)
            batch.first.append(rows)
            taken += size
        else:
            if batch is not None:
                yield batch
            batch = Batch([pair], [states], places, [rows], all_states=size <= first_bytes)
            kind, taken = (id(places), row_bytes), size
    if batch is not None:
        yield batch
