"""A bounded number of rows in memory, for the explanations that need more than one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.alignment import Lost, last_state_candidate, live_slot_candidate, trained_slot_candidate
from eagle_parity.comparison.sinks import pair_sinks
from eagle_parity.explanations.explanation import Sample, Segments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eagle_parity.comparison.alignment import AlignedPair, Aligner
    from eagle_parity.comparison.measurements import Candidate
    from eagle_parity.comparison.pairing import SequencePair
    from eagle_parity.wiring import Boundary

SAMPLE_ROWS = 2048
"""In all: a fit of 7,168 gains has a thousand rows for it, and each candidate's rows take 59 MB."""
SEQUENCE_ROWS = 512
"""Of one sequence: several sequences say more than one long one."""


@dataclass(frozen=True)
class SampledPairs:
    """Pairs of which some first rows are used."""

    pairs: tuple[tuple[AlignedPair, int, int], ...]
    """A pair and its row range; a single sequence is there twice, once with each half of its rows."""
    fit: tuple[bool, ...]

    def keep(self, sinks: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The rows that are no sinks."""
        return tuple(~sinks[pair.name][low:high] for pair, low, high in self.pairs)


def sample_pairs(pairs: Iterable[SequencePair], aligner: Aligner) -> SampledPairs:
    """Chooses pairs until there are enough rows; every other one is for fitting."""
    chosen: list[tuple[AlignedPair, int, int]] = []
    rows = 0
    for pair in pairs:
        aligned = aligner.align(pair)
        if isinstance(aligned, Lost):
            continue
        length = min(aligned.length, SEQUENCE_ROWS, SAMPLE_ROWS - rows)
        if length < 1:
            break
        chosen.append((aligned, 0, length))
        rows += length
    if len(chosen) == 1:
        pair_, _, length = chosen[0]
        half = max(1, length // 2)
        chosen = [(pair_, 0, half), (pair_, half, length)] if length > 1 else chosen * 2
    return SampledPairs(tuple(chosen), tuple(place % 2 == 0 for place in range(len(chosen))))


class PairSources:
    """The candidates of a sample, read when an explanation asks for them.

    ``side`` is whose states are explained: the live side's from all that is known, the trained side's from what is
    known and from the live slots.
    """

    def __init__(self, sampled: SampledPairs, final_norm: torch.Tensor | None, *, side: str = "live") -> None:
        self._sampled = sampled
        self._final_norm = final_norm
        first = sampled.pairs[0][0]
        # Not every pair has a reference: the union, in the order of the first that has each.
        known = list(
            {candidate.label: candidate for pair, _, _ in sampled.pairs for candidate, _ in pair.known}.values()
        )
        if side == "live":
            known += [trained_slot_candidate(slot) for slot in range(len(first.trained))]
            if first.trained_last is not None:
                known.append(last_state_candidate())
        else:
            known += [live_slot_candidate(slot) for slot in range(len(first.live))]
        self._candidates = tuple(known)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every known state."""
        return self._candidates

    @property
    def final_norm(self) -> torch.Tensor | None:
        """The final norm's weight ``[D]``."""
        return self._final_norm

    def boundary(self, boundary: Boundary) -> Candidate | None:
        """The candidate for a boundary."""
        return next((c for c in self._candidates if c.boundary == boundary), None)

    def rows(self, candidate: Candidate) -> Segments:
        """Float32 ``[T, D]`` a sequence; NaN where a sequence has no such state."""
        return tuple(self._rows(pair, low, high, candidate) for pair, low, high in self._sampled.pairs)

    @staticmethod
    def _rows(pair: AlignedPair, low: int, high: int, candidate: Candidate) -> torch.Tensor:
        for known, rows in pair.known:
            if known.label == candidate.label:
                return rows.read(low, high)
        if candidate.trained_slot is not None:
            return pair.trained[candidate.trained_slot].read(low, high)
        for slot, rows in enumerate(pair.live):
            if candidate.label == live_slot_candidate(slot).label:
                return rows.read(low, high)
        if candidate.label == last_state_candidate().label and pair.trained_last is not None:
            return pair.trained_last.read(low, high)
        return torch.full((high - low, pair.trained[0].rows.hidden_size), torch.nan)


def sample_of(sampled: SampledPairs, slot: int, *, side: str = "live") -> Sample:
    """The rows of one slot, as a subject for the explanations."""
    sinks = {pair.name: pair_sinks(pair) for pair, _, _ in sampled.pairs}
    subject = []
    keep = []
    for (pair, low, high), kept in zip(sampled.pairs, sampled.keep(sinks), strict=True):
        rows_TD = (pair.live if side == "live" else pair.trained)[slot].read(low, high)
        subject.append(rows_TD)
        keep.append(kept & rows_TD.isfinite().all(1))
    return Sample(tuple(subject), tuple(keep), sampled.fit)
