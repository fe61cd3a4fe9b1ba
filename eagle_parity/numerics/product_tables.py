"""Which inner products are computed together, so that each number is loaded once for several of them.

A table is the products of two states (the right ones) with four others. Shape letters: N states, P pairs, K tables.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    import torch


class Tables(NamedTuple):
    """How products are computed together; see ``loops.block.compare_block``."""

    staged_N: npt.NDArray[np.bool_]
    rights_2K: npt.NDArray[np.int64]
    lefts_4K: npt.NDArray[np.int64]
    outs_8K: npt.NDArray[np.int64]
    squared_by_N: npt.NDArray[np.int64]
    products_2P: npt.NDArray[np.int64]


class _Table(NamedTuple):
    """Two right states, four left ones, and the pair that each product belongs to."""

    rights: list[int]
    lefts: list[int]
    outs: list[int]


_STAGED_STATES = 12
"""So many states' tiles fit into the first-level cache; of more only those are widened beforehand that are subjects."""


def arrange(pairs: Sequence[tuple[int, int]], dtypes: Sequence[torch.dtype], rights: int, lefts: int) -> Tables:
    """The tables in which all pairs are.

    Args:
        pairs: the subject and what is expected, by their places.
        dtypes: of the states, as the loops take them.
        rights: how many of them a table has on one side.
        lefts: how many on the other.
    """
    import numpy as np

    states = len(dtypes)
    subjects = {subject for subject, _ in pairs}
    if states <= _STAGED_STATES:
        staged = [True] * states
        tables = _covering(pairs, states, rights, lefts)
    else:
        staged = [state in subjects for state in range(states)]
        tables = _by_subjects(
            pairs, ["staged" if state in subjects else dtypes[state] for state in range(states)], rights, lefts
        )

    def columns(part: int, width: int) -> npt.NDArray[np.int64]:
        return np.array([table[part] for table in tables], np.int64).reshape(len(tables), width).T.copy()

    return Tables(
        np.array(staged),
        columns(0, rights),
        columns(1, lefts),
        columns(2, rights * lefts),
        np.array(_squared_by(tables, staged), np.int64),
        np.array(pairs, np.int64).reshape(-1, 2).T.copy(),
    )


def _squared_by(tables: Sequence[_Table], staged: Sequence[bool]) -> list[int]:
    """The first table without a fourth left state that each state is on the right of, unless it is staged; or -1."""
    states = len(staged)
    found = [-1] * states
    for number, table in enumerate(tables):
        for state in table.rights:
            if table.lefts[-1] == states and not staged[state] and found[state] < 0:
                found[state] = number
    return found


def _covering(pairs: Sequence[tuple[int, int]], states: int, rights: int, lefts: int) -> list[_Table]:
    """Tables of whichever states have the most products left, one after the other: of few states, all of them staged.

    A product is the same whichever of the two is the subject, so either may be on the right.
    """
    left: dict[frozenset[int], list[int]] = {}
    for number, pair in enumerate(pairs):
        left.setdefault(frozenset(pair), []).append(number)
    tables = []
    while left:
        choices = (
            (chosen, _best_row(left, chosen, states, lefts))
            for chosen in combinations(range(max(states, rights)), rights)
        )
        chosen, row = max(choices, key=lambda choice: len(_edges(left, *choice)))
        outs = []
        for right in chosen:
            for state in row + [states] * (lefts - len(row)):
                edge = frozenset((right, state))
                outs.append(left[edge].pop() if left.get(edge) else len(pairs))
        left = {edge: numbers for edge, numbers in left.items() if numbers}
        existing = [right if right < states else chosen[0] for right in chosen]
        tables.append(_Table(existing, row + [states] * (lefts - len(row)), outs))
    return tables


def _best_row(left: Mapping[frozenset[int], object], chosen: Sequence[int], states: int, lefts: int) -> list[int]:
    """The left states that have the most products with these right ones."""
    gains = {state: sum(frozenset((right, state)) in left for right in chosen) for state in range(states)}
    # Those that are right ones themselves last: the product of two of them would be counted twice.
    ordered = sorted(
        (state for state in gains if gains[state]), key=lambda state: (state in chosen, -gains[state], state)
    )
    return ordered[:lefts]


def _edges(left: Mapping[frozenset[int], object], chosen: Sequence[int], row: Sequence[int]) -> set[frozenset[int]]:
    return {frozenset((right, state)) for right in chosen for state in row} & left.keys()


def _by_subjects(pairs: Sequence[tuple[int, int]], kinds: Sequence[object], rights: int, lefts: int) -> list[_Table]:
    """Tables of expected states with subjects: of many states, of which the subjects alone are staged.

    Args:
        pairs: of which products are wanted.
        kinds: of each state; those on the right of a table are of one.
        rights: how many of these a table has.
        lefts: how many subjects.
    """
    states = len(kinds)
    place: dict[tuple[int, int], int] = {}
    twice: list[int] = []
    for number, pair in enumerate(pairs):
        if place.setdefault(pair, number) != number:
            twice.append(number)
    subjects = {subject for subject, _ in pairs}
    alike: dict[object, list[int]] = {}
    for state in sorted({expected for _, expected in pairs}):
        alike.setdefault(kinds[state], []).append(state)
    tables = []
    for group in alike.values():
        for first in range(0, len(group), rights):
            expected = group[first : first + rights]
            expected += expected[-1:] * (rights - len(expected))
            wanted = sorted({subject for subject in subjects if any((subject, state) in place for state in expected)})
            # Evenly: two tables of three take less than one of four and one of two.
            parts = -(-len(wanted) // lefts)
            for part in range(parts):
                row = wanted[part * len(wanted) // parts : (part + 1) * len(wanted) // parts]
                row += [states] * (lefts - len(row))
                # Where a state is there twice, its products are computed twice and kept once.
                kept = {n for n, state in enumerate(expected) if state not in expected[:n]}
                outs = [
                    place.get((subject, state), len(pairs)) if n in kept else len(pairs)
                    for n, state in enumerate(expected)
                    for subject in row
                ]
                tables.append(_Table(expected, row, outs))
    for number in twice:
        subject, other = pairs[number]
        nothing = [len(pairs)] * (rights * lefts - 1)
        tables.append(_Table([other] * rights, [subject, *[states] * (lefts - 1)], [number, *nothing]))
    return tables
