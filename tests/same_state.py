"""Whether two states are the same, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eagle_parity.scan.executors import ThisProcess
from eagle_parity.scan.parts import PartWork, split
from eagle_parity.scan.set_state import SetState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eagle_parity.scan.executors import Executor
    from eagle_parity.scan.set_state import LayoutState
    from eagle_parity.scan.shards import Listing


def state_of(listing: Listing, executor: Executor | None = None, work: PartWork | None = None) -> SetState:
    """What is found of a set; ``work`` where it isn't the usual one."""
    parts = list(split(listing.names))
    found = (executor or ThisProcess()).run(work or PartWork(listing.shards, 64), parts)
    return added(found, parts)


def added(found: Iterator[tuple[object, SetState]], parts: Sequence[object]) -> SetState:
    state, order = SetState(), []
    for part, of_part in found:
        order.append(part)
        state.merge(of_part)
    assert order == list(parts)
    return state


def assert_same(one: SetState, other: SetState, *, stamps: bool = True) -> None:
    """Stamps are a storage's own."""
    assert (one.counts, one.problems) == (other.counts, other.problems)
    assert (one.shortest, one.longest) == (other.shortest, other.longest)
    if stamps:
        assert one.stamps == other.stamps
    assert np.array_equal(one.digests_N, other.digests_N)
    assert np.array_equal(one.places_N2, other.places_N2)
    assert list(one.layouts) == list(other.layouts)
    for mine, theirs in zip(one.layouts.values(), other.layouts.values(), strict=True):
        assert (mine.example, mine.files) == (theirs.example, theirs.files)
        for a, b in zip(numbers_of(mine), numbers_of(theirs), strict=True):
            assert np.array_equal(a, b)


def numbers_of(layout: LayoutState) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    moments, sample = layout.moments, layout.sample
    sums = [*moments.groups, *(moments.ranges[number] for number in sorted(moments.ranges))]
    return [
        np.array(sorted(moments.ranges)),
        np.array([(part.files, part.rows) for part in sums]),
        np.stack([part.sums_2SH for part in sums]),
        moments.least_SH,
        moments.greatest_SH,
        np.array([sample.seen]),
        sample.priorities_N,
        sample.rows_NSH,
    ]
