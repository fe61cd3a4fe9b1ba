"""Whether parts of a set are unlike each other: another kind of text, another producer, another layer.

The means of two parts of the files are held against each other, dimension by dimension, in units of the dimension's
deviation. How far chance takes them apart, random groups of the same files show: rows of one text are correlated, so
that neither the number of rows nor that of files says it.

Two kinds of parts are looked at: each of ``RANGES`` consecutive ranges against the rest, and what stands before a
border of ranges against what stands behind it. The first finds a part that is unlike, the second a change in the midst.

Shape letters: S states, H hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from eagle_parity.numerics.set_moments import GROUPS, RANGES, Sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eagle_parity.numerics.set_moments import Float64
    from eagle_parity.scan.set_state import LayoutState

MIN_FILES = 8
"""A range or a group of fewer files says little."""
LEAST_FILES = 160
"""Dealt into ``GROUPS`` by a digest, at least half of these get ``MIN_FILES``: so it was in each of 4,000 draws."""


class PartDrift(msgspec.Struct, frozen=True, kw_only=True):
    """Some consecutive files against all others.

    Attributes:
        first, last: the names of the first and the last one.
        files, rows: of them, that were measured.
        to_the_end: whether they are all from some border on, and not one range.
        distances: a state each, the root mean square over dimensions of the difference of means, in deviations.
        by_chance: a state each, how far apart random parts of so many rows are.
    """

    first: str
    last: str
    files: int
    rows: int
    to_the_end: bool
    distances: list[float]
    by_chance: list[float]


def measure_drift(layout: LayoutState, names: Sequence[str]) -> tuple[list[PartDrift], str | None]:
    """Every range, and everything behind every border, or why that can't be told from chance.

    Args:
        layout: the files of one layout.
        names: of all files, as they were listed.
    """
    moments = layout.moments
    groups = [group for group in moments.groups if group.files >= MIN_FILES]
    ranges = {number: sums for number, sums in sorted(moments.ranges.items()) if sums.files >= MIN_FILES}
    if layout.files < LEAST_FILES or len(groups) < GROUPS // 2 or len(ranges) < 2:  # noqa: PLR2004  two to be unlike
        return [], f"{layout.files} files are too few to tell drift from chance: it takes {LEAST_FILES}"
    total = _merged(ranges.values())
    variance_SH = total.variance_SH
    # What one row would be off by, if rows were independent: what groups of rows show, scaled to one.
    all_files = moments.total()
    spread_S = np.mean(
        [
            _distances(group, all_files, variance_SH) ** 2 / (1 / group.rows - 1 / all_files.rows)
            for group in groups
            if group.rows < all_files.rows
        ],
        axis=0,
    )

    def against(part: Sums, others: Sums, first: int, last: int, *, to_the_end: bool) -> PartDrift:
        chance_S = np.sqrt(spread_S * (1 / part.rows + 1 / others.rows))
        return PartDrift(
            first=names[len(names) * first // RANGES],
            last=names[len(names) * (last + 1) // RANGES - 1],
            files=part.files,
            rows=part.rows,
            to_the_end=to_the_end,
            distances=[float(distance) for distance in _distances(part, others, variance_SH)],
            by_chance=[float(distance) for distance in chance_S],
        )

    numbers = list(ranges)
    found = []
    for place, number in enumerate(numbers):
        others = [ranges[other] for other in numbers if other != number]
        found.append(against(ranges[number], _merged(others), number, number, to_the_end=False))
        if 0 < place < len(numbers) - 1:
            behind, before = ([ranges[n] for n in part] for part in (numbers[place:], numbers[:place]))
            found.append(against(_merged(behind), _merged(before), number, numbers[-1], to_the_end=True))
    return found, None


def _merged(parts: Iterable[Sums]) -> Sums:
    first, *others = parts
    merged = Sums(first.sums_2SH.copy(), first.files, first.rows)
    for part in others:
        merged.merge(part)
    return merged


def _distances(part: Sums, others: Sums, variance_SH: Float64) -> Float64:
    """Of each state: the root mean square over the dimensions that vary at all."""
    varies_SH = variance_SH > 0
    squares_SH = np.where(varies_SH, (part.mean_SH - others.mean_SH) ** 2 / np.where(varies_SH, variance_SH, 1.0), 0.0)
    distances_S: Float64 = np.sqrt(squares_SH.sum(1) / np.maximum(varies_SH.sum(1), 1))
    return distances_S
