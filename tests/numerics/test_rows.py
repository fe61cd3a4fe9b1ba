from __future__ import annotations

import math

import pytest
import torch

from eagle_parity.numerics.rows import row_errors, row_norms, token_neighbours


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


def test_neighbours_are_of_one_token_or_not() -> None:
    ids = torch.tensor([7, 5, 7, 7, 9])
    first, second, same = token_neighbours(ids, torch.zeros_like(ids))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(1, 0), (0, 2), (2, 3), (3, 4)]
    assert same.tolist() == [False, True, True, False]
    for few in (ids[:1], ids[:0]):
        assert [len(each) for each in token_neighbours(few, torch.zeros_like(few))] == [0, 0, 0]
