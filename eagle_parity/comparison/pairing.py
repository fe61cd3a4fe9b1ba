"""Which sequence of one side is which of the other: by token ids first, by name last.

Only token ids are read here. Order proves nothing: trainers shuffle, servers reorder.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from eagle_parity.hidden_states import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from eagle_parity.hidden_states import HiddenStates

MIN_COMMON = 8
"""Sequences that share fewer leading or trailing ids share a template's first words, not their text."""
MIN_COMMON_SHARE = 0.5
"""Where neither sequence contains the other, this much of the shorter one must be common: system prompts are long."""
MIN_EQUAL_SHARE = 0.5
"""Of two sequences of one name, so many ids must be equal in place for them to be the same text."""

ID_BYTES = 8

How = Literal["equal", "prefix", "suffix", "name"]


@dataclass(frozen=True, slots=True)
class SequenceIds:
    """A sequence's name, ids and number of rows, without its states."""

    name: str
    ids: torch.Tensor
    rows: int
    masked_tail: int
    """How many trailing positions the loss mask leaves out: padding is among them."""


@dataclass(frozen=True, slots=True)
class SequencePair:
    """Two sequences and the rows of them that belong together.

    Rows ``trained_start`` to ``trained_start + length`` of the one are rows ``live_start`` to ``live_start + length``
    of the other. Of sequences of one name whose ids differ only what stands before the first difference belongs
    together: every state behind it has seen other tokens.
    """

    trained: SequenceIds
    live: SequenceIds
    how: How
    trained_start: int
    live_start: int
    length: int
    padded: bool = False


@dataclass(frozen=True)
class Pairing:
    """All pairs, and what is left over."""

    pairs: list[SequencePair]
    unpaired_trained: list[SequenceIds] = field(default_factory=list)
    unpaired_live: list[SequenceIds] = field(default_factory=list)
    unreadable_trained: list[Unreadable] = field(default_factory=list)
    unreadable_live: list[Unreadable] = field(default_factory=list)

    def tokens(self, side: Literal["trained", "live"]) -> dict[str, int]:
        """How many each sequence of a side has, by its name; those without token ids aren't among them."""
        if side == "trained":
            sequences = [*(pair.trained for pair in self.pairs), *self.unpaired_trained]
        else:
            sequences = [*(pair.live for pair in self.pairs), *self.unpaired_live]
        return {sequence.name: len(sequence.ids) for sequence in sequences}


def read_ids(states: HiddenStates) -> tuple[list[SequenceIds], list[Unreadable]]:
    """Token ids of every sequence; files without ids can't be compared and are told."""
    readable: list[SequenceIds] = []
    unreadable = list(states.unreadable)
    for sequence in states:
        if isinstance(sequence, Unreadable):
            unreadable.append(sequence)
        elif sequence.token_ids is None:
            unreadable.append(Unreadable(sequence.name, "no token ids in it, so its rows belong to no known tokens"))
        else:
            readable.append(
                SequenceIds(sequence.name, sequence.token_ids, sequence.rows, _masked_tail(sequence.loss_mask))
            )
    return readable, unreadable


