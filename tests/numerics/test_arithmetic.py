"""The compiled loops against whole arrays in float64, and these against numpy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_parity.numerics.arithmetic import Arithmetic, Compared, Limits, Pairs, PairSums
from eagle_parity.numerics.choice import COMPILED_FROM_BYTES, choose_arithmetic
from eagle_parity.numerics.compiled import Compiled
from eagle_parity.numerics.histogram import EDGES, ErrorHistograms
from eagle_parity.numerics.loops.shapes import SUMS
from eagle_parity.numerics.moments import PairMoments
from eagle_parity.numerics.whole_arrays import WholeArrays

if TYPE_CHECKING:
    from collections.abc import Sequence

DTYPES = (torch.bfloat16, torch.float32, torch.float16, torch.float64)
WIDTHS = (1, 2, 3, 512, 515, 1030, 1031, 2050, 2051)
"""Under, at and over the tiles, and numbers that no vector divides; bfloat16 of an even one is taken two in a word."""


def states(count: int, rows: int, width: int, dtypes: list[torch.dtype], seed: int) -> list[torch.Tensor]:
    """Slots that lie side by side in one tensor, as packed shards have them, and one of its own for each dtype."""
    generator = torch.Generator().manual_seed(seed)
    packed = torch.randn(rows, count, width, generator=generator)
    packed[:, :, 0] *= 300  # a massive dimension
    return [packed.to(dtype)[:, place] for place, dtype in zip(range(count), dtypes, strict=False)]


@st.composite
def blocks(draw: st.DrawFn) -> list[torch.Tensor]:
    dtypes = draw(
        st.lists(st.sampled_from(DTYPES), min_size=2, max_size=5)
        | st.lists(st.just(torch.bfloat16), min_size=2, max_size=8)
    )
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
    found, expected = compiled.compare([block], Pairs(tuple(pairs))), WholeArrays().products(block, pairs)
    assert torch.allclose(found.squares_NT, expected.squares_NT, rtol=1e-6)
    assert found.errors_RT.shape == (len(pairs) + len(block), len(block[0]))
    assert torch.allclose(found.errors_RT[len(pairs) :], found.squares_NT.sqrt(), rtol=1e-14)
    for place, (left, right) in enumerate(pairs):
        scale_T = (expected.squares_NT[left] * expected.squares_NT[right]).sqrt()
        product_T = product(found, place, left, right)
        assert ((product_T - expected.products_PT[place]).abs() <= 1e-6 * scale_T).all()


def product(found: Compared, place: int, left: int, right: int) -> torch.Tensor:
    """The inner products that the errors of a pair come from."""
    squares_NT = found.squares_NT
    return (squares_NT[left] + squares_NT[right] - found.errors_RT[place] ** 2 * squares_NT[right]) / 2


@given(block=blocks(), choice=st.randoms(use_true_random=False), limit=st.sampled_from([0.5, 1.0, math.inf]))
@settings(deadline=None, max_examples=40)
def test_blocks(compiled: Compiled, block: list[torch.Tensor], choice: object, limit: float) -> None:
    """Errors of both kinds, which rows stand out, and the sums of those that don't."""
    places = range(len(block))
    by_products, subtracted = (
        tuple((a, b) for a in places for b in places if choice.random() < 0.4)  # type: ignore[attr-defined]
        for _ in range(2)
    )
    limits_N = limit * WholeArrays().compare([block], Pairs()).errors_RT.median(1).values[:-1]
    # Rows of three sequences, one of which has no limit.
    sequence_T = torch.arange(len(block[0])) % 3
    limits = Limits(torch.stack([limits_N, torch.full_like(limits_N, math.inf), 1.01 * limits_N]), sequence_T)
    outcomes = []
    for way in (compiled, WholeArrays()):
        sums = [PairSums.zeros(block[0].shape[1]) for _ in subtracted[:2]]
        outcomes.append((way.compare([block], Pairs(by_products, subtracted), limits, sums), sums))
    (found, found_sums), (expected, expected_sums) = outcomes
    check_errors_by_products(by_products, found, expected)
    assert torch.allclose(found.errors_RT[len(by_products) :], expected.errors_RT[len(by_products) :], rtol=1e-6)
    near_T = ((expected.squares_NT[:-1].sqrt() / limits.norms_SN.T[:, sequence_T] - 1).abs() < 1e-5).any(0)
    assert torch.equal(found.standing_T[~near_T], expected.standing_T[~near_T])
    if not near_T.any():
        assert found.added == expected.added
        for one, other in zip(found_sums, expected_sums, strict=True):
            assert ((one.sums_6D[2:4] - other.sums_6D[2:4]).abs() <= 1e-6 * other.sums_6D[2:4] + 1e-12).all()
            assert ((one.sums_6D[5] - other.sums_6D[5]).abs() <= 1e-6 * other.sums_6D[5] + 1e-12).all()
            assert torch.allclose(one.largest_D, other.largest_D, rtol=1e-6, atol=1e-6)


