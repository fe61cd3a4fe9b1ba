"""Everything that one pass over pairs of sequences accumulates. Memory holds a block of rows, never a side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.alignment import last_state_candidate, trained_slot_candidate
from eagle_parity.comparison.block_numbers import BlockNumbers, RowsAside, add_rows, count_rows, error_row, norm_row
from eagle_parity.comparison.measurements import SlotMeasurement
from eagle_parity.comparison.pair_block import PairStates
from eagle_parity.comparison.sinks import sink_limits
from eagle_parity.comparison.slot_pair import ERRORS, NOISE, SINKS, SlotPair
from eagle_parity.comparison.state_match import CONTRASTS, REPEATS, StateMatch
from eagle_parity.numerics.arithmetic import Pairs
from eagle_parity.numerics.file_rows import rows_between
from eagle_parity.numerics.loops.shapes import HUGE
from eagle_parity.numerics.moments import PairMoments
from eagle_parity.numerics.rows import token_neighbours
from eagle_parity.numerics.sinks import SAMPLED_ROWS, choose_sinks, limits_of, stands_out
from eagle_parity.numerics.whole_arrays import WholeArrays
from eagle_parity.open_files import OpenFiles
from eagle_parity.threads import StoppedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from threading import Event

    from eagle_parity.comparison.alignment import AlignedPair
    from eagle_parity.comparison.block_numbers import Targets
    from eagle_parity.comparison.measurements import Candidate
    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.numerics.arithmetic import Arithmetic
    from eagle_parity.numerics.file_rows import BlockState

REPEATS_IN_ALL, LEAST_REPEATS, REPEATS_AMONG = 4096, 64, 256
"""First rows among which rows of one token are looked for: of all sequences, and of each at least and at most. A few
dozen repeats tell the embedding, and all of these rows are read twice."""


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
        self.bad_row_distance = bad_row_distance
        self.tokens = 0

    def update(self, pair: AlignedPair) -> None:
        """Adds one pair of sequences.

        Raises:
            InputError: a file can't be read any more.
            StoppedError: ``stop`` was set meanwhile; a sequence may take minutes.
        """
        self.tokens += pair.length
        states = PairStates.of(
            pair,
            [match.candidates for match in self.trained],
            [match.candidates for match in self.live],
            self.trained_last.candidates,
            self.live_last.candidates,
        )
        targets = self._targets(states)
        in_files = self._arithmetic.in_files
        rows = self._arithmetic.block_rows(states.row_bytes(in_files, pair.length))
        limits_N = (
            None if min(rows, pair.length) >= min(SAMPLED_ROWS, pair.length) else sink_limits(pair, self._arithmetic)
        )
        errors: list[torch.Tensor] = []
        aside: list[RowsAside] = []
        with OpenFiles() as files:
            for low, high in pair.blocks(rows):
                if self._stop is not None and self._stop.is_set():
                    raise StoppedError
                held = states.hold(low, high, in_files, files)
                # More is asked of a sequence's first rows: of those that are judged they are read once for all of it.
                first = states.first_rows(held, max(self._repeats_among, SAMPLED_ROWS)) if low == 0 else {}
                limits_N, moments = self._begin(states, held, first, limits_N)
                numbers = BlockNumbers(held, states.pairs, self._arithmetic, limits_N, moments, first=first)
                keep_T = ~numbers.standing_T
                for slot, begun in enumerate(moments):
                    if begun is None:
                        numbers.add_to(self.pairs[slot].moments, *states.pairs.subtracted[slot], keep_T)
                self._count(states, targets, numbers.errors_RT, keep_T, keep_T)
                errors.append(self._slot_errors(states, numbers.errors_RT, keep_T))
                if low == 0:
                    self._add_repeats(states, numbers, keep_T, pair.token_ids[:high])
                if not bool(keep_T.all()):
                    aside.append(RowsAside.of(numbers, low))
                # States that aren't in files go before the next block's come.
                del held, first, numbers
        if aside and limits_N is not None:
            errors.append(self._add_aside(states, targets, RowsAside.join(aside), limits_N, pair.length))
        self._tell_sequence(pair.name, torch.cat(errors, dim=1))

    def _begin(
        self,
        states: PairStates,
        held: Sequence[BlockState],
        first: Mapping[int, torch.Tensor],
        limits_N: torch.Tensor | None,
    ) -> tuple[torch.Tensor, list[PairMoments | None]]:
        """The limits of a sequence, and the sums to which its rows can be added at once.

        What this is for is seen in the block's first rows: a sequence's median norm, and around what sums are taken.
        """
        moments: list[PairMoments | None] = [pair.moments for pair in self.pairs[: states.same_place]]
        if limits_N is not None and all(pair.moments.rows for pair in self.pairs[: states.same_place]):
            return limits_N, moments
        slots = rows_between([first.get(place, held[place]) for place in range(states.slots)], 0, SAMPLED_ROWS)
        norms_NT = self._arithmetic.compare(slots, Pairs()).squares_NT.sqrt()
        limits_N = limits_of(norms_NT) if limits_N is None else limits_N
        usable_NT = ~stands_out(norms_NT, limits_N) & (norms_NT <= HUGE**0.5)
        for slot, (live, trained) in enumerate(states.pairs.subtracted[: states.same_place]):
            pair = self.pairs[slot].moments
            if not pair.rows and not pair.begin(
                slots[trained], slots[live], (usable_NT[trained] & usable_NT[live]).nonzero().flatten()
            ):
                moments[slot] = None
        return limits_N, moments

    def _targets(self, states: PairStates) -> Targets:
        targets: Targets = []
        for match, place in self._matches(states):
            targets += match.targets(states.pairs, place, states.labels)
        for pair, (live, trained) in zip(self.pairs, states.pairs.subtracted, strict=False):
            targets.append((error_row(states.pairs, live, trained), pair.histograms.counts_PB[ERRORS]))
        for pair, live, second in zip(self.pairs, states.live, states.noise, strict=False):
            targets.append((error_row(states.pairs, second, live), pair.histograms.counts_PB[NOISE]))
        return targets

    def _count(
        self,
        states: PairStates,
        targets: Targets,
        errors_RT: torch.Tensor,
        keep_T: torch.Tensor,
        seen_T: torch.Tensor,
    ) -> None:
        """Adds rows to all histograms.

        Args:
            states: the pair's.
            targets: what goes where.
            errors_RT: of the rows.
            keep_T: bool ``[T]``, which rows count.
            seen_T: bool ``[T]``, which rows can't come again: those that count, and sinks.
        """
        count_rows(self._arithmetic, errors_RT, targets, keep_T)
        finite_NT = errors_RT[norm_row(states.pairs, 0) :].isfinite()
        kept, missing = (finite_NT & keep_T).sum(1).tolist(), (~finite_NT & seen_T).sum(1).tolist()
        for match, place in self._matches(states):
            match.rows += kept[place]
            match.non_finite += missing[place]

    def _slot_errors(self, states: PairStates, errors_RT: torch.Tensor, keep_T: torch.Tensor) -> torch.Tensor:
        """Of slots in one place, ``[slots, T]``; NaN where a row isn't kept."""
        first = len(states.pairs.by_products)
        return torch.where(keep_T, errors_RT[first : first + states.same_place], torch.nan)

    def _add_repeats(
        self, states: PairStates, numbers: BlockNumbers, keep_T: torch.Tensor, ids_T: torch.Tensor
    ) -> None:
        """Adds the first rows of a sequence: how rows of one token, and of different ones, differ."""
        matches = list(self._matches(states))
        usable_NT = (keep_T & numbers.finite_NT)[:, : self._repeats_among]
        # All states at once, but for those of which other rows are no numbers.
        alike: dict[bytes, list[tuple[StateMatch, int]]] = {}
        for match, place in matches:
            alike.setdefault(bytes(usable_NT[place].numpy()), []).append((match, place))
        for members in alike.values():
            kept = usable_NT[members[0][1]].nonzero().flatten()
            first, second, same_T = token_neighbours(ids_T[kept])
            errors_NT = numbers.neighbour_errors([place for _, place in members], kept[first], kept[second])
            for chosen_T, counts in (
                (same_T, [match.histograms.counts_PB[REPEATS] for match, _ in members]),
                (~same_T, [match.histograms.counts_PB[CONTRASTS] for match, _ in members]),
            ):
                count_rows(self._arithmetic, errors_NT, list(enumerate(counts)), chosen_T)

    def _add_aside(
        self, states: PairStates, targets: Targets, aside: RowsAside, limits_N: torch.Tensor, length: int
    ) -> torch.Tensor:
        """Adds the rows of a sequence that stand out, and gives the errors of those that are no sinks."""
        sinks_T = choose_sinks(aside.squares_NT[: states.slots].sqrt(), limits_N, length)
        self._count(states, targets, aside.errors_RT, ~sinks_T, torch.ones_like(sinks_T))
        sink_targets = [
            (error_row(states.pairs, live, trained), pair.histograms.counts_PB[SINKS])
            for pair, (live, trained) in zip(self.pairs, states.pairs.subtracted, strict=False)
        ]
        count_rows(self._arithmetic, aside.errors_RT, sink_targets, sinks_T)
        bad = (self._slot_errors(states, aside.errors_RT, sinks_T) > self.bad_row_distance).sum(1).tolist()
        for pair, count in zip(self.pairs, bad, strict=False):
            pair.bad_sinks += count
        kept = (~sinks_T).nonzero().flatten()
        for low in range(0, len(kept), SAMPLED_ROWS):
            chosen = kept[low : low + SAMPLED_ROWS]
            held = states.read_rows(aside.rows_T[chosen].tolist())
            for pair, (live, trained) in zip(self.pairs, states.pairs.subtracted, strict=False):
                x, y = aside.squares_NT[trained, chosen], aside.squares_NT[live, chosen]
                add_rows(self._arithmetic, pair.moments, (held[trained], x), (held[live], y))
        return self._slot_errors(states, aside.errors_RT, ~sinks_T)

    def _tell_sequence(self, name: str, errors_PT: torch.Tensor) -> None:
        if not errors_PT.shape[1]:
            return
        medians = errors_PT.nanmedian(1).values.tolist()
        bad = (errors_PT > self.bad_row_distance).any(1).tolist()
        for pair, median, is_bad in zip(self.pairs, medians, bad, strict=False):
            pair.tell_sequence(name, median, bad=is_bad)

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
