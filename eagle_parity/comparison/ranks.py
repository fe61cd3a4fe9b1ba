"""Every rank of a capture against the first one of its group: ranks of one group compute the same rows.

Under attention data parallelism each group has other requests, so that nothing is compared across groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.alignment import BLOCK_ROWS
from eagle_parity.comparison.recording import Place, RankAgreement, RankSlot, RankTokens
from eagle_parity.comparison.states import json_number
from eagle_parity.hidden_states import Unreadable
from eagle_parity.numerics.histogram import ErrorHistograms
from eagle_parity.numerics.rows import row_errors

if TYPE_CHECKING:
    from eagle_parity.capture.manifest import CapturedSequence
    from eagle_parity.hidden_states import HiddenStates, Rows
    from eagle_parity.readers.live_capture import LiveCapture

MAX_EXAMPLES = 5
"""Files or sequences that a result names of each kind."""


@dataclass
class RankPair:
    """One slot of one rank against the first rank, as a state that merges."""

    slot: int
    rank: str
    first_rank: str
    dtype: str
    first_dtype: str | None = None
    rows: int = 0
    differing: int = 0
    sequences: int = 0
    differing_sequences: int = 0
    first: Place | None = None
    shares: str | None = None
    errors: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))

    def update(self, name: str, tokens: int, first: Rows, other: Rows, *, first_position: int = 0) -> RankPair:
        """Adds one sequence of so many tokens, block by block; its first row stands at ``first_position``."""
        self.sequences += 1
        if first.dtype != other.dtype and self.first_dtype is None:
            self.dtype, self.first_dtype = other.dtype, first.dtype
        if other.tokens != tokens or first.tokens != tokens or other.hidden_size != first.hidden_size:
            self.shares = self.shares or f"[{other.tokens}, {other.hidden_size}] for {tokens} tokens"
        if other.hidden_size != first.hidden_size:
            return self
        before = self.differing
        rows = min(first.tokens, other.tokens)
        for low in range(0, rows, BLOCK_ROWS):
            high = min(low + BLOCK_ROWS, rows)
            first_TD, other_TD = first.read(low, high), other.read(low, high)
            differs_T = differing_rows(first_TD, other_TD)
            self.rows += high - low
            self.differing += int(differs_T.sum())
            if not differs_T.any():
                continue
            if self.first is None:
                self.first = Place(sequence=name, position=first_position + low + int(differs_T.nonzero()[0]))
            errors_T = row_errors(other_TD[differs_T], first_TD[differs_T])
            # A row of NaN on one side is no row less: it is as far off as a row can be.
            self.errors.update(errors_T.nan_to_num(nan=torch.inf, posinf=torch.inf)[None])
        self.differing_sequences += self.differing > before
        return self

    def merge(self, other: RankPair) -> RankPair:
        """Adds what another has seen of other sequences."""
        if self.first_dtype is None and other.first_dtype is not None:
            self.dtype, self.first_dtype = other.dtype, other.first_dtype
        self.rows += other.rows
        self.differing += other.differing
        self.sequences += other.sequences
        self.differing_sequences += other.differing_sequences
        self.first = self.first or other.first
        self.shares = self.shares or other.shares
        self.errors.merge(other.errors)
        return self

    def compute(self) -> RankAgreement:
        """The measurement."""
        quantiles = self.errors.quantiles(0)
        return RankAgreement(
            slot=self.slot,
            rank=self.rank,
            first_rank=self.first_rank,
            rows=self.rows,
            differing=self.differing,
            distance=json_number(quantiles.median) if quantiles.count else None,
            largest=json_number(quantiles.largest) if quantiles.count else None,
            errors=[(json_number(edge), count) for edge, count in self.errors.survival(0)],
            first=self.first,
            sequences=self.sequences,
            differing_sequences=self.differing_sequences,
            dtype=self.dtype,
            first_dtype=self.first_dtype or self.dtype,
            shares=self.shares,
        )


@dataclass
class RankTokensPair:
    """What one rank computed against what the first one did, as a state that grows by sequences."""

    rank: str
    first_rank: str
    tokens: int = 0
    differing: int = 0
    sequences: int = 0
    differing_sequences: int = 0
    first: Place | None = None
    chosen: tuple[int | None, int | None] = (None, None)

    def update(self, entry: CapturedSequence, first_T: torch.Tensor, other_T: torch.Tensor) -> RankTokensPair:
        """Adds one sequence's token ids."""
        tokens = min(len(first_T), len(other_T))
        differs_T = first_T[:tokens] != other_T[:tokens]
        differing = int(differs_T.sum()) + max(len(first_T), len(other_T)) - tokens
        self.sequences += 1
        self.tokens += tokens
        self.differing += differing
        if not differing:
            return self
        self.differing_sequences += 1
        if self.first is None:
            at = int(differs_T.nonzero()[0]) if differs_T.any() else tokens
            self.first = Place(sequence=entry.name, position=entry.first_position + at)
            self.chosen = _token_at(other_T, at), _token_at(first_T, at)
        return self

    def compute(self) -> RankTokens:
        """The measurement."""
        return RankTokens(
            rank=self.rank,
            first_rank=self.first_rank,
            tokens=self.tokens,
            differing=self.differing,
            sequences=self.sequences,
            differing_sequences=self.differing_sequences,
            first=self.first,
            token=self.chosen[0],
            first_token=self.chosen[1],
        )


