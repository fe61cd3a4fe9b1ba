"""Which inner products are computed together, so that each number is loaded once for several of them.

A table is the products of two states (the right ones) with four others (the left ones), or with three, and then with
each other and with themselves as well. Shape letters: N states, P pairs, K tables.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from eagle_parity.numerics.loops.shapes import LEFTS, PRODUCTS, RIGHTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    import numpy.typing as npt


class Tables(NamedTuple):
    """How products are computed together; see ``loops.block.compare_block``."""

    rights_2K: npt.NDArray[np.int64]
    lefts_4K: npt.NDArray[np.int64]
    outs_9K: npt.NDArray[np.int64]
    squared_by_N: npt.NDArray[np.int64]
    products_2P: npt.NDArray[np.int64]


class _Table(NamedTuple):
    """Two right states, and three or four left ones."""

    rights: tuple[int, int]
    lefts: tuple[int, ...]

    @property
    def is_of_three(self) -> bool:
        return len(self.lefts) < LEFTS

    def edges(self) -> set[tuple[int, int]]:
        """Of which states it has the product, the lesser one first."""
        edges = {(min(right, left), max(right, left)) for right in self.rights for left in self.lefts}
        return edges | {(min(self.rights), max(self.rights))} if self.is_of_three else edges

    def squared(self) -> set[int]:
        """Which states it squares on its way."""
        return set(self.rights) if self.is_of_three else set()


_FEW_STATES = 12
"""Of so many states all tables are tried."""
_TABLE, _SQUARE = 33, 5
"""Instructions for sixteen bfloat16 numbers of each state: a table's, and those of a square by itself."""
_SQUARES_WORTH = (0.0, 0.5, 1.0)
"""What a square may be worth beside a product when a table is chosen; which is best depends on those that follow."""


def arrange(pairs: Sequence[tuple[int, int]], states: int) -> Tables:
    """The tables in which all pairs are.

    Args:
        pairs: the subject and what is expected, by their places. A pair may be there twice.
        states: N.
    """
    import numpy as np

    if states <= _FEW_STATES:
        tables = min(
            (_covering(pairs, states, worth) for worth in _SQUARES_WORTH), key=lambda each: _cost(each, states)
        )
    else:
        tables = _by_expected(pairs)
    waiting: dict[tuple[int, int], list[int]] = {}
    for number in reversed(range(len(pairs))):
        waiting.setdefault((min(pairs[number]), max(pairs[number])), []).append(number)
    nowhere = len(pairs)

    def place(one: int, other: int) -> int:
        numbers = waiting.get((min(one, other), max(one, other)))
        return numbers.pop() if numbers else nowhere

    kept: list[_Table] = []
    outs, squared_by = [], [-1] * states
    for table in tables:
        row: list[int] = []
        for right in table.rights:
            row += [place(right, left) for left in table.lefts] + [nowhere] * (LEFTS - len(table.lefts))
        row.append(place(*table.rights) if table.is_of_three else nowhere)
        if row.count(nowhere) == PRODUCTS:
            continue  # another one has them all already
        for state in table.squared():
            squared_by[state] = len(kept) if squared_by[state] < 0 else squared_by[state]
        kept.append(table)
        outs.append(row)

    def columns(rows: Sequence[Sequence[int]], width: int) -> npt.NDArray[np.int64]:
        return np.array(rows, np.int64).reshape(len(rows), width).T.copy()

    return Tables(
        columns([table.rights for table in kept], RIGHTS),
        columns([table.lefts + (states,) * (LEFTS - len(table.lefts)) for table in kept], LEFTS),
        columns(outs, PRODUCTS),
        np.array(squared_by, np.int64),
        np.array(pairs, np.int64).reshape(-1, 2).T.copy(),
    )


def _cost(tables: Collection[_Table], states: int) -> int:
    squared: set[int] = set().union(*(table.squared() for table in tables))
    return _TABLE * len(tables) + _SQUARE * (states - len(squared))


def _covering(pairs: Sequence[tuple[int, int]], states: int, worth: float) -> list[_Table]:
    """Of few states: one after the other, the tables that have most of what is left.

    A product is the same whichever of the two is the subject, so either may be on the right.
    """
    left = Counter((min(pair), max(pair)) for pair in pairs)
    choices = [
        (one, other, lefts)
        for one, other in (combinations(range(states), RIGHTS) if states >= RIGHTS else [(0, 0)])
        for lefts in (LEFTS - 1, LEFTS)
    ]
    squared: set[int] = set()
    tables = []
    while left:
        with_N: list[set[int]] = [set() for _ in range(states)]
        for one, other in left:
            with_N[one].add(other)
            with_N[other].add(one)

        one, other, lefts = best = max(choices, key=lambda each: _gain(with_N, each, worth, squared))
        twice, once = _lefts(with_N, best)
        table = _Table((one, other), _filled([*sorted(twice), *sorted(once)][:lefts], lefts, one))
        left -= Counter(table.edges())
        squared |= table.squared()
        tables.append(table)
    return tables


def _gain(with_N: Sequence[set[int]], choice: tuple[int, int, int], worth: float, squared: set[int]) -> float:
    """How many products that are left a table has, and squares by what they are worth."""
    one, other, lefts = choice
    twice, once = _lefts(with_N, choice)
    found = 2 * min(len(twice), lefts) + max(0, min(len(once), lefts - len(twice)))
    return found if lefts == LEFTS else found + (other in with_N[one]) + worth * len({one, other} - squared)


def _lefts(with_N: Sequence[set[int]], choice: tuple[int, int, int]) -> tuple[set[int], set[int]]:
    """Which states have a product that is left with both right ones, and which with one of them."""
    one, other, lefts = choice
    rights = {one, other}
    twice, once = (with_N[one] & with_N[other]) - rights, (with_N[one] ^ with_N[other]) - rights
    once |= {right for right in rights if right in with_N[right]}
    if lefts == LEFTS and other in with_N[one]:
        once.add(other)  # a table of three has it anyway
    return twice, once


def _by_expected(pairs: Sequence[tuple[int, int]]) -> list[_Table]:
    """Of many states: two expected ones at a time with all their subjects."""
    subjects_of: dict[int, list[int]] = {}
    for subject, expected in pairs:
        subjects_of.setdefault(expected, []).append(subject)
    ordered = sorted(subjects_of)
    tables = []
    for place in range(0, len(ordered), RIGHTS):
        one, other = ordered[place], ordered[min(place + 1, len(ordered) - 1)]
        subjects = _as_often(subjects_of[one], subjects_of[other] if other != one else [])
        # Evenly: two tables of three take less than one of four and one of two.
        parts = -(-len(subjects) // LEFTS)
        for part in range(parts):
            some = subjects[part * len(subjects) // parts : (part + 1) * len(subjects) // parts]
            tables.append(_Table((one, other), _filled(some, max(len(some), LEFTS - 1), one)))
    return tables


def _as_often(some: Sequence[int], others: Sequence[int]) -> list[int]:
    """Each as often as it is in the one in which it is there more often."""
    return sorted(state for state in {*some, *others} for _ in range(max(some.count(state), others.count(state))))


def _filled(lefts: Sequence[int], width: int, filling: int) -> tuple[int, ...]:
    return (*lefts, *[filling] * (width - len(lefts)))
