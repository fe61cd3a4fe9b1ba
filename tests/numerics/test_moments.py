from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eagle_parity.numerics.moments import PairMoments

if TYPE_CHECKING:
    from eagle_parity.numerics.moments import DimensionStatistics

WIDTH = 5


@st.composite
def states(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two sides, rows on top of each other: ordinary, far from zero and hardly moving, with outliers, constant."""
    rows = draw(st.integers(1, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, WIDTH)) * np.array([1, 0.01, 5, 1e-6, 0])
    x += np.array([0, 1000, 0, 3, 0.1])
    x[rng.random(rows) < 0.1, 2] = 22_000
    noise = draw(arrays(np.float64, (rows, WIDTH), elements=st.floats(-1, 1)))
    return x.astype(np.float32), (x + noise * draw(st.sampled_from([0, 1e-3, 1]))).astype(np.float32)


def close(actual: torch.Tensor, expected: np.ndarray[Any, Any], scale: np.ndarray[Any, Any]) -> None:
    """To 1e-9 of the expected value; beyond what float64 can resolve at the data's own scale nothing is asked."""
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9, atol=float(1e-13 * scale.max()))


def check(found: DimensionStatistics, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
    x, y = x.astype(np.float64), y.astype(np.float64)
    scale_x, scale_y = np.abs(x), np.abs(y)
    for dimension in range(x.shape[1]):
        one, two = x[:, dimension], y[:, dimension]
        close(found.mean_x_D[dimension], one.mean(), scale_x[:, dimension])
        close(found.mean_y_D[dimension], two.mean(), scale_y[:, dimension])
        close(found.std_x_D[dimension], one.std(), scale_x[:, dimension])
        close(found.std_y_D[dimension], two.std(), scale_y[:, dimension])
        difference = np.abs(one - two)
        close(found.max_difference_D[dimension], difference.max(), difference)
        close(found.rms_difference_D[dimension], np.sqrt((difference**2).mean()), difference)
        if np.unique(one).size == 1 or np.unique(two).size == 1:
            assert found.correlation_D[dimension] == 0
        else:
            expected = np.corrcoef(one, two)[0, 1]
            # Rounding counts against the spread: at 1,000, moving by 0.01, ten digits are left.
            spread = scale_x[:, dimension].max() / one.std() + scale_y[:, dimension].max() / two.std()
            assert abs(float(found.correlation_D[dimension]) - expected) <= 1e-9 + 1e-14 * spread**2


@given(pair=states(), cuts=st.lists(st.integers(0, 40), max_size=4), shuffle=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_any_split_order_and_merge_equals_one_pass_of_numpy(pair: Any, cuts: list[int], shuffle: Any) -> None:
    x, y = pair
    edges = sorted({0, len(x), *(min(cut, len(x)) for cut in cuts)})
    parts = list(pairwise(edges))
    shuffle.shuffle(parts)
    updated = PairMoments(WIDTH)
    merged = PairMoments(WIDTH)
    for low, high in parts:
        block = torch.from_numpy(x[low:high]), torch.from_numpy(y[low:high])
        updated.update(*block)
        merged.merge(PairMoments(WIDTH).update(*block))
    check(updated.compute(), x, y)
    check(merged.compute(), x, y)


def test_the_variance_survives_a_huge_offset_and_an_outlier_in_the_first_block() -> None:
    rng = np.random.default_rng(1)
    x = (1000 + 0.01 * rng.standard_normal((20_000, 1))).astype(np.float32)
    x[0] = 22_000
    y = x + np.float32(0.5)
    moments = PairMoments(1)
    for low in range(0, len(x), 1):
        moments.update(torch.from_numpy(x[low : low + 1]), torch.from_numpy(y[low : low + 1]))
        if low == 50:  # the rest at once: a block a row is for the first rows only
            moments.update(torch.from_numpy(x[51:]), torch.from_numpy(y[51:]))
            break
    check(moments.compute(), x, y)


def test_a_merge_leaves_the_other_state_as_it_was() -> None:
    rows = torch.tensor([[1.0], [2.0], [4.0]])
    one, two = PairMoments(1), PairMoments(1).update(rows, rows + 1)
    one.merge(two)
    one.update(rows * 10, rows)
    assert two.compute().mean_x_D.item() == pytest.approx(7 / 3)
    assert two.compute().rows == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_every_float_dtype_is_summed_in_float64(dtype: torch.dtype) -> None:
    rows = torch.full((4096, 2), 256.0, dtype=dtype)  # a bfloat16 or float16 sum of these would stand still or overflow
    statistics = PairMoments(2).update(rows, rows).compute()
    assert statistics.mean_x_D.dtype == torch.float64
    assert statistics.mean_x_D.tolist() == [256.0, 256.0]


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="one shape"):
        PairMoments(2).update(torch.zeros(3, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="no rows"):
        PairMoments(2).update(torch.zeros(0, 2), torch.zeros(0, 2)).compute()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_whose_sum_leaves_float32(dtype: torch.dtype) -> None:
    """Of 32 rows of 2e37 the sum does, and their mean, around which sums are taken, doesn't."""
    rows = torch.full((40, WIDTH), 2e37).to(dtype)
    found = PairMoments(WIDTH).update(rows, rows / 2).compute()
    assert torch.allclose(found.mean_x_D, rows[0].double(), rtol=1e-12)
    assert (found.std_x_D < 1e30).all()
