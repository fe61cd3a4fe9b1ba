"""Moments of a set: right against float64, and mergeable in any split."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eagle_parity.numerics.set_moments import GROUPS, SetMoments, Sums


def sums_of(rows_NSH: np.ndarray) -> Sums:
    wide = rows_NSH.astype(np.float64)
    return Sums(np.stack([wide.sum(0), (wide * wide).sum(0)]), 1, len(rows_NSH))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, GROUPS - 1), st.integers(0, 3)), min_size=1, max_size=12))
def test_any_split_gives_the_same(files: list[tuple[int, int, int]]) -> None:
    generator = np.random.default_rng(len(files))
    rows = [generator.integers(-50, 50, (count, 2, 3)).astype(np.float32) for count, _, _ in files]  # exact sums
    whole = SetMoments.zeros(2, 3)
    parts = []
    for (_, group, number), block in zip(files, rows, strict=True):
        part = SetMoments.zeros(2, 3)
        for moments in (whole, part):
            moments.update(group, sums_of(block), block.min(0), block.max(0))
        part.close_range(number)
        parts.append(part)
    merged = SetMoments.zeros(2, 3)
    for part in reversed(parts):
        merged.merge(part)
    everything = np.concatenate(rows).astype(np.float64)
    for moments in (whole, merged):
        total = moments.total()
        assert total.rows == len(everything)
        assert total.files == len(files)
        assert np.allclose(total.mean_SH, everything.mean(0), rtol=1e-12)
        assert np.allclose(total.variance_SH, everything.var(0), rtol=1e-9, atol=1e-9)
        assert np.array_equal(moments.least_SH, everything.min(0))
        assert np.array_equal(moments.greatest_SH, everything.max(0))
    assert np.array_equal(merged.total().sums_2SH, whole.total().sums_2SH)
    assert sum(sums.rows for sums in merged.ranges.values()) == len(everything)
    assert set(merged.ranges) == {number for _, _, number in files}


def test_merging_leaves_the_other_alone() -> None:
    part = SetMoments.zeros(1, 2)
    part.update(3, sums_of(np.ones((2, 1, 2), np.float32)), np.ones((1, 2), np.float32), np.ones((1, 2), np.float32))
    part.close_range(5)
    first = SetMoments.zeros(1, 2).merge(part).merge(part)
    assert first.ranges[5].rows == 4
    assert part.ranges[5].rows == 2
    assert np.array_equal(part.ranges[5].sums_2SH, np.full((2, 1, 2), 2.0))
