"""The streaming part: states in, plain numbers out. Memory holds a block of rows, never a side."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.alignment import (
    AlignedPair,
    Aligner,
    Lost,
    last_state_candidate,
    trained_slot_candidate,
)
from eagle_parity.comparison.measurements import (
    Candidate,
    Dimension,
    PairMeasurement,
    RepeatedTokens,
    SlotMeasurement,
    StateMeasurement,
)
from eagle_parity.comparison.pair_block import PairStates
from eagle_parity.comparison.sinks import SAMPLED_ROWS, choose_sinks, limits_of, sink_limits, stands_out
from eagle_parity.comparison.states import json_number
from eagle_parity.numerics.arithmetic import WholeArrays, choose_arithmetic
from eagle_parity.numerics.histogram import ErrorHistograms
from eagle_parity.numerics.moments import PairMoments
from eagle_parity.numerics.rows import token_neighbours
from eagle_parity.readers.containers.stored_tensor import ITEM_BYTES
from eagle_parity.threads import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eagle_parity.comparison.block_numbers import BlockNumbers
    from eagle_parity.comparison.pairing import SequencePair
    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.numerics.arithmetic import Arithmetic

GROUP_BYTES = 64 * 1024 * 1024
GROUP_PAIRS = 256
"""The states of a group are a few megabytes, and merging them takes milliseconds."""
REPEATS_AMONG = 256
"""First rows of a sequence among which rows of one token are looked for: what they tell needs a hundred."""
WORST_DIMENSIONS = 5
NO_SPREAD = 1e-12
"""Keeps a dimension that never moves from being infinitely bad."""
MAX_EXAMPLES = 5
"""How many sequences a result names of each kind; the counts are complete."""


@dataclass
class StateMatch:
    """One state of one side against all its candidates, as a state that merges."""

    candidates: tuple[Candidate, ...]
    errors: ErrorHistograms
    dtype: str
    rows: int = 0
    non_finite: int = 0
    repeats: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))
    contrasts: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))
    norms: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))

    @classmethod
    def start(cls, candidates: tuple[Candidate, ...], dtype: str) -> StateMatch:
        """An empty one."""
        return cls(candidates, ErrorHistograms(len(candidates)), dtype)

    def update(
        self, numbers: BlockNumbers, state: int, expected: Mapping[str, int], keep_T: torch.Tensor, seen_T: torch.Tensor
    ) -> None:
        """Adds a block.

        Args:
            numbers: of the block.
            state: its place there.
            expected: the places of the candidates' states, by label.
            keep_T: bool ``[T]``, which rows count.
            seen_T: bool ``[T]``, which rows can't come again: those that count, and sinks.
        """
        finite_T = numbers.finite_NT[state]
        self.non_finite += int((~finite_T & seen_T).sum())
        keep_T = keep_T & finite_T
        self.rows += int(keep_T.sum())
        errors_PT = torch.full((len(self.candidates), numbers.rows), torch.nan, dtype=torch.float64)
        for place, candidate in enumerate(self.candidates):
            if candidate.label in expected:
                errors_PT[place] = numbers.errors(state, expected[candidate.label])
        self.errors.update(errors_PT, keep_T, numbers.arithmetic)
        self.norms.update(numbers.norms(state)[None], keep_T, numbers.arithmetic)

    def update_repeats(self, numbers: BlockNumbers, state: int, keep_T: torch.Tensor, ids_T: torch.Tensor) -> None:
        """Adds the first rows of a sequence: how rows of one token, and of different ones, differ."""
        kept = keep_T.nonzero().flatten()
        first, second, same_T = token_neighbours(ids_T[kept])
        errors_T = numbers.neighbour_errors(state, kept[first], kept[second])
        self.repeats.update(errors_T[None], same_T, numbers.arithmetic)
        self.contrasts.update(errors_T[None], ~same_T, numbers.arithmetic)

    def merge(self, other: StateMatch) -> StateMatch:
        """Adds what another has seen of the same candidates."""
        self.errors.merge(other.errors)
        self.repeats.merge(other.repeats)
        self.contrasts.merge(other.contrasts)
        self.norms.merge(other.norms)
        self.rows += other.rows
        self.non_finite += other.non_finite
        return self

    def compute(self) -> StateMeasurement:
        """The measurement; candidates that no row was compared with are left out."""
        measured = []
        for place, candidate in enumerate(self.candidates):
            quantiles = self.errors.quantiles(place)
            if quantiles.count:
                measured.append(
                    Candidate(
                        label=candidate.label,
                        boundary=candidate.boundary,
                        trained_slot=candidate.trained_slot,
                        distance=json_number(quantiles.median),
                        rows=quantiles.count,
                    )
                )
        repeats, contrasts, norms = self.repeats.quantiles(0), self.contrasts.quantiles(0), self.norms.quantiles(0)
        return StateMeasurement(
            rows=self.rows,
            non_finite_rows=self.non_finite,
            dtype=self.dtype,
            candidates=sorted(measured, key=lambda c: c.distance),
            median_norm=json_number(norms.median) if norms.count else None,
            repeated_tokens=RepeatedTokens(
                pairs=repeats.count,
                distance=json_number(repeats.p90),
                contrast=json_number(contrasts.median) if contrasts.count else None,
            )
            if repeats.count
            else None,
        )


@dataclass
class SlotPair:
    """A trained slot against the live slot of the same position, as a state that merges."""

    moments: PairMoments
    errors: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))
    noise: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))
    sinks: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))
    worst: tuple[str, float] | None = None
    bad_row_distance: float = math.inf
    bad_sequences: int = 0
    bad_sinks: int = 0
    sequences: int = 0

    def update(self, numbers: BlockNumbers, trained: int, live: int, keep_T: torch.Tensor) -> torch.Tensor:
        """Adds a block's kept rows and returns the errors of those that are numbers on both sides."""
        keep_T = keep_T & numbers.finite_NT[trained] & numbers.finite_NT[live]
        errors_T = numbers.errors(live, trained)[keep_T]
        self.errors.update(errors_T[None], None, numbers.arithmetic)
        numbers.add_to(self.moments, live, trained, keep_T)
        return errors_T

    def update_sinks(self, numbers: BlockNumbers, trained: int, live: int, sinks_T: torch.Tensor) -> None:
        """Adds sink tokens."""
        sinks_T = sinks_T & numbers.finite_NT[trained] & numbers.finite_NT[live]
        errors_T = numbers.errors(live, trained)[sinks_T]
        self.sinks.update(errors_T[None], None, numbers.arithmetic)
        self.bad_sinks += int((errors_T > self.bad_row_distance).sum())

    def tell_sequence(self, name: str, errors: list[torch.Tensor]) -> None:
        """Remembers the sequence with the greatest median, and counts those with a bad row."""
        all_errors = torch.cat(errors) if errors else torch.zeros(0)
        if len(all_errors):
            self.sequences += 1
            self.bad_sequences += int(bool((all_errors > self.bad_row_distance).any()))
            median = float(all_errors.median())
            if self.worst is None or median > self.worst[1]:
                self.worst = (name, json_number(median))

    def merge(self, other: SlotPair) -> SlotPair:
        """Adds what another has seen."""
        self.moments.merge(other.moments)
        self.errors.merge(other.errors)
        self.noise.merge(other.noise)
        self.sinks.merge(other.sinks)
        self.bad_sequences += other.bad_sequences
        self.bad_sinks += other.bad_sinks
        self.sequences += other.sequences
        if other.worst is not None and (self.worst is None or other.worst[1] > self.worst[1]):
            self.worst = other.worst
        return self

    def compute(self) -> PairMeasurement | None:
        """The measurement; None when no row could be compared."""
        errors = self.errors.quantiles(0)
        if errors.count == 0:
            return None
        sinks = self.sinks.quantiles(0)
        noise = self.noise.quantiles(0)
        statistics = self.moments.compute()
        spread_D = torch.maximum(statistics.std_x_D, statistics.std_y_D).clamp_min(NO_SPREAD)
        order = torch.argsort(statistics.rms_difference_D / spread_D, descending=True)[:WORST_DIMENSIONS].tolist()
        return PairMeasurement(
            rows=errors.count,
            distance=json_number(errors.median),
            p90=json_number(errors.p90),
            p99=json_number(errors.p99),
            largest=json_number(errors.largest),
            errors=[(json_number(edge), count) for edge, count in self.errors.survival(0)],
            worst_sequence=self.worst,
            sink_rows=sinks.count,
            sink_distance=json_number(sinks.largest) if sinks.count else None,
            mean_correlation=float(statistics.correlation_D.mean()),
            worst_dimensions=[
                Dimension(
                    index=index,
                    mean_trained=float(statistics.mean_x_D[index]),
                    mean_live=float(statistics.mean_y_D[index]),
                    std_trained=float(statistics.std_x_D[index]),
                    std_live=float(statistics.std_y_D[index]),
                    max_difference=float(statistics.max_difference_D[index]),
                    rms_difference=float(statistics.rms_difference_D[index]),
                )
                for index in order
            ],
            spread_trained=float(statistics.std_x_D.max()),
            spread_live=float(statistics.std_y_D.max()),
            bad_sequences=self.bad_sequences,
            bad_sinks=self.bad_sinks,
            sequences=self.sequences,
            noise=json_number(noise.median) if noise.count else None,
        )


