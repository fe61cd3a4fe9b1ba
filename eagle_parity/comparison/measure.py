"""The streaming part: pairs of sequences in, plain numbers out, in threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.accumulator import Accumulator, repeats_among
from eagle_parity.comparison.alignment import Aligner, Lost
from eagle_parity.numerics.choice import choose_arithmetic
from eagle_parity.readers.containers.stored_tensor import ITEM_BYTES
from eagle_parity.threads import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eagle_parity.comparison.alignment import AlignedPair
    from eagle_parity.comparison.measurements import Candidate, SlotMeasurement, StateMeasurement
    from eagle_parity.comparison.pairing import SequencePair

LEAST_GROUP_BYTES, MOST_GROUP_BYTES = 64 * 1024 * 1024, 512 * 1024 * 1024
GROUPS_LEFT = 4
"""A group takes this part of what is left: great ones first, since what is done once for a group takes milliseconds,
and small ones last, so that all threads are done at about the same time."""
GROUP_PAIRS = 256
"""At most; the states of a group are a few megabytes."""
MAX_EXAMPLES = 5
"""How many sequences a result names of each kind; the counts are complete."""


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
        progress: called with the name of each pair that is opened, from any thread; some are compared together.
        device: where to compute.
    """
    known = tuple(known)
    row_bytes = _row_bytes(aligner)
    arithmetic = choose_arithmetic(row_bytes * sum(pair.length for pair in pairs), device)

    first_rows = repeats_among(len(pairs))
    stop = Event()

    def measure(group: Sequence[SequencePair]) -> _Part:
        part = _Part(
            Accumulator(
                aligner.trained,
                aligner.live,
                known,
                bad_row_distance,
                arithmetic,
                repeats_among=first_rows,
                stop=stop,
            )
        )
        part.add(aligner, group, progress)
        return part

    whole = _Part(Accumulator(aligner.trained, aligner.live, known, bad_row_distance, arithmetic))
    for part in in_threads(measure, _groups(pairs, row_bytes), begin=_alone, stop=stop):
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

    def add(self, aligner: Aligner, pairs: Sequence[SequencePair], progress: Callable[[str], None]) -> None:
        self.accumulator.update(self._aligned(aligner, pairs, progress))

    def _aligned(
        self, aligner: Aligner, pairs: Sequence[SequencePair], progress: Callable[[str], None]
    ) -> Iterator[AlignedPair]:
        """Pairs one by one, as they are asked for: a file that was looked at long ago may have changed."""
        for pair in pairs:
            progress(pair.trained.name)
            if pair.length == 0:
                continue  # ids that differ from the first one on: told by the tally
            aligned = aligner.align(pair)
            if isinstance(aligned, Lost):
                self.lost.append(aligned)
                continue
            if aligned.missing:
                self.truncated.append(f"{aligned.name}: {aligned.missing}")
            self.with_reference += aligned.with_reference
            yield aligned

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
    left = row_bytes * sum(pair.length for pair in pairs)
    first, size = 0, 0
    most = _group_bytes(left)
    for place, pair in enumerate(pairs):
        size += row_bytes * pair.length
        if size >= most or place + 1 - first >= GROUP_PAIRS:
            yield pairs[first : place + 1]
            left -= size
            first, size, most = place + 1, 0, _group_bytes(left)
    if first < len(pairs):
        yield pairs[first:]


def _group_bytes(left: int) -> int:
    return min(max(left // GROUPS_LEFT, LEAST_GROUP_BYTES), MOST_GROUP_BYTES)
