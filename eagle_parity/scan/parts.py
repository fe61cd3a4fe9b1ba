"""The work on a set in parts, whose borders depend on the list of files alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.numerics.set_moments import GROUPS, RANGES
from eagle_parity.scan.set_state import SetState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eagle_parity.scan.shards import Shards

PART_FILES = 128
"""At most. What a part finds is sent once for all of them: 9 MB for four states of 1,536 dimensions, 37 of 7,168."""


@dataclass(frozen=True)
class Part:
    """Some consecutive files.

    Attributes:
        number: of the part.
        range: which of ``RANGES`` ranges of the list it is in.
        first: the number of its first file in the list.
        names: of its files.
    """

    number: int
    range: int
    first: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class PartWork:
    """What is done with a part; it goes to other processes.

    Attributes:
        shards: the set.
        rows: of each sequence that are looked at; None for all.
    """

    shards: Shards
    rows: int | None

    def __call__(self, part: Part) -> SetState:
        """Looks at every file of a part."""
        from eagle_parity.scan.look import look_at_file, seed_of

        state = SetState()
        for number, name in enumerate(part.names, part.first):
            state.add_file(look_at_file(self.shards, name, rows=self.rows), number, seed_of(name) % GROUPS)
        return state.close_range(part.range)


def split(names: Sequence[str]) -> Iterator[Part]:
    """Ranges of about equal numbers of files, each in parts."""
    number = 0
    borders = [len(names) * place // RANGES for place in range(RANGES + 1)]
    for place in range(RANGES):
        for first in range(borders[place], borders[place + 1], PART_FILES):
            stop = min(first + PART_FILES, borders[place + 1])
            yield Part(number, place, first, tuple(names[first:stop]))
            number += 1