def check_errors_by_products(pairs: Sequence[tuple[int, int]], found: Compared, expected: Compared) -> None:
    """The squared distance is a difference, so it is as exact as what is subtracted.

    With |x|^2, |y|^2 and xy to 1e-6 each, |x|^2 + |y|^2 - 2xy is so to 2e-6 of |x|^2 + |y|^2, since 2|xy| is no more
    than that; and it is divided by |y|^2, which adds 1e-6 of the quotient.
    """
    for place, (subject, other) in enumerate(pairs):
        squares_NT = expected.squares_NT
        exact_T = expected.errors_RT[place] ** 2
        bound_T = 1e-6 * (2 * (squares_NT[subject] + squares_NT[other]) / squares_NT[other] + exact_T)
        assert ((found.errors_RT[place] ** 2 - exact_T).abs() <= bound_T).all()


@pytest.mark.parametrize("third", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("subjects", [1, 3, 4, 5, 6, 7])
def test_many_states_that_are_compared_with_few(compiled: Compiled, subjects: int, third: torch.dtype) -> None:
    """A reference's boundaries: some are squared with their products, and their dtypes may differ."""
    block = states(40, 9, 700, [third if place % 3 == 0 else torch.bfloat16 for place in range(40)], 0)
    by_products = tuple((subject, expected) for subject in range(subjects) for expected in range(3, 40))
    pairs = Pairs((*by_products, by_products[1]), ((0, 1), (7, 0)))  # one of them twice
    found, expected = compiled.compare([block], pairs), WholeArrays().compare([block], pairs)
    check_errors_by_products(pairs.by_products, found, expected)
    first = len(pairs.by_products)
    assert torch.allclose(found.errors_RT[first:], expected.errors_RT[first:], rtol=1e-6)


@given(block=blocks(), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=40)
def test_squared_differences(compiled: Compiled, block: list[torch.Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x_rows, y_rows = (torch.randint(0, len(block[0]), (17,), generator=generator) for _ in range(2))
    pairs = [(0, 1), (1, 1), (1, 0)]
    found_QT = compiled.squared_differences(block, pairs, x_rows, y_rows)
    assert torch.allclose(found_QT, WholeArrays().squared_differences(block, pairs, x_rows, y_rows), rtol=1e-6)
    assert (compiled.squared_differences(block, [(0, 0)], x_rows, x_rows) == 0).all()


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
    found = compiled.compare([[x, y, -y]], Pairs(((0, 2),)))  # not (0, 1): what is near is subtracted
    (xx,), (yy,), _ = found.squares_NT
    (xy,) = -product(found, 0, 0, 2)
    truth = float((x.double() * y.double()).sum() / ((x.double() ** 2).sum().sqrt() * (y.double() ** 2).sum().sqrt()))
    assert float(xy / (xx * yy).sqrt()) == pytest.approx(truth, abs=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_spoils_its_row_alone(compiled: Compiled, bad: float) -> None:
    x_TD = torch.ones(4, 600)
    x_TD[2, 599] = bad
    sums = PairSums.zeros(600)
    found = compiled.compare([[x_TD, torch.ones(4, 600)]], Pairs(((0, 1), (1, 0)), ((0, 1),)), sums=[sums])
    assert found.squares_NT[0].isfinite().tolist() == [True, True, False, True]
    assert found.errors_RT[:4].isnan().tolist() == [[False, False, True, False]] * 4
    assert found.added == [3]
    assert (sums.sums_6D[:5] == 3).all()
    assert (sums.sums_6D[5] == 0).all()
    rows = torch.arange(4)
    squared_T = compiled.squared_differences([x_TD], [(0, 0)], rows, rows)[0]
    assert squared_T.isfinite().tolist() == [True, True, False, True]


def test_numbers_whose_squares_overflow_float32_are_numbers(compiled: Compiled) -> None:
    x_TD = torch.full((2, 600), 3e38)
    block, pairs = [x_TD, x_TD / 2, -x_TD], Pairs(((0, 1), (2, 0)), ((1, 2),))
    sums, expected_sums = (PairSums.zeros(600) for _ in range(2))
    found = compiled.compare([block], pairs, sums=[sums])
    expected = WholeArrays().compare([block], pairs, sums=[expected_sums])
    assert torch.allclose(found.squares_NT, expected.squares_NT, rtol=1e-12)
    assert torch.allclose(found.errors_RT, expected.errors_RT, rtol=1e-12)
    assert found.added == expected.added == [2]
    assert torch.allclose(sums.sums_6D, expected_sums.sums_6D, rtol=1e-12)
    rows = torch.arange(2)
    assert compiled.squared_differences(block, [(0, 2)], rows, rows).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scale", [1e-12, 1e-18, 1e-22, 1e-30, 1e-37])
def test_numbers_whose_squares_vanish_in_float32_are_numbers(
    compiled: Compiled, dtype: torch.dtype, scale: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    x_TD = torch.randn(6, 600, generator=generator) * scale
    x_TD[3] = 0
    y_TD = x_TD * (1 + 0.05 * torch.randn(6, 600, generator=generator))
    block, pairs = [x_TD.to(dtype), y_TD.to(dtype), -x_TD.to(dtype)], Pairs(((0, 1), (2, 0)), ((1, 2),))
    sums, expected_sums = (PairSums.zeros(600) for _ in range(2))
    found = compiled.compare([block], pairs, sums=[sums])
    expected = WholeArrays().compare([block], pairs, sums=[expected_sums])
    assert torch.allclose(found.squares_NT, expected.squares_NT, rtol=1e-6, atol=0)
    # By products an error e is known to about 1e-7 / e; here e is 0.05.
    assert torch.allclose(found.errors_RT, expected.errors_RT, rtol=1e-7 / 0.05**2, atol=0)
    assert found.added == expected.added == [6]
    assert torch.allclose(sums.sums_6D[[2, 3, 5]], expected_sums.sums_6D[[2, 3, 5]], rtol=1e-6, atol=0)


def test_many_zero_rows_stay_compiled(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WholeArrays, "compare", None)
    zeros = [torch.zeros(500, 64, dtype=dtype) for dtype in (torch.bfloat16, torch.float32)]
    zeros[0][::2] = -0.0
    found = compiled.compare([zeros], Pairs(((0, 1),)))
    assert (found.squares_NT == 0).all()
    assert (found.errors_RT == 0).all()


@given(
    errors=st.lists(st.floats(0, allow_infinity=True) | st.just(float("nan")), max_size=60),
    near=st.lists(st.integers(0, len(EDGES) - 1), max_size=20),
)
@settings(deadline=None)
def test_bins(compiled: Compiled, errors: list[float], near: list[int]) -> None:
    """At the edges, beside them, and anywhere."""
    edges = EDGES[torch.tensor(near, dtype=torch.int64)]
    below = torch.nextafter(edges, torch.zeros_like(edges))
    zeros = torch.tensor([0.0, -0.0], dtype=torch.float64)
    errors_PT = torch.cat([torch.tensor(errors, dtype=torch.float64), edges, below, zeros])[None]
    found, expected = ErrorHistograms(1).update(errors_PT, None, compiled), ErrorHistograms(1).update(errors_PT)
    assert torch.equal(found.counts_PB, expected.counts_PB)


def test_choice() -> None:
    assert isinstance(choose_arithmetic(COMPILED_FROM_BYTES), Compiled)
    assert isinstance(choose_arithmetic(COMPILED_FROM_BYTES - 1), WholeArrays)
    assert isinstance(choose_arithmetic(COMPILED_FROM_BYTES, "meta"), WholeArrays)


@pytest.mark.parametrize(("value", "way"), [("1", WholeArrays), ("0", Compiled)])
def test_compiling_that_is_switched_off(monkeypatch: pytest.MonkeyPatch, value: str, way: type[Arithmetic]) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", value)
    assert isinstance(choose_arithmetic(COMPILED_FROM_BYTES), way)