class PrefixIndex:
    """Finds, among many sequences, the one that shares the longest prefix with given ids.

    In lexicographic order that sequence is a neighbour, so a search is a bisection however many there are.
    """

    def __init__(self, sequences: Iterable[SequenceIds], *, backwards: bool = False) -> None:
        self._backwards = backwards
        self._entries = sorted(((self._key(s.ids), i, s) for i, s in enumerate(sequences)), key=lambda e: e[:2])
        self._keys = [key for key, _, _ in self._entries]
        self._place = {id(sequence): i for _, i, sequence in self._entries}
        self._taken: set[int] = set()

    def longest(self, ids: torch.Tensor) -> tuple[SequenceIds, int] | None:
        """The best sequence that isn't taken, and the number of common ids; None where nothing is common."""
        key = self._key(ids)
        at = bisect.bisect_left(self._keys, key)
        best: tuple[SequenceIds, int] | None = None
        for neighbours in (range(at, len(self._entries)), range(at - 1, -1, -1)):
            free = next((i for i in neighbours if self._entries[i][1] not in self._taken), None)
            if free is None:
                continue
            common = _common_bytes(key, self._keys[free]) // ID_BYTES
            if common > (best[1] if best else 0):
                best = (self._entries[free][2], common)
        return best

    def contained(self, ids: torch.Tensor) -> tuple[SequenceIds, int] | None:
        """The free sequence that begins with all of the given ids, or else the longest one that they begin with.

        Another one may share more ids and go on differently: after one system prompt, texts differ.
        """
        key = self._key(ids)
        above = bisect.bisect_left(self._keys, key)
        for i in range(above, len(self._keys)):
            if not self._keys[i].startswith(key):
                break
            if self._entries[i][1] not in self._taken:
                return self._entries[i][2], len(key) // ID_BYTES
        i = above - 1
        while i >= 0 and self._keys[i]:
            common = _common_bytes(key, self._keys[i]) // ID_BYTES * ID_BYTES
            if common < len(self._keys[i]):
                # Whatever begins the ids and sorts before this one begins what the two share.
                i = min(i, bisect.bisect_right(self._keys, key[:common])) - 1
            elif self._entries[i][1] in self._taken:
                i -= 1
            else:
                return self._entries[i][2], common // ID_BYTES
        return None

    def take(self, sequence: SequenceIds) -> None:
        """Removes a sequence from further searches."""
        self._taken.add(self._place[id(sequence)])

    def contexts(self) -> int:
        """How many different non-empty prefixes the sequences have: of neighbours in order, the common part is one."""
        lengths = sum(len(key) for key in self._keys)
        common = sum(_common_bytes(a, b) for a, b in pairwise(self._keys))
        return (lengths - common) // ID_BYTES

    def left(self) -> list[SequenceIds]:
        """What was not taken, in the order given."""
        return [s for _, i, s in sorted(self._entries, key=lambda e: e[1]) if i not in self._taken]

    def _key(self, ids: torch.Tensor) -> bytes:
        # Big-endian bytes compare as the ids do, and bytes compare fast.
        return (ids.flip(0) if self._backwards else ids).numpy().astype(">i8").tobytes()


def pair_sequences(trained: HiddenStates, live: HiddenStates) -> Pairing:
    """Pairs by equal ids, then by longest common prefix or suffix, then by name."""
    trained_ids, unreadable_trained = read_ids(trained)
    live_ids, unreadable_live = read_ids(live)
    pairs: list[SequencePair] = []
    left_trained, left_live = _take_equal(trained_ids, live_ids, pairs)
    # Whole containment first: a sequence must not lose its partner to one that only shares a system prompt with it.
    left_trained, left_live = _take_overlapping(left_trained, left_live, pairs, _prefix, whole=True)
    left_trained, left_live = _take_overlapping(left_trained, left_live, pairs, _suffix, whole=True)
    left_trained, left_live = _take_same_name(left_trained, left_live, pairs)
    left_trained, left_live = _take_overlapping(left_trained, left_live, pairs, _prefix, whole=False)
    return Pairing(pairs, left_trained, left_live, unreadable_trained, unreadable_live)


def _take_equal(
    trained: list[SequenceIds], live: list[SequenceIds], pairs: list[SequencePair]
) -> tuple[list[SequenceIds], list[SequenceIds]]:
    waiting: dict[bytes, list[SequenceIds]] = defaultdict(list)
    for sequence in live:
        waiting[_digest(sequence.ids)].append(sequence)
    left: list[SequenceIds] = []
    taken: set[str] = set()
    for sequence in trained:
        same = waiting.get(_digest(sequence.ids))
        if same and len(sequence.ids):
            # Of several live repeats of one prompt, the one of the same name comes first.
            partner = next((s for s in same if s.name == sequence.name), same[0])
            same.remove(partner)
            taken.add(partner.name)
            pairs.append(SequencePair(sequence, partner, "equal", 0, 0, len(sequence.ids)))
        else:
            left.append(sequence)
    return left, [s for s in live if s.name not in taken]


