"""What differing ranks make together: a sum, with or without the residual that each of them has, or a concatenation.

A combination is a side of its own: the ranks' rows put together as they are read, and measured against every known
state as any live side is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import torch

from eagle_parity.comparison.alignment import Lost
from eagle_parity.comparison.measure import measure_pairs
from eagle_parity.comparison.rank_residual import measure_residuals
from eagle_parity.comparison.rank_rows import JoinedColumns, JoinedRows, SummedRows
from eagle_parity.comparison.recording import COLUMNS, ROWS, SUM, SUM_LESS_RESIDUAL, RankCombination
from eagle_parity.comparison.sample import SAMPLE_ROWS
from eagle_parity.hidden_states import StateSequence, Unreadable
from eagle_parity.numerics.rows import row_errors, row_norms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eagle_parity.comparison.alignment import AlignedPair, Aligner
    from eagle_parity.comparison.pairing import SequencePair
    from eagle_parity.comparison.recording import RankSlot
    from eagle_parity.comparison.states import Candidate
    from eagle_parity.hidden_states import HiddenStates, Rows
    from eagle_parity.readers.live_capture import LiveCapture

THROUGHOUT = 0.5
"""Partial sums and shares differ in every row; a rank that differs in fewer than half of them diverges."""
ORDER_ROWS = 128
"""Rows of one sequence by which the order of a concatenation is found: one row alone names a layer."""


@dataclass(frozen=True)
class RankSides:
    """What combinations are made of and measured against.

    Attributes:
        live: the capture.
        aligner: of the comparison; its live side has the first ranks.
        pairs: some pairs whose live sequence every rank of its group recorded.
        known: the candidates that the aligner gives.
        bad_row_distance: see ``measure_pairs``.
    """

    live: LiveCapture
    aligner: Aligner
    pairs: tuple[SequencePair, ...]
    known: tuple[Candidate, ...]
    bad_row_distance: float

    @property
    def ranks(self) -> tuple[str, ...]:
        """The ranks of the first pair's group."""
        entry = self.live.sequence(self.pairs[0].live.name)
        return () if entry is None else self.live.ranks_of(entry)

    def parts(self, name: str) -> list[StateSequence] | Unreadable:
        """One sequence of every rank of its group, the main file's first."""
        return _parts(self.live, self.aligner.live, name)

    def combined(self, how: str, order: Sequence[int] | None = None) -> Aligner:
        """The aligner with each live sequence's ranks put together; ``order`` is that of a concatenation."""

        def opened(name: str) -> StateSequence | Unreadable:
            parts = self.parts(name)
            if isinstance(parts, Unreadable):
                return parts
            ordered = parts if order is None or len(order) != len(parts) else [parts[place] for place in order]
            first = parts[0]
            make = _maker(how, first.rows if first.token_ids is None else len(first.token_ids))
            slots = tuple(make(tuple(part.slots[slot] for part in ordered)) for slot in range(len(first.slots)))
            return replace(first, slots=slots, last_state=None)

        layout = replace(self.aligner.live.layout, hidden_size=self.aligner.trained.layout.hidden_size)
        live: HiddenStates = replace(self.aligner.live, layout=layout, opener=opened)
        return replace(self.aligner, live=live, noise=None, noise_index=None)


def combine_ranks(
    slots: Sequence[RankSlot],
    live: LiveCapture,
    aligner: Aligner,
    pairs: Sequence[SequencePair],
    known: Sequence[Candidate],
    *,
    bad_row_distance: float,
) -> list[RankSlot]:
    """The measurements with every combination that can be, where the ranks of a slot differ throughout.

    Args:
        slots: each rank against the first.
        live: the capture.
        aligner: of the comparison, with the first ranks as its live side.
        pairs: trained against live sequences.
        known: candidates that the aligner gives.
        bad_row_distance: see ``measure_pairs``.
    """
    wanted = [slot.slot for slot in slots if any(_throughout(r.rows, r.differing, r.shares) for r in slot.ranks)]
    if not wanted:
        return list(slots)
    sides = RankSides(live, aligner, _sample(live, aligner, pairs), tuple(known), bad_row_distance)
    found: list[dict[int, RankCombination]] = []
    not_tried: dict[str, str] = {}
    for how in (COLUMNS, ROWS, SUM):
        reason = _misfit(how, sides)
        if reason:
            not_tried[how] = reason
        else:
            found.append(_measure(how, wanted, sides))
    if SUM not in not_tried:
        residuals = measure_residuals(wanted, sides.combined(SUM), sides.pairs, sides.ranks)
        if residuals:
            found.append(residuals)
        else:
            not_tried[SUM_LESS_RESIDUAL] = "it takes a --reference with neighbouring boundaries"
    return [
        msgspec.structs.replace(
            slot, combinations=[some[slot.slot] for some in found if slot.slot in some], not_tried=not_tried
        )
        if slot.slot in wanted
        else slot
        for slot in slots
    ]


def _throughout(rows: int, differing: int, shares: str | None) -> bool:
    return shares is not None or (rows > 0 and differing >= THROUGHOUT * rows)


def _sample(live: LiveCapture, aligner: Aligner, pairs: Sequence[SequencePair]) -> tuple[SequencePair, ...]:
    """Pairs whose live sequence every rank of its group recorded, until there are rows enough."""
    chosen: list[SequencePair] = []
    rows = 0
    sizes = {rank.name: rank.group_size for rank in live.live.ranks}
    for pair in pairs:
        if rows >= SAMPLE_ROWS:
            break
        entry = live.sequence(pair.live.name)
        ranks = () if entry is None else live.ranks_of(entry)
        whole = len(ranks) > 1 and len(ranks) == sizes[ranks[0]] and pair.length > 0
        if whole and not isinstance(_parts(live, aligner.live, pair.live.name), Unreadable):
            chosen.append(pair)
            rows += pair.length
    return tuple(chosen)


