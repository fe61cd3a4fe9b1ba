"""What is known of some files of a set, as a state that merges; it holds no name but those of a few examples.

Shape letters: N sequences, S states, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from eagle_parity.numerics.row_sample import RowSample
from eagle_parity.numerics.set_moments import SetMoments

if TYPE_CHECKING:
    from eagle_parity.scan.look import FileLook

MAX_EXAMPLES = 5
"""Files or sequences that a state names of each kind."""
MAX_LAYOUTS = 16
"""A set with more layouts is no set: files of others are counted."""

DIGEST_BYTES = 16
STAMP_BYTES = 8
NO_STAMP = bytes(STAMP_BYTES)
"""Of a file that isn't there."""


class LayoutKey(NamedTuple):
    """What files must have in common to be read as one set.

    Attributes:
        format: the reader's name.
        slots, hidden_size, dtype: of the states.
        last_state: what the layout says of it.
        declared: the wiring that a file itself states, in words.
    """

    format: str
    slots: int
    hidden_size: int
    dtype: str
    last_state: str
    declared: str | None


@dataclass
class Problem:
    """One kind of problem: how often it was met, and where first.

    Attributes:
        count: all of them.
        examples: name and reason.
    """

    count: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, reason: str) -> None:
        """Adds one."""
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append((name, reason))

    def merge(self, other: Problem) -> Problem:
        """Adds those of files that come later."""
        self.count += other.count
        self.examples = [*self.examples, *other.examples][:MAX_EXAMPLES]
        return self


@dataclass
class LayoutState:
    """The files of one layout.

    Attributes:
        example: the first of them.
        files: how many.
        moments, sample: of their states.
    """

    example: str
    files: int
    moments: SetMoments
    sample: RowSample

    def merge(self, other: LayoutState) -> LayoutState:
        """Adds files that come later."""
        self.files += other.files
        self.moments.merge(other.moments)
        self.sample.merge(other.sample)
        return self


@dataclass
class Counts:
    """Numbers that add up.

    Attributes:
        files: that were looked at, broken ones included.
        bytes: of these files.
        sequences, tokens: that they hold.
        rows: states a slot.
        sampled_rows: that were looked at.
        sink_rows: of these, those that stand out, which are in no moment.
        bad_rows: of these, those with NaN or infinity, which are in none either.
        masked_tokens, mask_tokens: that a loss mask leaves out, of those that have one.
    """

    files: int = 0
    bytes: int = 0
    sequences: int = 0
    tokens: int = 0
    rows: int = 0
    sampled_rows: int = 0
    sink_rows: int = 0
    bad_rows: int = 0
    masked_tokens: int = 0
    mask_tokens: int = 0

    def merge(self, other: Counts) -> Counts:
        """Adds those of other files."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


@dataclass
class SetState:
    """All that is known of some files.

    Attributes:
        counts: of them.
        shortest, longest: tokens of a sequence; None without one.
        problems: by kind.
        layouts: by what files of one layout have in common, in the order in which they were met.
        other_layouts: files of layouts beyond ``MAX_LAYOUTS``.
        digests: of the token ids of every sequence, ``DIGEST_BYTES`` each, in pieces.
        places: int64 ``[N, 2]`` in pieces: the file's number in the list and the sequence's in the file.
        stamps: of every file, ``STAMP_BYTES`` each, in the order of the list: what changes when it is written again.
    """

    counts: Counts = field(default_factory=Counts)
    shortest: int | None = None
    longest: int | None = None
    problems: dict[str, Problem] = field(default_factory=dict)
    layouts: dict[LayoutKey, LayoutState] = field(default_factory=dict)
    other_layouts: int = 0
    digests: list[bytes] = field(default_factory=list)
    places: list[npt.NDArray[np.int64]] = field(default_factory=list)
    stamps: list[bytes] = field(default_factory=list)

    def add_file(self, look: FileLook, number: int, group: int) -> None:
        """Adds what was seen of one file.

        Args:
            look: at the file.
            number: of the file in the list.
            group: which random part of the files it belongs to.
        """
        self.counts.merge(look.counts)
        self.stamps.append(look.stamp)
        for kind, name, reason in look.problems:
            self.problems.setdefault(kind, Problem()).add(name, reason)
        if look.layout is None:
            return
        self._note_lengths(look.shortest, look.longest)
        if look.digests:
            self.digests.append(b"".join(digest for _, digest in look.digests))
            self.places.append(np.array([(number, sequence) for sequence, _ in look.digests], np.int64))
        layout = self._layout(look.layout, look.name)
        if layout is None:
            self.other_layouts += 1
            return
        layout.files += 1
        measured = look.measured
        if measured is not None:
            layout.moments.update(group, measured.sums, measured.least_SH, measured.greatest_SH)
            layout.sample.merge(measured.sample)

    def close_range(self, number: int) -> SetState:
        """Says that all files that were added are of one range; once, when the last one was."""
        for layout in self.layouts.values():
            layout.moments.close_range(number)
        # One piece each: a set has a million files.
        self.digests, self.places = [b"".join(self.digests)], [self.places_N2]
        return self

    def merge(self, other: SetState) -> SetState:
        """Adds files that come later in the list."""
        self.counts.merge(other.counts)
        self._note_lengths(other.shortest, other.longest)
        for kind, problem in other.problems.items():
            self.problems.setdefault(kind, Problem()).merge(problem)
        for key, layout in other.layouts.items():
            mine = self.layouts.get(key)
            if mine is not None:
                mine.merge(layout)
            elif len(self.layouts) < MAX_LAYOUTS:
                self.layouts[key] = layout
            else:
                self.other_layouts += layout.files
        self.other_layouts += other.other_layouts
        self.digests += other.digests
        self.places += other.places
        self.stamps += other.stamps
        return self

    @property
    def places_N2(self) -> npt.NDArray[np.int64]:
        """Of every sequence: the file's number in the list, and its own in the file."""
        return np.concatenate([np.zeros((0, 2), np.int64), *self.places])

    @property
    def digests_N(self) -> npt.NDArray[np.void]:
        """Of every sequence."""
        return np.frombuffer(b"".join(self.digests), np.dtype((np.void, DIGEST_BYTES)))

    def _layout(self, key: LayoutKey, example: str) -> LayoutState | None:
        if key not in self.layouts and len(self.layouts) < MAX_LAYOUTS:
            shape = _states_of(key), key.hidden_size
            self.layouts[key] = LayoutState(example, 0, SetMoments.zeros(*shape), RowSample(*shape))
        return self.layouts.get(key)

    def _note_lengths(self, shortest: int | None, longest: int | None) -> None:
        if shortest is not None and longest is not None:
            self.shortest = shortest if self.shortest is None else min(self.shortest, shortest)
            self.longest = longest if self.longest is None else max(self.longest, longest)


def _states_of(key: LayoutKey) -> int:
    """Slots, and the last state where it has a place of its own."""
    return key.slots + (key.last_state == "stored")
