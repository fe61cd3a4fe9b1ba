"""One block of rows of a pair of sequences: every state of it that is compared, and with which others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.alignment import AlignedPair, last_state_candidate, trained_slot_candidate
from eagle_parity.comparison.block_numbers import BlockNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eagle_parity.comparison.alignment import AlignedRows, EmbeddingRows
    from eagle_parity.comparison.measurements import Candidate
    from eagle_parity.numerics.arithmetic import Arithmetic


@dataclass(frozen=True)
class PairStates:
    """The states of a pair in one list, and the place of each.

    Attributes:
        states: what is read of each block, in this order.
        trained, live, noise: places, a slot each.
        trained_last, live_last: likewise; None where there is none.
        labels: places of the candidates that states are compared with.
        compared: (subject, expected) places of which inner products are wanted.
    """

    states: tuple[AlignedRows | EmbeddingRows, ...]
    trained: range
    live: range
    noise: range
    trained_last: int | None
    live_last: int | None
    labels: dict[str, int]
    compared: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls,
        pair: AlignedPair,
        trained: Sequence[Iterable[Candidate]],
        live: Sequence[Iterable[Candidate]],
        trained_last: Iterable[Candidate],
        live_last: Iterable[Candidate],
    ) -> PairStates:
        """The states of a pair, and the candidates of each slot and last state."""
        states: list[AlignedRows | EmbeddingRows] = [*pair.trained, *pair.live, *pair.noise]
        slots, live_from = len(pair.trained), len(pair.trained) + len(pair.live)
        labels = {trained_slot_candidate(slot).label: slot for slot in range(slots)}
        last: list[int | None] = []
        for state in (pair.trained_last, pair.live_last):
            last.append(None if state is None else len(states))
            if state is not None:
                states.append(state)
        if last[0] is not None:
            labels[last_state_candidate().label] = last[0]
        for candidate, rows in pair.known:
            labels[candidate.label] = len(states)
            states.append(rows)
        subjects: list[tuple[int, Iterable[Candidate]]] = [
            *enumerate(trained[:slots]),
            *((slots + slot, candidates) for slot, candidates in enumerate(live[: len(pair.live)])),
        ]
        subjects += [
            (place, candidates)
            for place, candidates in zip(last, (trained_last, live_last), strict=True)
            if place is not None
        ]
        compared = [
            (place, labels[candidate.label])
            for place, candidates in subjects
            for candidate in candidates
            # Slots of one place are subtracted, which is more exact.
            if candidate.label in labels and place != slots + labels[candidate.label]
        ]
        return cls(
            states=tuple(states),
            trained=range(slots),
            live=range(slots, live_from),
            noise=range(live_from, live_from + len(pair.noise)),
            trained_last=last[0],
            live_last=last[1],
            labels=labels,
            compared=tuple(compared),
        )

    def read(self, rows: range | Sequence[int], arithmetic: Arithmetic) -> BlockNumbers:
        """The numbers of some rows: a range of the pair's, or single ones."""
        read: Callable[[AlignedRows | EmbeddingRows], torch.Tensor]
        if isinstance(rows, range):
            read = lambda state: state.read_stored(rows.start, rows.stop)  # noqa: E731  two ways, one line each
        else:
            read = lambda state: torch.cat([state.read_stored(row, row + 1) for row in rows])  # noqa: E731
        numbers = BlockNumbers([read(state) for state in self.states], self.compared, arithmetic)
        for trained, live in zip(self.trained, self.live, strict=False):
            numbers.subtract(live, trained)
        return numbers