def _take_overlapping(
    trained: list[SequenceIds],
    live: list[SequenceIds],
    pairs: list[SequencePair],
    overlap: Callable[[SequenceIds, SequenceIds, int], SequencePair],
    *,
    whole: bool,
) -> tuple[list[SequenceIds], list[SequenceIds]]:
    index = PrefixIndex(live, backwards=overlap is _suffix)
    left: list[SequenceIds] = []
    for sequence in trained:
        found = index.contained(sequence.ids) if whole else index.longest(sequence.ids)
        if found is None or not _enough(found[1], sequence, found[0], whole=whole):
            left.append(sequence)
            continue
        pairs.append(overlap(sequence, *found))
        index.take(found[0])
    return left, index.left()


def _prefix(trained: SequenceIds, live: SequenceIds, common: int) -> SequencePair:
    longer = trained if len(trained.ids) > len(live.ids) else live
    rest = longer.ids[common:]
    # A padded tail: one id over and over, and masked out of the loss where there is a mask.
    padded = (
        common == min(len(trained.ids), len(live.ids))
        and len(rest) > 0
        and bool((rest == rest[0]).all())
        and longer.masked_tail >= len(rest)
    )
    return SequencePair(trained, live, "prefix", 0, 0, common, padded)


def _suffix(trained: SequenceIds, live: SequenceIds, common: int) -> SequencePair:
    return SequencePair(trained, live, "suffix", len(trained.ids) - common, len(live.ids) - common, common)


def _take_same_name(
    trained: list[SequenceIds], live: list[SequenceIds], pairs: list[SequencePair]
) -> tuple[list[SequenceIds], list[SequenceIds]]:
    by_stem = {_stem(sequence.name): sequence for sequence in live}
    left: list[SequenceIds] = []
    taken: set[int] = set()
    for sequence in trained:
        other = by_stem.get(_stem(sequence.name))
        length = min(len(sequence.ids), len(other.ids)) if other else 0
        equal = sequence.ids[:length] == other.ids[:length] if other else None
        if other and equal is not None and length and int(equal.sum()) >= MIN_EQUAL_SHARE * length:
            if bool(equal.all()):  # its partner by containment was taken by a sequence that has it too
                pairs.append(_prefix(sequence, other, length))
            else:
                pairs.append(SequencePair(sequence, other, "name", 0, 0, int((~equal).nonzero()[0])))
            del by_stem[_stem(sequence.name)]
            taken.add(id(other))
        else:
            left.append(sequence)
    return left, [sequence for sequence in live if id(sequence) not in taken]


def _enough(common: int, trained: SequenceIds, live: SequenceIds, *, whole: bool) -> bool:
    shorter = min(len(trained.ids), len(live.ids))
    if common < max(1, min(MIN_COMMON, shorter)):
        return False
    return common == shorter if whole else common >= MIN_COMMON_SHARE * shorter


def _common_bytes(a: bytes, b: bytes) -> int:
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    low, high = 0, length
    while low < high:  # bisection over slices: comparing bytes is memcmp, a Python loop isn't
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _masked_tail(loss_mask: torch.Tensor | None) -> int:
    if loss_mask is None:
        return 0
    kept = loss_mask.flatten().nonzero()
    return len(loss_mask.flatten()) - (int(kept[-1]) + 1 if len(kept) else 0)


def _stem(name: str) -> str:
    return name.rsplit("/", 1)[-1].split(".", 1)[0]


def _digest(ids: torch.Tensor) -> bytes:
    return hashlib.blake2b(ids.numpy().tobytes(), digest_size=16).digest()
