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
from eagle_parity.comparison.states import json_number
from eagle_parity.numerics.histogram import ErrorHistograms
from eagle_parity.numerics.moments import PairMoments
from eagle_parity.numerics.rows import (
    different_token_errors,
    find_sinks,
    repeated_token_errors,
    row_errors,
    row_norms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eagle_parity.comparison.pairing import SequencePair
    from eagle_parity.hidden_states import HiddenStates

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
        self, rows_TD: torch.Tensor, candidate_rows: dict[str, torch.Tensor], keep_T: torch.Tensor, ids_T: torch.Tensor
    ) -> None:
        """Adds a block: rows, the candidates' rows by label, which rows count, and their token ids."""
        finite_T = rows_TD.isfinite().all(1)
        self.non_finite += int((~finite_T).sum())
        keep_T = keep_T & finite_T
        self.rows += int(keep_T.sum())
        kept_TD = rows_TD[keep_T]
        errors_PT = torch.full((len(self.candidates), len(kept_TD)), torch.nan, dtype=torch.float64)
        for place, candidate in enumerate(self.candidates):
            expected_TD = candidate_rows.get(candidate.label)
            if expected_TD is not None:
                errors_PT[place] = row_errors(kept_TD, expected_TD[keep_T])
        self.errors.update(errors_PT)
        self.norms.update(row_norms(kept_TD)[None])
        self.repeats.update(repeated_token_errors(kept_TD, ids_T[keep_T])[None])
        self.contrasts.update(different_token_errors(kept_TD, ids_T[keep_T])[None])

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

    def update(
        self, x_TD: torch.Tensor, y_TD: torch.Tensor, keep_T: torch.Tensor, sinks_T: torch.Tensor
    ) -> torch.Tensor:
        """Adds a block and returns the errors of its kept rows."""
        finite_T = x_TD.isfinite().all(1) & y_TD.isfinite().all(1)
        errors_T = row_errors(y_TD, x_TD)
        kept_T = keep_T & finite_T
        self.errors.update(errors_T[kept_T][None])
        self.sinks.update(errors_T[sinks_T & finite_T][None])
        self.bad_sinks += int((errors_T[sinks_T & finite_T] > self.bad_row_distance).sum())
        self.moments.update(x_TD[kept_T], y_TD[kept_T])
        return errors_T[kept_T]

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
        self, trained: HiddenStates, live: HiddenStates, known: Iterable[Candidate], bad_row_distance: float
    ) -> None:
        known = tuple(known)
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
        sinks_T = pair_sinks(pair)
        self.tokens += pair.length
        errors: list[list[torch.Tensor]] = [[] for _ in self.pairs]
        for low, high in pair.blocks():
            block_sinks_T = sinks_T[low:high]
            keep_T = ~block_sinks_T
            ids_T = pair.token_ids[low:high]
            trained = [rows.read(low, high) for rows in pair.trained]
            live = [rows.read(low, high) for rows in pair.live]
            known = {candidate.label: rows.read(low, high) for candidate, rows in pair.known}
            known |= {trained_slot_candidate(slot).label: rows_TD for slot, rows_TD in enumerate(trained)}
            for match, rows_TD in zip(self.trained, trained, strict=False):
                match.update(rows_TD, known, keep_T, ids_T)
            if pair.trained_last is not None:
                rows_TD = pair.trained_last.read(low, high)
                self.trained_last.update(rows_TD, known, keep_T, ids_T)
                known[last_state_candidate().label] = rows_TD
            for match, rows_TD in zip(self.live, live, strict=False):
                match.update(rows_TD, known, keep_T, ids_T)
            if pair.live_last is not None:
                self.live_last.update(pair.live_last.read(low, high), known, keep_T, ids_T)
            for slot, state in enumerate(self.pairs):
                errors[slot].append(state.update(trained[slot], live[slot], keep_T, block_sinks_T))
                if slot < len(pair.noise):
                    second_TD = pair.noise[slot].read(low, high)
                    self.pairs[slot].noise.update(row_errors(second_TD, live[slot])[keep_T][None])
        for slot, state in enumerate(self.pairs):
            state.tell_sequence(pair.name, errors[slot])

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


def pair_sinks(pair: AlignedPair) -> torch.Tensor:
    """The sink tokens of a pair, bool ``[length]``: a sink in any slot of either side is one in all."""
    sinks_T = torch.zeros(pair.length, dtype=torch.bool)
    for rows in (*pair.trained, *pair.live):
        norms = [row_norms(rows.read(low, high)) for low, high in pair.blocks()]
        if norms:
            sinks_T |= find_sinks(torch.cat(norms))
    return sinks_T


def measure_pairs(
    pairs: Iterable[SequencePair],
    aligner: Aligner,
    known: Iterable[Candidate],
    bad_row_distance: float,
    progress: Callable[[str], None],
) -> Measured:
    """The pass over all pairs.

    Args:
        pairs: what to compare.
        aligner: opens them.
        known: the candidates that the aligner gives beside the sides themselves.
        bad_row_distance: from where a row counts as bad in the tallies by sequence.
        progress: called with the name of each pair that is begun.
    """
    accumulator = Accumulator(aligner.trained, aligner.live, known, bad_row_distance)
    truncated: list[str] = []
    lost: list[Lost] = []
    with_reference = 0
    for pair in pairs:
        progress(pair.trained.name)
        if pair.length == 0:
            continue  # ids that differ from the first one on: told by the tally
        aligned = aligner.align(pair)
        if isinstance(aligned, Lost):
            lost.append(aligned)
            continue
        if aligned.missing:
            truncated.append(f"{aligned.name}: {aligned.missing}")
        with_reference += aligned.with_reference
        accumulator.update(aligned)
    return Measured(
        slots=accumulator.slots(),
        trained_last=accumulator.trained_last.compute() if accumulator.trained_last.rows else None,
        live_last=accumulator.live_last.compute() if accumulator.live_last.rows else None,
        tokens=accumulator.tokens,
        with_reference=with_reference,
        truncated=truncated,
        lost=lost,
    )