@dataclass
class Measured:
    """What the pass over all pairs gave."""

    slots: list[SlotMeasurement]
    trained_last: StateMeasurement | None
    live_last: StateMeasurement | None
    tokens: int
    with_reference: int
    truncated: list[str]
    lost: list[Lost]


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
                limits_N = limits_of(norms_NT[:, :SAMPLED_ROWS])
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


def measure_pairs(
    pairs: Sequence[SequencePair],
    aligner: Aligner,
    known: Iterable[Candidate],
    bad_row_distance: float,
    progress: Callable[[str], None],
    *,
    device: str = "cpu",
) -> Measured:
    """The pass over all pairs, by as many threads as there are processors.

    Pairs are taken in groups, and the groups' states merged in their order, so the numbers depend on neither the number
    of threads nor on which of them is first.

    Args:
        pairs: what to compare.
        aligner: opens them.
        known: the candidates that the aligner gives beside the sides themselves.
        bad_row_distance: from where a row counts as bad in the tallies by sequence.
        progress: called with the name of each pair that is begun, from any thread.
        device: where to compute.
    """
    known = tuple(known)
    row_bytes = _row_bytes(aligner)
    arithmetic = choose_arithmetic(row_bytes * sum(pair.length for pair in pairs), device)

    def measure(group: Sequence[SequencePair]) -> _Part:
        part = _Part(Accumulator(aligner.trained, aligner.live, known, bad_row_distance, arithmetic))
        for pair in group:
            progress(pair.trained.name)
            part.add(aligner, pair)
        return part

    whole = _Part(Accumulator(aligner.trained, aligner.live, known, bad_row_distance, arithmetic))
    for part in in_threads(measure, _groups(pairs, row_bytes), begin=_alone):
        whole.merge(part)
    accumulator = whole.accumulator
    return Measured(
        slots=accumulator.slots(),
        trained_last=accumulator.trained_last.compute() if accumulator.trained_last.rows else None,
        live_last=accumulator.live_last.compute() if accumulator.live_last.rows else None,
        tokens=accumulator.tokens,
        with_reference=whole.with_reference,
        truncated=whole.truncated,
        lost=whole.lost,
    )


