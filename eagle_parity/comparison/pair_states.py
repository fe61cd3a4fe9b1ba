"""The states of pairs of sequences: which there are, and which of them are compared with which others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

from eagle_parity.comparison.alignment import (
    AlignedPair,
    AlignedRows,
    EmbeddingRows,
    last_state_candidate,
    trained_slot_candidate,
)
from eagle_parity.numerics.arithmetic import Pairs
from eagle_parity.numerics.file_rows import FileRows

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from eagle_parity.comparison.measurements import Candidate
    from eagle_parity.numerics.file_rows import BlockState
    from eagle_parity.open_files import OpenFiles

_NUMBER_BYTES = 8
"""Of a float64."""

StateRows: TypeAlias = "AlignedRows | EmbeddingRows"


@dataclass(frozen=True)
class Places:
    """The place of each state in the list of a pair's states, which is the same for all pairs that have the same ones.

    Attributes:
        states: how many there are.
        trained, live, noise: places, a slot each.
        trained_last, live_last: likewise; None where there is none.
        labels: places of the candidates that states are compared with.
        pairs: places of which errors are wanted: of slots of one place first, which are subtracted, and so are those of
            the second capture.
    """

    states: int
    trained: range
    live: range
    noise: range
    trained_last: int | None
    live_last: int | None
    labels: dict[str, int]
    pairs: Pairs

    @classmethod
    def of(
        cls,
        pair: AlignedPair,
        trained: Sequence[Iterable[Candidate]],
        live: Sequence[Iterable[Candidate]],
        trained_last: Iterable[Candidate],
        live_last: Iterable[Candidate],
    ) -> Places:
        """Those of a pair, and the candidates of each slot and last state."""
        slots, live_from = len(pair.trained), len(pair.trained) + len(pair.live)
        labels = {trained_slot_candidate(slot).label: slot for slot in range(slots)}
        count = live_from + len(pair.noise)
        last: list[int | None] = []
        for state in (pair.trained_last, pair.live_last):
            last.append(None if state is None else count)
            count += state is not None
        if last[0] is not None:
            labels[last_state_candidate().label] = last[0]
        for place, (candidate, _) in enumerate(pair.known, count):
            labels[candidate.label] = place
        subjects: list[tuple[int, Iterable[Candidate]]] = [
            *enumerate(trained[:slots]),
            *((slots + slot, candidates) for slot, candidates in enumerate(live[: len(pair.live)])),
        ]
        subjects += [
            (place, candidates)
            for place, candidates in zip(last, (trained_last, live_last), strict=True)
            if place is not None
        ]
        same_place = [(slots + slot, slot) for slot in range(min(slots, len(pair.live)))]
        second = [(live_from + slot, slots + slot) for slot in range(min(len(pair.noise), len(pair.live)))]
        compared = [
            (place, labels[candidate.label])
            for place, candidates in subjects
            for candidate in candidates
            # Slots of one place are subtracted, which is more exact.
            if candidate.label in labels and (place, labels[candidate.label]) not in same_place
        ]
        return cls(
            states=count + len(pair.known),
            trained=range(slots),
            live=range(slots, live_from),
            noise=range(live_from, live_from + len(pair.noise)),
            trained_last=last[0],
            live_last=last[1],
            labels=labels,
            pairs=Pairs(tuple(compared), (*same_place, *second)),
        )

    @property
    def number_bytes(self) -> int:
        """Of what is computed of a row: float64, an error a pair, and a state's square and norm."""
        return _NUMBER_BYTES * (len(self.pairs.by_products) + len(self.pairs.subtracted) + 2 * self.states)

    @property
    def same_place(self) -> int:
        """How many slots stand in one place on both sides."""
        return min(len(self.trained), len(self.live))

    @property
    def slots(self) -> int:
        """How many of the states are slots, of either side: the first ones."""
        return self.live.stop

    @property
    def judged(self) -> list[int]:
        """Places of the states that are asked what they are: slots, then last states."""
        last = [place for place in (self.trained_last, self.live_last) if place is not None]
        return [*self.trained, *self.live, *last]


def states_of(pair: AlignedPair) -> tuple[StateRows, ...]:
    """A pair's states, in the order of ``Places``."""
    last = (state for state in (pair.trained_last, pair.live_last) if state is not None)
    return (*pair.trained, *pair.live, *pair.noise, *last, *(rows for _, rows in pair.known))


def hold(
    states: Iterable[StateRows], start: int, stop: int, in_files: Container[str], files: OpenFiles
) -> list[BlockState]:
    """Some rows of states, as stored; those of some dtypes stay in their files.

    Args:
        states: of one pair.
        start: the first row.
        stop: the row behind the last one.
        in_files: the dtypes.
        files: must stay open as long as the rows are used.
    """
    held: list[BlockState] = []
    for state in states:
        place = state.place(start, stop)
        if place is None or place.dtype not in in_files:
            held.append(state.read_stored(start, stop))
        else:
            held.append(FileRows(place, files.open(place.path, place.size, place.stamp)))
    return held


def read_rows(states: Iterable[StateRows], rows: Sequence[int]) -> list[torch.Tensor]:
    """Single rows of states, as stored."""
    return [torch.cat([state.read_stored(row, row + 1) for row in rows]) for state in states]


def held_row_bytes(states: Iterable[StateRows], in_files: Container[str], length: int) -> int:
    """Memory that one row takes, of states that can't stay in their files while they are computed with.

    Args:
        states: of one pair.
        in_files: dtypes of states that can.
        length: rows of the pair.
    """
    places = ((state, state.place(0, length)) for state in states)
    return sum(state.row_bytes for state, place in places if place is None or place.dtype not in in_files)
