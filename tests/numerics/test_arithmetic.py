"""The compiled loops against whole arrays in float64, and these against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_parity.numerics.arithmetic import (
    COMPILED_FROM_BYTES,
    SUMS,
    Arithmetic,
    Compiled,
    PairSums,
    WholeArrays,
    choose_arithmetic,
)
from eagle_parity.numerics.histogram import EDGES, ErrorHistograms
from eagle_parity.numerics.moments import PairMoments

DTYPES = (torch.bfloat16, torch.float32, torch.float16, torch.float64)
WIDTHS = (1, 3, 512, 515, 1031)
"""Under, at and over the tile, and a number that no vector divides."""


def states(count: int, rows: int, width: int, dtypes: list[torch.dtype], seed: int) -> list[torch.Tensor]:
    """Slots that lie side by side in one tensor, as packed shards have them, and one of its own for each dtype."""
    generator = torch.Generator().manual_seed(seed)
    packed = torch.randn(rows, count, width, generator=generator)
    packed[:, :, 0] *= 300  # a massive dimension
    return [packed.to(dtype)[:, place] for place, dtype in zip(range(count), dtypes, strict=False)]


@st.composite
def blocks(draw: st.DrawFn) -> list[torch.Tensor]:
    dtypes = draw(st.lists(st.sampled_from(DTYPES), min_size=2, max_size=5))
    rows, width = draw(st.integers(1, 40)), draw(st.sampled_from(WIDTHS))
    return states(len(dtypes), rows, width, dtypes, draw(st.integers(0, 2**31)))


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return Compiled()


@given(block=blocks(), choice=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_products(compiled: Compiled, block: list[torch.Tensor], choice: object) -> None:
    places = range(len(block))
    pairs = [(a, b) for a in places for b in places if choice.random() < 0.6]  # type: ignore[attr-defined]
    found, expected = compiled.products(block, pairs), WholeArrays().products(block, pairs)
    assert torch.allclose(found.squares_NT, expected.squares_NT, rtol=1e-6)
    assert found.products_PT.shape == (len(pairs), len(block[0]))
    for (left, right), found_T, expected_T in zip(pairs, found.products_PT, expected.products_PT, strict=True):
        scale_T = (expected.squares_NT[left] * expected.squares_NT[right]).sqrt()
        assert ((found_T - expected_T).abs() <= 1e-6 * scale_T).all()


@given(block=blocks(), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=40)
def test_squared_differences(compiled: Compiled, block: list[torch.Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x_rows, y_rows = (torch.randint(0, len(block[0]), (17,), generator=generator) for _ in range(2))
    found_T = compiled.squared_differences(block[0], block[1], x_rows, y_rows)
    assert torch.allclose(found_T, WholeArrays().squared_differences(block[0], block[1], x_rows, y_rows), rtol=1e-6)
    same_T = compiled.squared_differences(block[0], block[0], x_rows, x_rows)
    assert (same_T == 0).all()


def pair_sums(arithmetic: Arithmetic, x_TD: torch.Tensor, y_TD: torch.Tensor, rows: torch.Tensor) -> PairSums:
    sums = PairSums.zeros(x_TD.shape[1])
    x_D, y_D = (state_TD[:3].double().mean(0).float().double() for state_TD in (x_TD, y_TD))
    sums = sums._replace(origin_x_D=x_D, origin_y_D=y_D)
    arithmetic.add_pair_sums(x_TD, y_TD, rows, sums)
    return sums


@given(block=blocks(), seed=st.integers(0, 2**31), count=st.integers(0, 700))
@settings(deadline=None, max_examples=40)
def test_pair_sums(compiled: Compiled, block: list[torch.Tensor], seed: int, count: int) -> None:
    rows = torch.randint(0, len(block[0]), (count,), generator=torch.Generator().manual_seed(seed))
    found = pair_sums(compiled, block[0], block[1], rows)
    expected = pair_sums(WholeArrays(), block[0], block[1], rows)
    # A float64 state is narrowed to float32 before.
    assert torch.allclose(found.largest_D, expected.largest_D, rtol=1e-6, atol=1e-6)
    magnitudes_6D = expected.sums_6D.abs()
    magnitudes_6D[0], magnitudes_6D[1] = (len(rows) * expected.sums_6D[2:4]).sqrt()
    magnitudes_6D[4] = (expected.sums_6D[2] * expected.sums_6D[3]).sqrt()
    assert ((found.sums_6D - expected.sums_6D).abs() <= 1e-6 * magnitudes_6D + 1e-12).all()
    assert len(found.sums_6D) == SUMS


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_statistics_agree_with_numpy(compiled: Compiled, dtype: torch.dtype) -> None:
    """To 1e-6, over many blocks, with dimensions that sit far from zero."""
    generator = torch.Generator().manual_seed(0)
    x_TD = (torch.randn(3000, 257, generator=generator) + 40 * torch.randn(257, generator=generator)).to(dtype)
    y_TD = (x_TD.float() * (1 + 0.01 * torch.randn(3000, 257, generator=generator))).to(dtype)
    moments = PairMoments(257)
    for low in range(0, 3000, 700):
        moments.add(compiled, x_TD, y_TD, torch.arange(low, min(low + 700, 3000)))
    found = moments.compute()
    x, y = x_TD.double().numpy(), y_TD.double().numpy()
    for mine, theirs in (
        (found.mean_x_D, x.mean(0)),
        (found.std_x_D, x.std(0)),
        (found.mean_y_D, y.mean(0)),
        (found.std_y_D, y.std(0)),
        (found.rms_difference_D, np.sqrt(((x - y) ** 2).mean(0))),
        (found.max_difference_D, np.abs(x - y).max(0)),
        (found.correlation_D, [np.corrcoef(x[:, d], y[:, d])[0, 1] for d in range(257)]),
    ):
        assert np.allclose(mine.numpy(), theirs, rtol=1e-6, atol=0)


def test_cosine_of_millions_of_numbers_is_no_more_than_one(compiled: Compiled) -> None:
    """A flat float32 cosine over as many reads 1.002."""
    x = torch.randn(1, 2048 * 6144, generator=torch.Generator().manual_seed(0)).bfloat16()
    y = (x.float() * 1.003).bfloat16()
    (xx,), (yy,) = compiled.products([x, y], []).squares_NT
    (xy,) = compiled.products([x, y], [(0, 1)]).products_PT[0]
    truth = float((x.double() * y.double()).sum() / ((x.double() ** 2).sum().sqrt() * (y.double() ** 2).sum().sqrt()))
    assert float(xy / (xx * yy).sqrt()) == pytest.approx(truth, abs=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_spoils_its_row_alone(compiled: Compiled, bad: float) -> None:
    x_TD = torch.ones(4, 600)
    x_TD[2, 599] = bad
    found = compiled.products([x_TD, torch.ones(4, 600)], [(0, 1)])
    assert found.squares_NT[0].isfinite().tolist() == [True, True, False, True]
    rows = torch.arange(4)
    assert compiled.squared_differences(x_TD, x_TD, rows, rows).isfinite().tolist() == [True, True, False, True]


def test_numbers_whose_squares_overflow_float32_are_numbers(compiled: Compiled) -> None:
    x_TD = torch.full((2, 600), 3e38)
    found = compiled.products([x_TD, x_TD / 2], [(0, 1)])
    expected = WholeArrays().products([x_TD, x_TD / 2], [(0, 1)])
    assert torch.allclose(found.squares_NT, expected.squares_NT, rtol=1e-12)
    assert torch.allclose(found.products_PT, expected.products_PT, rtol=1e-12)
    rows = torch.arange(2)
    assert compiled.squared_differences(x_TD, -x_TD, rows, rows).isfinite().all()


@given(
    errors=st.lists(st.floats(0, allow_infinity=True) | st.just(float("nan")), max_size=60),
    near=st.lists(st.integers(0, len(EDGES) - 1), max_size=20),
)
@settings(deadline=None)
def test_bins(compiled: Compiled, errors: list[float], near: list[int]) -> None:
    """At the edges, beside them, and anywhere."""
    edges = EDGES[torch.tensor(near, dtype=torch.int64)]
    below = torch.nextafter(edges, torch.zeros_like(edges))
    errors_PT = torch.cat([torch.tensor(errors, dtype=torch.float64), edges, below])[None]
    found, expected = ErrorHistograms(1).update(errors_PT, None, compiled), ErrorHistograms(1).update(errors_PT)
    assert torch.equal(found.counts_PB, expected.counts_PB)


def test_choice() -> None:
    assert isinstance(choose_arithmetic(COMPILED_FROM_BYTES), Compiled)
    assert isinstance(choose_arithmetic(COMPILED_FROM_BYTES - 1), WholeArrays)
    assert isinstance(choose_arithmetic(COMPILED_FROM_BYTES, "meta"), WholeArrays)
