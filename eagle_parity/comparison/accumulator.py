"""Everything that one pass over pairs of sequences accumulates. Memory holds a block of rows, never a side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.alignment import last_state_candidate, trained_slot_candidate
from eagle_parity.comparison.batch import batches
from eagle_parity.comparison.block_numbers import (
    RowNumbers,
    add_block,
    add_rows,
    count_rows,
    error_row,
    neighbour_errors,
    norm_row,
)
from eagle_parity.comparison.measurements import SlotMeasurement
from eagle_parity.comparison.pair_states import Places, read_rows
from eagle_parity.comparison.slot_pair import ERRORS, NOISE, SINKS, SlotPair
from eagle_parity.comparison.state_match import CONTRASTS, REPEATS, StateMatch
from eagle_parity.numerics.arithmetic import Limits
from eagle_parity.numerics.loops.shapes import HUGE
from eagle_parity.numerics.moments import PairMoments
from eagle_parity.numerics.rows import token_neighbours
from eagle_parity.numerics.sinks import SAMPLED_ROWS, allowed_sinks, choose_sinks, limits_of, stands_out
from eagle_parity.numerics.stacked_rows import StackedRows
from eagle_parity.numerics.whole_arrays import WholeArrays
from eagle_parity.threads import StoppedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from threading import Event

    from eagle_parity.comparison.alignment import AlignedPair
    from eagle_parity.comparison.batch import Batch, Block, FirstRows
    from eagle_parity.comparison.block_numbers import Targets
    from eagle_parity.comparison.measurements import Candidate
    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.numerics.arithmetic import Arithmetic

REPEATS_IN_ALL, LEAST_REPEATS, REPEATS_AMONG = 4096, 64, 256
"""First rows among which rows of one token are looked for: of all sequences, and of each at least and at most. A few
dozen repeats tell the embedding, and all of these rows are in memory."""


def repeats_among(sequences: int) -> int:
    """How many first rows of each of so many sequences are looked at for repeats."""
    return min(REPEATS_AMONG, max(LEAST_REPEATS, -(-REPEATS_IN_ALL // max(1, sequences))))


class Accumulator:
    """Everything that one pass accumulates; two of them over different pairs merge."""

    def __init__(
        self,
        trained: HiddenStates,
        live: HiddenStates,
        known: Iterable[Candidate],
        bad_row_distance: float,
        arithmetic: Arithmetic | None = None,
        *,
        repeats_among: int = REPEATS_AMONG,
        stop: Event | None = None,
    ) -> None:
        known = tuple(known)
        self._repeats_among = repeats_among
        self._stop = stop
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
        self.pairs = [SlotPair(PairMoments(hidden_size)) for _ in range(min(len(self.trained), len(self.live)))]
        self._known_places: dict[object, Places] = {}
        self.bad_row_distance = bad_row_distance
        self.tokens = 0

    def update(self, pairs: Iterable[AlignedPair]) -> None:
        """Adds pairs of sequences.

        Raises:
            InputError: a file can't be read any more.
            StoppedError: ``stop`` was set meanwhile; a sequence may take minutes.
        """
        # More is asked of a sequence's first rows than of others: they are in memory for all of it.
        first_rows = max(self._repeats_among, SAMPLED_ROWS)
        for batch in batches(pairs, self._places, first_rows, self._arithmetic.first_bytes):
            self._add(batch)

    def _places(self, pair: AlignedPair) -> Places:
        """Where a pair's states are; found once for pairs that have the same ones."""
        kind = (
            len(pair.trained),
            len(pair.live),
            len(pair.noise),
            pair.trained_last is None,
            pair.live_last is None,
            tuple(candidate.label for candidate, _ in pair.known),
        )
        if kind not in self._known_places:
            self._known_places[kind] = Places.of(
                pair,
                [match.candidates for match in self.trained],
                [match.candidates for match in self.live],
                self.trained_last.candidates,
                self.live_last.candidates,
            )
        return self._known_places[kind]

    def _add(self, batch: Batch) -> None:
        self.tokens += sum(pair.length for pair in batch.pairs)
        with StackedRows(sum(batch.first)) as stacked:
            self._add_rows(batch, batch.read_first(self._arithmetic, stacked))

    def _add_rows(self, batch: Batch, first: FirstRows) -> None:
        places, in_files = batch.places, self._arithmetic.in_files
        limits_SN, begun = self._begin(batch, first)
        targets = self._targets(places)
        errors: list[torch.Tensor] = []
        sequences: list[torch.Tensor] = []
        aside: list[RowNumbers] = []

        for block in batch.blocks(first, in_files, self._arithmetic.block_rows):
            if self._stop is not None and self._stop.is_set():
                raise StoppedError
            numbers = self._compare(places, block, limits_SN, begun)
            del block
            keep_T = ~numbers.standing_T
            self._count(places, targets, numbers.errors_RT, keep_T, keep_T)
            errors.append(self._slot_errors(places, numbers.errors_RT, keep_T))
            sequences.append(numbers.sequence_T)
            standing = numbers.standing_T.nonzero().flatten()
            if len(standing):
                aside.append(numbers.chosen(standing))
        if aside:
            joined = RowNumbers.join(aside)
            errors.append(self._add_aside(batch, targets, joined, limits_SN))
            sequences.append(joined.sequence_T)
        self._tell_sequences(batch, torch.cat(errors, dim=1), torch.cat(sequences))

    def _begin(self, batch: Batch, first: FirstRows) -> tuple[torch.Tensor, list[bool]]:
        """What is seen in first rows: limits, around what sums are taken, and whether rows of one token are alike.

        Returns:
            The limits of each sequence ``[S, N]``, and for slots of one place whether their rows can be added to sums
            at once: not where none of the first ones is of use.
        """
        places, rows = batch.places, first.rows
        norms_NR = first.squares_NR[: places.slots].sqrt()
        sampled = (rows.row_T < SAMPLED_ROWS).nonzero().flatten()
        sequence, row = rows.sequence_T[sampled], rows.row_T[sampled]
        norms_NSR = torch.full((len(norms_NR), len(batch.pairs), SAMPLED_ROWS), torch.nan, dtype=torch.float64)
        norms_NSR[:, sequence, row] = norms_NR[:, sampled]
        limits_SN = limits_of(norms_NSR.swapaxes(0, 1))
        keep_R = ~stands_out(norms_NR, limits_SN.T[:, rows.sequence_T])
        usable_NR = keep_R & (norms_NR <= HUGE**0.5)
        begun = [
            bool(pair.moments.rows)
            or pair.moments.begin(
                first.states[trained],
                first.states[live],
                (usable_NR[trained] & usable_NR[live]).nonzero().flatten(),
            )
            for pair, (live, trained) in zip(self.pairs, places.pairs.subtracted[: places.same_place], strict=False)
        ]
        self._add_repeats(batch, first, keep_R)
        return limits_SN, begun

    def _compare(self, places: Places, block: Block, limits_SN: torch.Tensor, begun: Sequence[bool]) -> RowNumbers:
        """The numbers of a block, whose rows are added to the sums of slots of one place."""
        moments = [pair.moments for pair in self.pairs[: places.same_place]]
        compared = self._arithmetic.compare(
            block.pieces,
            places.pairs,
            Limits(limits_SN, block.rows.sequence_T),
            [each.sums if is_begun else None for each, is_begun in zip(moments, begun, strict=True)],
        )
        for each, is_begun, added, (live, trained) in zip(
            moments, begun, compared.added, places.pairs.subtracted, strict=False
        ):
            if is_begun:
                each.rows += added
                continue
            first = 0
            for states in block.pieces:
                rows = slice(first, first := first + states[trained].shape[0])
                squares = compared.squares_NT[trained, rows], compared.squares_NT[live, rows]
                add_block(self._arithmetic, each, (states[trained], states[live]), squares, ~compared.standing_T[rows])
        return RowNumbers.of(block.rows, compared)

    def _targets(self, places: Places) -> Targets:
        targets: Targets = []
        for match, place in self._matches(places):
            targets += match.targets(places.pairs, place, places.labels)
        for pair, (live, trained) in zip(self.pairs, places.pairs.subtracted, strict=False):
            targets.append((error_row(places.pairs, live, trained), pair.histograms.counts_PB[ERRORS]))
        for pair, live, second in zip(self.pairs, places.live, places.noise, strict=False):
            targets.append((error_row(places.pairs, second, live), pair.histograms.counts_PB[NOISE]))
        return targets

    def _count(
        self,
        places: Places,
        targets: Targets,
        errors_RT: torch.Tensor,
        keep_T: torch.Tensor,
        seen_T: torch.Tensor,
    ) -> None:
        """Adds rows to all histograms.

        Args:
            places: of the states.
            targets: what goes where.
            errors_RT: of the rows.
            keep_T: bool ``[T]``, which rows count.
            seen_T: bool ``[T]``, which rows can't come again: those that count, and sinks.
        """
        count_rows(self._arithmetic, errors_RT, targets, keep_T)
        finite_NT = errors_RT[norm_row(places.pairs, 0) :].isfinite()
        kept, missing = (finite_NT & keep_T).sum(1).tolist(), (~finite_NT & seen_T).sum(1).tolist()
        for match, place in self._matches(places):
            match.rows += kept[place]
            match.non_finite += missing[place]

    def _slot_errors(self, places: Places, errors_RT: torch.Tensor, keep_T: torch.Tensor) -> torch.Tensor:
        """Of slots in one place, ``[slots, T]``; NaN where a row isn't kept."""
        first = len(places.pairs.by_products)
        return torch.where(keep_T, errors_RT[first : first + places.same_place], torch.nan)

    def _add_repeats(self, batch: Batch, first: FirstRows, keep_R: torch.Tensor) -> None:
        """Adds how first rows of one token, and of different ones, differ within a sequence."""
        rows = first.rows
        ids_R = torch.cat([pair.token_ids[:count] for pair, count in zip(batch.pairs, batch.first, strict=True)])
        usable_NR = first.squares_NR.isfinite() & keep_R & (rows.row_T < self._repeats_among)
        number_of = {place: number for number, place in enumerate(first.states)}
        # All states at once, but for those of which other rows are no numbers.
        alike: dict[bytes, list[tuple[StateMatch, int]]] = {}
        for match, place in self._matches(batch.places):
            alike.setdefault(bytes(usable_NR[number_of[place]].numpy()), []).append((match, place))
        for members in alike.values():
            numbers = [number_of[place] for _, place in members]
            kept = usable_NR[numbers[0]].nonzero().flatten()
            before, after, same_T = token_neighbours(ids_R[kept], rows.sequence_T[kept])
            errors_NT = neighbour_errors(
                self._arithmetic,
                [first.states[place] for _, place in members],
                first.squares_NR[numbers],
                kept[before],
                kept[after],
            )
            for chosen_T, counts in (
                (same_T, [match.histograms.counts_PB[REPEATS] for match, _ in members]),
                (~same_T, [match.histograms.counts_PB[CONTRASTS] for match, _ in members]),
            ):
                count_rows(self._arithmetic, errors_NT, list(enumerate(counts)), chosen_T)

    def _add_aside(self, batch: Batch, targets: Targets, aside: RowNumbers, limits_SN: torch.Tensor) -> torch.Tensor:
        """Adds the rows that stand out in their sequences, and gives the errors of those that are no sinks."""
        places = batch.places
        sinks_T = torch.ones(len(aside.row_T), dtype=torch.bool)
        for sequence, count in enumerate(aside.sequence_T.bincount().tolist()):
            # As many as may be sinks all are.
            if count > allowed_sinks(batch.pairs[sequence].length):
                mine = (aside.sequence_T == sequence).nonzero().flatten()
                norms_NT = aside.squares_NT[: places.slots, mine].sqrt()
                sinks_T[mine] = choose_sinks(norms_NT, limits_SN[sequence], batch.pairs[sequence].length)
        self._count(places, targets, aside.errors_RT, ~sinks_T, torch.ones_like(sinks_T))
        sink_targets = [
            (error_row(places.pairs, live, trained), pair.histograms.counts_PB[SINKS])
            for pair, (live, trained) in zip(self.pairs, places.pairs.subtracted, strict=False)
        ]
        count_rows(self._arithmetic, aside.errors_RT, sink_targets, sinks_T)
        bad = (self._slot_errors(places, aside.errors_RT, sinks_T) > self.bad_row_distance).sum(1).tolist()
        for pair, count in zip(self.pairs, bad, strict=False):
            pair.bad_sinks += count
        for sequence in sorted(set(aside.sequence_T[~sinks_T].tolist())):
            kept = (~sinks_T & (aside.sequence_T == sequence)).nonzero().flatten()
            for low in range(0, len(kept), SAMPLED_ROWS):
                chosen = kept[low : low + SAMPLED_ROWS]
                held = read_rows(batch.states[sequence][: places.slots], aside.row_T[chosen].tolist())
                for pair, (live, trained) in zip(self.pairs, places.pairs.subtracted, strict=False):
                    x, y = aside.squares_NT[trained, chosen], aside.squares_NT[live, chosen]
                    add_rows(self._arithmetic, pair.moments, (held[trained], x), (held[live], y))
        return self._slot_errors(places, aside.errors_RT, ~sinks_T)

    def _tell_sequences(self, batch: Batch, errors_PT: torch.Tensor, sequence_T: torch.Tensor) -> None:
        # numpy's stable way takes runs as they are: a tenth of torch's time.
        order = torch.from_numpy(sequence_T.numpy().argsort(kind="stable"))
        counts = sequence_T.bincount(minlength=len(batch.pairs)).tolist()
        parts = torch.split(errors_PT.index_select(1, order), counts, dim=1)
        for aligned, errors_PS in zip(batch.pairs, parts, strict=True):
            medians = errors_PS.nanmedian(1).values.tolist()
            bad = (errors_PS > self.bad_row_distance).any(1).tolist()
            for pair, median, is_bad in zip(self.pairs, medians, bad, strict=False):
                pair.tell_sequence(aligned.name, median, bad=is_bad)

    def _matches(self, places: Places) -> Iterator[tuple[StateMatch, int]]:
        yield from zip(self.trained, places.trained, strict=False)
        yield from zip(self.live, places.live, strict=False)
        if places.trained_last is not None:
            yield self.trained_last, places.trained_last
        if places.live_last is not None:
            yield self.live_last, places.live_last

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
