"""The same sequences under another condition (in a batch, in chunks, behind a warm prefix) against the main capture."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from eagle_parity.capture.format import GENERATE
from eagle_parity.comparison.alignment import BLOCK_ROWS
from eagle_parity.comparison.ranks import MeasuredRanks, measure_ranks
from eagle_parity.comparison.recording import Condition, ConditionSlot
from eagle_parity.comparison.states import json_number
from eagle_parity.errors import InputError
from eagle_parity.hidden_states import StateSequence, Unreadable
from eagle_parity.numerics.histogram import ErrorHistograms
from eagle_parity.numerics.rows import row_errors
from eagle_parity.readers.live_capture import open_live

if TYPE_CHECKING:
    from eagle_parity.hidden_states import HiddenStates, Rows
    from eagle_parity.readers.live_capture import LiveCapture

MAX_PLACES = 5
"""Runs of bad rows that a result names; the counts are complete."""


@dataclass
class ConditionPair:
    """One slot under a condition against the same without it, as a state that merges.

    Rows of one text computed with other rows beside them differ by rounding: kernels choose their shapes by the batch.
    """

    slot: int
    bad_row_distance: float
    dtype: str = ""
    sequences: int = 0
    bad_sequences: int = 0
    places: list[tuple[str, int, int, int]] = field(default_factory=list)
    errors: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))

    def update(self, name: str, first_position: int, main: Rows, other: Rows) -> ConditionPair:
        """Adds one sequence: row t of ``other`` belongs to row ``first_position + t`` of ``main``."""
        self.sequences += 1
        self.dtype = other.dtype
        bad: list[int] = []
        rows = min(other.tokens, main.tokens - first_position)
        for low in range(0, rows, BLOCK_ROWS):
            high = min(low + BLOCK_ROWS, rows)
            expected_TD = main.read(first_position + low, first_position + high)
            errors_T = row_errors(other.read(low, high), expected_TD).nan_to_num(nan=torch.inf, posinf=torch.inf)
            self.errors.update(errors_T[None])
            beyond = (errors_T > self.bad_row_distance).nonzero().flatten().tolist()
            bad.extend(first_position + low + row for row in beyond)
        if bad:
            self.bad_sequences += 1
            for first, last, count in runs_of(bad)[: MAX_PLACES - len(self.places)]:
                self.places.append((name, first, last, count))
        return self

    def merge(self, other: ConditionPair) -> ConditionPair:
        """Adds what another has seen of other sequences."""
        self.errors.merge(other.errors)
        self.sequences += other.sequences
        self.bad_sequences += other.bad_sequences
        self.places = [*self.places, *other.places][:MAX_PLACES]
        self.dtype = self.dtype or other.dtype
        return self

    def compute(self) -> ConditionSlot | None:
        """The measurement; None where no row was compared."""
        quantiles = self.errors.quantiles(0)
        if not quantiles.count:
            return None
        return ConditionSlot(
            slot=self.slot,
            rows=quantiles.count,
            distance=json_number(quantiles.median),
            largest=json_number(quantiles.largest),
            errors=[(json_number(edge), count) for edge, count in self.errors.survival(0)],
            bad_sequences=self.bad_sequences,
            sequences=self.sequences,
            places=self.places,
            dtype=self.dtype,
        )


def measure_conditions(live: LiveCapture, states: HiddenStates, bad_row_distance: float) -> list[Condition]:
    """Every condition that the capture has.

    Args:
        live: the capture.
        states: the same, opened.
        bad_row_distance: from where a row's place is told.
    """
    return [
        _measure(live, states, condition, bad_row_distance)
        for condition in live.live.conditions
        if condition != GENERATE  # no condition of the prompts' rows: ``generation`` has it
    ]


def _measure(live: LiveCapture, states: HiddenStates, name: str, bad_row_distance: float) -> Condition:
    try:
        other = live.open_condition(name)
        manifest = open_live(other)
    except InputError as error:
        return Condition(name=name, not_compared=str(error))
    pairs = [ConditionPair(slot, bad_row_distance) for slot in range(states.layout.slots)]
    known = set(states.names)
    unreadable: list[tuple[str, str]] = []
    unpaired = 0
    for sequence_name in other.names:
        entry = manifest.sequence(sequence_name) if manifest is not None else None
        first_position = entry.first_position if entry is not None else 0
        sequence = other.open(sequence_name)
        main = states.open(sequence_name) if sequence_name in known else None
        unreadable += [(o.name, o.reason) for o in (sequence, main) if isinstance(o, Unreadable)]
        if isinstance(sequence, Unreadable) or isinstance(main, Unreadable):
            continue
        if main is None or not _same_tokens(main, sequence, first_position):
            unpaired += 1
            continue
        for pair in pairs:
            pair.update(sequence_name, first_position, main.slots[pair.slot], sequence.slots[pair.slot])
    slots = [measured for pair in pairs if (measured := pair.compute()) is not None]
    ranks = MeasuredRanks([], [], []) if manifest is None else measure_ranks(manifest, other)
    return Condition(
        name=name,
        slots=slots,
        unpaired=unpaired,
        unreadable=unreadable[:MAX_PLACES],
        unreadable_count=len(unreadable),
        not_compared=None if slots else "no sequence of it has the token ids of one of the main capture",
        rank_slots=ranks.slots,
        rank_tokens=ranks.tokens,
        rank_unreadable=ranks.unreadable[:MAX_PLACES],
        rank_unreadable_count=len(ranks.unreadable),
    )


def _same_tokens(main: StateSequence, other: StateSequence, first_position: int) -> bool:
    """Whether the other's tokens are the main one's from a position on, in states of one shape."""
    if main.token_ids is None or other.token_ids is None or len(main.slots) != len(other.slots):
        return False
    if main.slots[0].hidden_size != other.slots[0].hidden_size:
        return False
    return torch.equal(main.token_ids[first_position : first_position + len(other.token_ids)], other.token_ids)


def runs_of(positions: list[int]) -> list[tuple[int, int, int]]:
    """First, last and count of each run of consecutive positions, which are given in ascending order."""
    breaks = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(positions)) if b != a + 1), len(positions)]
    return [(positions[a], positions[b - 1], b - a) for a, b in pairwise(breaks) if b > a]
