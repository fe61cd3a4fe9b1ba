"""A sample of rows: the same for any split, order and merge, and quantiles within their bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_parity.numerics.row_sample import RowSample, priorities_of

SEQUENCES = st.lists(st.integers(0, 40), min_size=1, max_size=12)


def rows_of(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 2, 3)).astype(np.float32)


def offer(sample: RowSample, seed: int, count: int) -> None:
    """As a scan does: what can't get in any more isn't offered."""
    priorities, rows = priorities_of(seed, np.arange(count)), rows_of(seed, count)
    wanted = sample.wanted(priorities)
    sample.update(priorities[wanted], rows[wanted], seen=count)


@given(SEQUENCES, st.randoms(use_true_random=False), st.integers(1, 20))
def test_any_order_and_split_give_the_same_sample(lengths: list[int], random, capacity: int) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    whole = RowSample(2, 3, capacity)
    for seed, length in enumerate(lengths):
        offer(whole, seed, length)
    order = list(enumerate(lengths))
    random.shuffle(order)
    parts = [RowSample(2, 3, capacity) for _ in range(3)]
    for seed, length in order:
        offer(random.choice(parts), seed, length)
    random.shuffle(parts)
    merged = parts[0].merge(parts[1]).merge(parts[2])
    assert np.array_equal(merged.priorities_N, whole.priorities_N)
    assert np.array_equal(merged.rows_NSH, whole.rows_NSH)
    assert merged.seen == whole.seen == sum(lengths)


def test_the_lowest_priorities_are_kept() -> None:
    sample = RowSample(2, 3, 10)
    for seed in range(50):
        offer(sample, seed, 20)
    everything = np.concatenate([priorities_of(seed, np.arange(20)) for seed in range(50)])
    assert sample.priorities_N.tolist() == sorted(everything.tolist())[:10]


def test_priorities_are_all_different_and_spread() -> None:
    values = np.concatenate([priorities_of(seed, np.arange(1000)) for seed in (0, 1, 2**63)])
    assert len(np.unique(values)) == len(values)
    shares = values / 2.0**64
    assert abs(shares.mean() - 0.5) < 0.02
    assert np.histogram(shares, 10, (0, 1))[0].min() > 250


@pytest.mark.parametrize("distribution", ["normal", "lognormal", "two lumps"])
def test_quantiles_are_within_their_bound(distribution: str) -> None:
    """The bound is for one dimension and one in a hundred: of 600 dimensions a few may be beyond, not many."""
    generator = np.random.default_rng(7)
    shape = (20_000, 1, 600)
    values = {
        "normal": lambda: generator.normal(size=shape),
        "lognormal": lambda: generator.lognormal(sigma=2, size=shape),
        "two lumps": lambda: generator.normal(size=shape) + 10 * generator.integers(0, 2, shape),
    }[distribution]().astype(np.float32)
    sample = RowSample(1, 600)
    for seed in range(20):
        sample.update(priorities_of(seed, np.arange(1000)), values[seed * 1000 : (seed + 1) * 1000], seen=1000)
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    found = sample.quantiles(shares)[:, 0]
    ranks = (values[:, 0, None, :] <= found[None]).mean(0)
    worst = np.abs(ranks - shares[:, None]).max(0)
    bound = sample.rank_error(0.01)
    assert 0.09 < bound < 0.11
    assert (worst > bound).mean() <= 0.01
    assert worst.mean() > 0.01  # it is a sample: a bound that is never near would be another one


def test_everything_kept_is_exact() -> None:
    sample = RowSample(2, 3)
    offer(sample, 3, 11)
    assert sample.rank_error() == 0
    assert np.array_equal(sample.quantiles([0.5])[0], np.quantile(rows_of(3, 11), 0.5, axis=0, method="inverted_cdf"))
    assert np.isnan(RowSample(2, 3).quantiles([0.5])).all()