@dataclass
class _Part:
    """What some pairs gave."""

    accumulator: Accumulator
    truncated: list[str] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    with_reference: int = 0

    def add(self, aligner: Aligner, pair: SequencePair) -> None:
        if pair.length == 0:
            return  # ids that differ from the first one on: told by the tally
        aligned = aligner.align(pair)
        if isinstance(aligned, Lost):
            self.lost.append(aligned)
            return
        if aligned.missing:
            self.truncated.append(f"{aligned.name}: {aligned.missing}")
        self.with_reference += aligned.with_reference
        self.accumulator.update(aligned)

    def merge(self, other: _Part) -> None:
        self.accumulator.merge(other.accumulator)
        self.truncated += other.truncated
        self.lost += other.lost
        self.with_reference += other.with_reference


def _alone() -> None:
    """This thread's own operations take one processor: all of them are busy with such threads."""
    torch.set_num_threads(1)


def _row_bytes(aligner: Aligner) -> int:
    """Of one token's states on all sides."""
    sides = [states.layout for states in (aligner.trained, aligner.live, aligner.reference, aligner.noise) if states]
    return sum(layout.slots * layout.hidden_size * ITEM_BYTES.get(layout.dtype, 4) for layout in sides)


def _groups(pairs: Sequence[SequencePair], row_bytes: int) -> Iterator[Sequence[SequencePair]]:
    """Pairs in their order, in groups that are worth a state of their own."""
    first, size = 0, 0
    for place, pair in enumerate(pairs):
        size += row_bytes * pair.length
        if size >= GROUP_BYTES or place + 1 - first >= GROUP_PAIRS:
            yield pairs[first : place + 1]
            first, size = place + 1, 0
    if first < len(pairs):
        yield pairs[first:]
