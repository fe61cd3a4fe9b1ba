from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_parity.numerics.rows import (
    SINK_SHARE,
    different_token_errors,
    find_sinks,
    repeated_token_errors,
    row_errors,
    row_norms,
)


def test_errors_are_each_rows_own() -> None:
    expected = torch.tensor([[3.0, 4.0], [22_000.0, 0.0], [0.5, 0.0]])
    rows = expected + torch.tensor([[0.0, 0.5], [220.0, 0.0], [0.0, 0.5]])
    assert row_errors(rows, expected).tolist() == pytest.approx([0.1, 0.01, 1.0])


def test_zero_and_missing_rows() -> None:
    expected = torch.tensor([[0.0], [0.0], [math.nan], [1.0], [math.nan]])
    rows = torch.tensor([[0.0], [1.0], [1.0], [math.nan], [math.nan]])
    errors = row_errors(rows, expected)
    assert errors.dtype == torch.float64
    assert errors[:2].tolist() == [0.0, math.inf]
    assert errors[2:].isnan().all()  # a row that isn't there matches nothing


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_squares_of_sinks_do_not_overflow(dtype: torch.dtype) -> None:
    rows = torch.full((1, 7168), 22_000.0, dtype=dtype)
    assert float(row_norms(rows)) == pytest.approx(22_000 * math.sqrt(7168), rel=0.01)
    assert float(row_errors(rows, rows)) == 0


def test_a_small_difference_of_large_rows_is_kept() -> None:
    # What a flat float32 cosine over all elements can't see: it reads more than one there.
    generator = torch.Generator().manual_seed(0)
    expected = 1000 + torch.randn(64, 4096, generator=generator)
    rows = expected + 1e-3 * torch.randn(64, 4096, generator=generator)
    truth = (rows.double() - expected.double()).norm(dim=1) / expected.double().norm(dim=1)
    assert torch.allclose(row_errors(rows, expected), truth, rtol=1e-6)


def test_the_first_token_is_the_sink() -> None:
    norms = torch.tensor([900.0, 30.0, 31.0, 29.0, 60.0])
    assert find_sinks(norms).tolist() == [True, False, False, False, False]


@given(norms=st.lists(st.sampled_from([0.0, 1.0, 5.0, 1000.0, 22_000.0, math.inf, math.nan]), min_size=1, max_size=400))
@settings(deadline=None)
def test_sinks_are_few_finite_and_the_greatest(norms: list[float]) -> None:
    found_norms = torch.tensor(norms, dtype=torch.float64)
    sinks = find_sinks(found_norms)
    assert int(sinks.sum()) <= max(1, int(SINK_SHARE * len(norms)))
    assert found_norms[sinks].isfinite().all()
    rest = found_norms[~sinks & found_norms.isfinite()]
    if bool(sinks.any()) and len(rest):
        assert float(found_norms[sinks].min()) >= float(rest.max())


def test_all_nan_has_no_sinks() -> None:
    assert not find_sinks(torch.full((3,), math.nan)).any()


def test_repeated_and_different_tokens() -> None:
    ids = torch.tensor([7, 5, 7, 7, 9])
    table = {5: 1.0, 7: 2.0, 9: 4.0}
    rows = torch.tensor([[table[int(i)]] for i in ids])
    assert repeated_token_errors(rows, ids).tolist() == [0.0, 0.0]
    assert different_token_errors(rows, ids).tolist() == [1.0, 1.0]
    context = rows + torch.arange(5.0)[:, None]
    assert repeated_token_errors(context, ids).tolist() == [1.0, 0.25]
    assert repeated_token_errors(rows[:1], ids[:1]).tolist() == []
    assert different_token_errors(rows[:0], ids[:0]).tolist() == []
