"""What was generated, rank against rank: the tokens that each chose, then the states up to where these differ.

Behind the first token that differs the ranks compute other texts: rows from there on are counted and not compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from eagle_parity.capture.format import GENERATE
from eagle_parity.comparison.rank_rows import JoinedRows
from eagle_parity.comparison.ranks import MAX_EXAMPLES, RankPair
from eagle_parity.comparison.recording import GeneratedTokens, RankSlot, TokenDivergence
from eagle_parity.errors import InputError
from eagle_parity.hidden_states import StateSequence, Unreadable
from eagle_parity.quoting import plain, sentence
from eagle_parity.readers.live_capture import open_live

if TYPE_CHECKING:
    from eagle_parity.capture.manifest import CapturedSequence
    from eagle_parity.readers.live_capture import LiveCapture


@dataclass
class GeneratedPair:
    """All ranks' generated tokens against those of the first rank, as a state that grows by sequences."""

    sequences: int = 0
    tokens: int = 0
    differing: int = 0
    diverged_sequences: int = 0
    rows_behind: int = 0
    diverged: list[TokenDivergence] = field(default_factory=list)
    slots: dict[tuple[int, str, str], RankPair] = field(default_factory=dict)

    def update(
        self,
        entry: CapturedSequence,
        ranks: tuple[str, str],
        first: tuple[StateSequence, torch.Tensor],
        other: tuple[StateSequence, torch.Tensor],
    ) -> bool:
        """Adds one rank's tokens of one sequence; gives whether they differ from the first rank's.

        Args:
            entry: of the sequence.
            ranks: the first one's name and this one's.
            first: its rows, and the tokens that it chose, int64 ``[G + 1]``: the first generated one, and the one
                behind each of its rows.
            other: likewise of this one.
        """
        (first_states, first_G), (other_states, other_G) = first, other
        tokens = min(len(first_G), len(other_G))
        differs_G = first_G[:tokens] != other_G[:tokens]
        differing = int(differs_G.sum())
        # A row computes the token before the one that is chosen behind it.
        at = int(differs_G.nonzero()[0]) if differing else tokens
        rows = min(at, tokens - 1)
        self.tokens += tokens
        self.differing += differing
        self.rows_behind += tokens - 1 - rows
        if differing and len(self.diverged) < MAX_EXAMPLES:
            self.diverged.append(
                TokenDivergence(
                    sequence=entry.name,
                    position=entry.first_position + at,
                    generated=at + 1,
                    first_rank=ranks[0],
                    rank=ranks[1],
                    first_token=int(first_G[at]),
                    token=int(other_G[at]),
                )
            )
        for slot, (mine, theirs) in enumerate(zip(first_states.slots, other_states.slots, strict=True)):
            key = (slot, ranks[1], ranks[0])
            pair = self.slots.setdefault(key, RankPair(slot, ranks[1], ranks[0], theirs.dtype))
            # Ranks accepted different numbers of rows in one run, which is no share of a state.
            cut = [JoinedRows((state,), rows) for state in (mine, theirs)]
            pair.update(entry.name, rows, cut[0], cut[1], first_position=entry.first_position)
        return differing > 0

    def rank_slots(self) -> list[RankSlot]:
        """The states' measurement."""
        return [
            RankSlot(slot=slot, ranks=[pair.compute() for (at, _, _), pair in sorted(self.slots.items()) if at == slot])
            for slot in sorted({slot for slot, _, _ in self.slots})
        ]


def measure_generation(live: LiveCapture) -> GeneratedTokens | None:
    """Compares the ranks of what was generated; None where that wasn't recorded.

    Args:
        live: the capture.
    """
    if GENERATE not in live.live.conditions:
        return None
    temperature = live.live.settings.get("temperature")
    temperature = float(temperature) if isinstance(temperature, int | float) else None
    try:
        states = live.open_condition(GENERATE)
        generated = open_live(states)
    except InputError as error:
        return GeneratedTokens(temperature=temperature, not_compared=str(error))
    if generated is None:
        return GeneratedTokens(temperature=temperature, not_compared="it is no capture of a running server")
    measured = GeneratedPair()
    missing = generated.live.incomplete
    unreadable: list[tuple[str, str]] = []
    for entry in generated.manifest.sequences:
        ranks = generated.ranks_of(entry)
        if len(ranks) <= 1:
            continue
        first = _opened(states.open(entry.name), generated, entry, ranks[0])
        if isinstance(first, Unreadable):
            unreadable.append((first.name, first.reason))
            continue
        compared, diverged = 0, 0
        for rank in ranks[1:]:
            other = _opened(generated.open_rank(entry, rank), generated, entry, rank)
            if isinstance(other, Unreadable):
                unreadable.append((other.name, other.reason))
            elif len(other[0].slots) != len(first[0].slots):
                reason = f"{len(other[0].slots)} slots, where rank {ranks[0]} has {len(first[0].slots)}"
                unreadable.append((other[0].name, reason))
            else:
                compared += 1
                diverged += measured.update(entry, (ranks[0], rank), first, other)
        measured.sequences += compared > 0
        measured.diverged_sequences += diverged > 0
    return GeneratedTokens(
        temperature=temperature,
        sequences=measured.sequences,
        tokens=measured.tokens,
        differing=measured.differing,
        diverged_sequences=measured.diverged_sequences,
        diverged=measured.diverged,
        rank_slots=measured.rank_slots(),
        rows_behind=measured.rows_behind,
        unreadable=unreadable[:MAX_EXAMPLES],
        unreadable_count=len(unreadable),
        missing=[(plain(entry.name), sentence(entry.reason)) for entry in missing[:MAX_EXAMPLES]],
        missing_count=len(missing),
        not_compared=None if measured.sequences else "no sequence of it was recorded by two ranks of one group",
    )


def _opened(
    opened: StateSequence | Unreadable, generated: LiveCapture, entry: CapturedSequence, rank: str
) -> tuple[StateSequence, torch.Tensor] | Unreadable:
    """The rows of a rank, and the tokens that it chose: ``[G + 1]``."""
    if isinstance(opened, Unreadable):
        return opened
    sampled = generated.sampled_ids(entry, rank)
    if isinstance(sampled, Unreadable):
        return sampled
    ids = opened.token_ids
    if ids is None or not len(ids) or len(sampled) != len(ids) or opened.rows < len(ids):
        told = "no token ids" if ids is None else f"{len(ids)} token ids"
        return Unreadable(opened.name, f"{told}, {len(sampled)} chosen behind them, {opened.rows} rows")
    return opened, torch.cat([ids[:1].long(), sampled])