def _token_at(ids_T: torch.Tensor, at: int) -> int | None:
    return int(ids_T[at]) if at < len(ids_T) else None


@dataclass(frozen=True)
class MeasuredRanks:
    """What the pass over all ranks gave: a measurement a slot and one a rank, and the files that can't be read."""

    slots: list[RankSlot]
    tokens: list[RankTokens]
    unreadable: list[tuple[str, str]]


def measure_ranks(live: LiveCapture, states: HiddenStates) -> MeasuredRanks:
    """Compares the ranks of each sequence; one block of rows of two ranks is in memory at a time.

    Args:
        live: the capture.
        states: the same, opened: the first rank of each sequence.
    """
    pairs: dict[tuple[int, str, str], RankPair] = {}
    texts: dict[tuple[str, str], RankTokensPair] = {}
    unreadable: list[tuple[str, str]] = []
    for entry in live.manifest.sequences:
        ranks = live.ranks_of(entry)
        if len(ranks) <= 1:
            continue
        first = states.open(entry.name)
        if isinstance(first, Unreadable):
            continue  # told by whoever pairs the sequences
        if first.token_ids is None:
            unreadable.append((first.name, "no token ids, so that nothing tells whether ranks have the same text"))
            continue
        tokens = len(first.token_ids)
        for rank in ranks[1:]:
            other = live.open_rank(entry, rank)
            if isinstance(other, Unreadable):
                unreadable.append((other.name, other.reason))
                continue
            if len(other.slots) != len(first.slots):
                reason = f"{len(other.slots)} slots, where rank {ranks[0]} has {len(first.slots)}"
                unreadable.append((other.name, reason))
                continue
            if other.token_ids is None:
                unreadable.append((other.name, "no token ids, so that nothing tells whether it is the same text"))
                continue
            text = texts.setdefault((rank, ranks[0]), RankTokensPair(rank, ranks[0]))
            text.update(entry, first.token_ids, other.token_ids)
            for slot, (mine, theirs) in enumerate(zip(first.slots, other.slots, strict=True)):
                pair = pairs.setdefault((slot, rank, ranks[0]), RankPair(slot, rank, ranks[0], theirs.dtype))
                pair.update(entry.name, tokens, mine, theirs, first_position=entry.first_position)
    slots = [
        RankSlot(slot=slot, ranks=[pair.compute() for (at, _, _), pair in sorted(pairs.items()) if at == slot])
        for slot in sorted({slot for slot, _, _ in pairs})
    ]
    return MeasuredRanks(slots, [text.compute() for _, text in sorted(texts.items())], unreadable)


def differing_rows(first_TD: torch.Tensor, other_TD: torch.Tensor) -> torch.Tensor:
    """The rows that aren't equal in every number: bool ``[T]``; NaN equals NaN."""
    equal_TD = (first_TD == other_TD) | (first_TD.isnan() & other_TD.isnan())
    return ~equal_TD.all(1)
