"""Everything that one pass over pairs of sequences accumulates. Memory holds a block of rows, never a side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.alignment import last_state_candidate, trained_slot_candidate
from eagle_parity.comparison.measurements import SlotMeasurement
from eagle_parity.comparison.pair_block import PairStates
from eagle_parity.comparison.sinks import sink_limits
from eagle_parity.comparison.slot_pair import SlotPair
from eagle_parity.comparison.state_match import StateMatch
from eagle_parity.numerics.arithmetic import WholeArrays
from eagle_parity.numerics.moments import PairMoments
from eagle_parity.numerics.sinks import SAMPLED_ROWS, choose_sinks, limits_of, stands_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eagle_parity.comparison.alignment import AlignedPair
    from eagle_parity.comparison.block_numbers import BlockNumbers
    from eagle_parity.comparison.measurements import Candidate
    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.numerics.arithmetic import Arithmetic

REPEATS_AMONG = 256
"""First rows of a sequence among which rows of one token are looked for: what they tell needs a hundred."""


class Accumulator:
    """Everything that one pass accumulates; two of them over different pairs merge."""

    def __init__(
        self,
        trained: HiddenStates,
        live: HiddenStates,
        known: Iterable[Candidate],
        bad_row_distance: float,
        arithmetic: Arithmetic | None = None,
    ) -> None:
        known = tuple(known)
        self._arithmetic = arithmetic or WholeArrays()
        hidden_size = trained.layout.hidden_size
        trained_slots = tuple(trained_slot_candidate(slot) for slot in range(trained.layout.slots))
        # The live side may be any known state or any trained one; the trained side is measured against what is known,
        # and against its own slots before it: one state in two places is one label.
        self.trained = [
            StateMatch.start((*known, *trained_slots[:slot]), trained.layout.dtype)
            for slot in range(trained.layout.slots)
        ]
        self.live = [
            StateMatch.start((*known, *trained_slots, last_state_candidate()), live.layout.dtype)
            for _ in range(live.layout.slots)
        ]
        self.trained_last = StateMatch.start((*known, *trained_slots), trained.layout.dtype)
        self.live_last = StateMatch.start((*known, last_state_candidate()), live.layout.dtype)
        self.pairs = [
            SlotPair(PairMoments(hidden_size), bad_row_distance=bad_row_distance)
            for _ in range(min(len(self.trained), len(self.live)))
        ]
        self.tokens = 0

    def update(self, pair: AlignedPair) -> None:
        """Adds one pair of sequences."""
        self.tokens += pair.length
        states = PairStates.of(
            pair,
            [match.candidates for match in self.trained],
            [match.candidates for match in self.live],
            self.trained_last.candidates,
            self.live_last.candidates,
        )
        slots = [*states.trained, *states.live]
        rows = self._arithmetic.block_rows(pair.row_bytes)
        limits_N = None if min(rows, pair.length) >= min(SAMPLED_ROWS, pair.length) else sink_limits(pair)
        errors: list[list[torch.Tensor]] = [[] for _ in self.pairs]
        aside: list[int] = []
        aside_norms: list[torch.Tensor] = []
        for low, high in pair.blocks(rows):
            numbers = states.read(range(low, high), self._arithmetic)
            norms_NT = numbers.squares_NT[slots].sqrt()
            if limits_N is None:
                limits_N = limits_of(norms_NT)
            standing_T = stands_out(norms_NT, limits_N)
            aside += (standing_T.nonzero().flatten() + low).tolist()
            aside_norms.append(norms_NT[:, standing_T])
            self._add(states, numbers, ~standing_T, ~standing_T, errors)
            if low == 0:
                self._add_repeats(states, numbers, ~standing_T, pair.token_ids[:high])
        if aside and limits_N is not None:
            sinks_T = choose_sinks(torch.cat(aside_norms, dim=1), limits_N, pair.length)
            for low in range(0, len(aside), SAMPLED_ROWS):
                numbers = states.read(aside[low : low + SAMPLED_ROWS], self._arithmetic)
                chosen_T = sinks_T[low : low + SAMPLED_ROWS]
                self._add(states, numbers, ~chosen_T, torch.ones_like(chosen_T), errors)
                for pair_state, trained, live in zip(self.pairs, states.trained, states.live, strict=False):
                    pair_state.update_sinks(numbers, trained, live, chosen_T)
        for slot, state in enumerate(self.pairs):
            state.tell_sequence(pair.name, errors[slot])

    def _add(
        self,
        states: PairStates,
        numbers: BlockNumbers,
        keep_T: torch.Tensor,
        seen_T: torch.Tensor,
        errors: list[list[torch.Tensor]],
    ) -> None:
        for match, place in self._matches(states):
            match.update(numbers, place, states.labels, keep_T, seen_T)
        for slot, (state, trained, live) in enumerate(zip(self.pairs, states.trained, states.live, strict=False)):
            errors[slot].append(state.update(numbers, trained, live, keep_T))
        for state, live, second in zip(self.pairs, states.live, states.noise, strict=False):
            state.noise.update(numbers.subtract(second, live)[None], keep_T, numbers.arithmetic)

    def _add_repeats(
        self, states: PairStates, numbers: BlockNumbers, keep_T: torch.Tensor, ids_T: torch.Tensor
    ) -> None:
        first_T = torch.arange(numbers.rows) < REPEATS_AMONG
        for match, place in self._matches(states):
            match.update_repeats(numbers, place, keep_T & first_T & numbers.finite_NT[place], ids_T)

    def _matches(self, states: PairStates) -> Iterator[tuple[StateMatch, int]]:
        yield from zip(self.trained, states.trained, strict=False)
        yield from zip(self.live, states.live, strict=False)
        if states.trained_last is not None:
            yield self.trained_last, states.trained_last
        if states.live_last is not None:
            yield self.live_last, states.live_last

    def merge(self, other: Accumulator) -> Accumulator:
        """Adds what another has seen of the same two sides."""
        for mine, theirs in (
            *zip(self.trained, other.trained, strict=True),
            *zip(self.live, other.live, strict=True),
            (self.trained_last, other.trained_last),
            (self.live_last, other.live_last),
        ):
            mine.merge(theirs)
        for pair, other_pair in zip(self.pairs, other.pairs, strict=True):
            pair.merge(other_pair)
        self.tokens += other.tokens
        return self

    def slots(self) -> list[SlotMeasurement]:
        """A measurement a slot position of either side."""
        return [
            SlotMeasurement(
                slot=slot,
                trained=self.trained[slot].compute() if slot < len(self.trained) else None,
                live=self.live[slot].compute() if slot < len(self.live) else None,
                pair=self.pairs[slot].compute() if slot < len(self.pairs) else None,
            )
            for slot in range(max(len(self.trained), len(self.live)))
        ]
