"""Whether parts of a set are unlike each other: another producer, another wiring, another kind of text.

The mean of every dimension over a range of the files is held against that of all files, in units of the dimension's
deviation. How far chance takes it, random groups of the same files show: rows of one text are correlated, so that
neither the number of rows nor that of files says it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from eagle_parity.numerics.set_moments import GROUPS, RANGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.numerics.set_moments import Float64, Sums
    from eagle_parity.scan.set_state import LayoutState

MIN_FILES = 8
"""A range or a group of fewer files says little."""


class RangeDrift(msgspec.Struct, frozen=True, kw_only=True):
    """One range of the files against all of them.

    Attributes:
        first, last: the names of its first and last file.
        files, rows: of it, that were measured.
        distances: a state each, the root mean square over dimensions of the difference of means, in deviations.
        by_chance: a state each, how far a random part of so many rows is.
    """

    first: str
    last: str
    files: int
    rows: int
    distances: list[float]
    by_chance: list[float]


def measure_drift(layout: LayoutState, names: Sequence[str]) -> tuple[list[RangeDrift], str | None]:
    """Every range against the whole, or why that can't be told from chance.

    Args:
        layout: the files of one layout.
        names: of all files, as they were listed.
    """
    moments = layout.moments
    if moments is None:
        return [], "no row of it was measured"
    groups = [group for group in moments.groups if group.files >= MIN_FILES]
    ranges = {number: sums for number, sums in sorted(moments.ranges.items()) if sums.files >= MIN_FILES}
    if len(groups) < GROUPS // 2 or len(ranges) < 2:  # noqa: PLR2004  two to be unlike each other
        return [], f"{layout.files} files are too few to tell drift from chance: it takes {GROUPS * MIN_FILES}"
    total = moments.total()
    # Of one row, as if rows were independent: what groups of rows show, scaled to one.
    spread_S = np.mean([_distances(group, total) ** 2 * group.rows for group in groups], axis=0)
    found = []
    for number, sums in ranges.items():
        first, stop = len(names) * number // RANGES, len(names) * (number + 1) // RANGES
        found.append(
            RangeDrift(
                first=names[first],
                last=names[stop - 1],
                files=sums.files,
                rows=sums.rows,
                distances=[float(distance) for distance in _distances(sums, total)],
                by_chance=[float(distance) for distance in np.sqrt(spread_S / sums.rows)],
            )
        )
    return found, None


def _distances(part: Sums, total: Sums) -> Float64:
    """Of each state: the root mean square over the dimensions that vary at all."""
    variance_SH = total.variance_SH
    varies_SH = variance_SH > 0
    squares_SH = np.where(varies_SH, (part.mean_SH - total.mean_SH) ** 2 / np.where(varies_SH, variance_SH, 1.0), 0.0)
    distances_S: Float64 = np.sqrt(squares_SH.sum(1) / np.maximum(varies_SH.sum(1), 1))
    return distances_S