def _parts(live: LiveCapture, states: HiddenStates, name: str) -> list[StateSequence] | Unreadable:
    entry = live.sequence(name)
    first = states.open(name)
    if isinstance(first, Unreadable):
        return first
    if entry is None:
        return Unreadable(name, "the manifest has no such sequence")
    parts = [first]
    for rank in live.ranks_of(entry)[1:]:
        other = live.open_rank(entry, rank)
        if isinstance(other, Unreadable):
            return other
        if len(other.slots) != len(first.slots):
            return Unreadable(other.name, "another number of slots")
        parts.append(other)
    return parts


def _maker(how: str, tokens: int) -> Callable[[tuple[Rows, ...]], Rows]:
    def make(parts: tuple[Rows, ...]) -> Rows:
        if how == SUM:
            return SummedRows(parts)
        return JoinedColumns(parts) if how == COLUMNS else JoinedRows(parts, tokens)

    return make


def _misfit(how: str, sides: RankSides) -> str:
    """Why ranks can't make a state in some way, by their shapes; empty where they can."""
    if not sides.pairs:
        return "no sequence that every rank of its group recorded is on the trained side"
    parts = sides.parts(sides.pairs[0].live.name)
    if isinstance(parts, Unreadable):
        return parts.reason
    width = sides.aligner.trained.layout.hidden_size
    tokens = len(sides.pairs[0].live.ids)
    rows = [part.slots[0].tokens for part in parts]
    widths = [part.slots[0].hidden_size for part in parts]
    if how == COLUMNS:
        fits = len(set(widths)) == 1 and widths[0] < width == sum(widths)
        return "" if fits else f"together they are {sum(widths)} wide, the trained states {width}"
    if set(widths) != {width}:
        return f"they are {widths[0]} wide, the trained states {width}"
    if how == ROWS:
        return "" if max(rows) < tokens <= sum(rows) else f"together they have {sum(rows)} rows for {tokens} tokens"
    return "" if set(rows) == {tokens} else f"they have {rows[0]} rows for {tokens} tokens"


def _measure(how: str, slots: Sequence[int], sides: RankSides) -> dict[int, RankCombination]:
    order = None if how == SUM else _order(how, slots[0], sides)
    measured = measure_pairs(
        sides.pairs, sides.combined(how, order), sides.known, sides.bad_row_distance, lambda _name: None
    )
    names = list(sides.ranks) if order is None else [sides.ranks[place] for place in order]
    found = {}
    for slot in slots:
        state = measured.slots[slot].live
        if state is not None:
            ratio = _norms_ratio(slot, sides) if how == SUM else 1.0
            found[slot] = RankCombination(how=how, order=names, state=state, norms_ratio=ratio)
    return found


def _norms_ratio(slot: int, sides: RankSides) -> float:
    """Median over rows of the summands' norms together over the norm of their sum."""
    ratios = []
    for pair in sides.pairs:
        parts = sides.parts(pair.live.name)
        if not isinstance(parts, Unreadable):
            states = tuple(part.slots[slot] for part in parts)
            total = SummedRows(states)
            rows = min(ORDER_ROWS, total.tokens)
            norms_T = torch.stack([row_norms(state.read(0, rows)) for state in states]).sum(0)
            ratios.append(norms_T / row_norms(total.read(0, rows)))
    ratios_T = torch.cat(ratios) if ratios else torch.ones(1)
    ratios_T = ratios_T[ratios_T.isfinite()]
    return float(ratios_T.median()) if len(ratios_T) else 1.0


def _order(how: str, slot: int, sides: RankSides) -> tuple[int, ...] | None:
    """The order of the ranks in which their concatenation is nearest to some known state; None where none is plain."""
    aligned = sides.combined(how).align(sides.pairs[0])
    parts = sides.parts(sides.pairs[0].live.name)
    if isinstance(aligned, Lost) or isinstance(parts, Unreadable):
        return None
    count = len(parts)
    best: tuple[float, tuple[int, ...]] | None = None
    for expected_TD in _known_rows(aligned):
        # [rank, place]: how far each rank's share is from each part of the known state.
        errors_RP = torch.tensor(
            [[_share_error(how, part.slots[slot], place, expected_TD) for place in range(count)] for part in parts]
        )
        places = errors_RP.argmin(1).tolist()
        if sorted(places) == list(range(count)):
            total = float(errors_RP.min(1).values.sum())
            if best is None or total < best[0]:
                best = total, tuple(places.index(place) for place in range(count))
    return None if best is None else best[1]


def _known_rows(aligned: AlignedPair) -> Iterator[torch.Tensor]:
    for _, rows in aligned.known:
        yield rows.read(0, aligned.length)
    for trained in aligned.trained:
        yield trained.read(0, aligned.length)


def _share_error(how: str, share: Rows, place: int, expected_TD: torch.Tensor) -> float:
    if how == COLUMNS:
        rows = min(share.tokens, len(expected_TD), ORDER_ROWS)
        low = place * share.hidden_size
        expected_TD = expected_TD[:rows, low : low + share.hidden_size]
    else:
        expected_TD = expected_TD[place * share.tokens :][: min(share.tokens, ORDER_ROWS)]
        rows = len(expected_TD)
    errors_T = row_errors(share.read(0, rows), expected_TD)
    errors_T = errors_T[errors_T.isfinite()]
    return float(errors_T.median()) if len(errors_T) else float("inf")
