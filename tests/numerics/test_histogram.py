from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_parity.numerics.axis import LOWEST, RELATIVE_RESOLUTION, STEP_RATIO
from eagle_parity.numerics.histogram import ErrorHistograms

ERRORS = st.one_of(st.floats(1e-8, 1e8), st.sampled_from([0.0, math.inf, 1e-30, LOWEST]))


def expected_at(values: list[float], percent: int) -> float:
    """The smallest value that so many percent of the values don't exceed."""
    return float(np.quantile(np.array(values), percent / 100, method="inverted_cdf"))


@given(values=st.lists(ERRORS, min_size=1, max_size=300))
@settings(deadline=None, max_examples=100)
def test_quantiles_are_those_of_the_data_within_the_resolution(values: list[float]) -> None:
    found = ErrorHistograms(1).update(torch.tensor([values], dtype=torch.float64)).quantiles(0)
    assert found.count == len(values)
    for name, percent in (("median", 50), ("p90", 90), ("p99", 99)):
        expected = sorted(values)[-(-percent * len(values) // 100) - 1]
        actual = getattr(found, name)
        if expected < LOWEST:
            assert actual == 0
        else:
            assert actual == expected or actual == pytest.approx(expected, rel=RELATIVE_RESOLUTION)
    largest = max(values)
    assert found.largest >= largest * (1 - 1e-12) or largest < LOWEST
    assert found.largest <= largest * (1 + RELATIVE_RESOLUTION) * (1 + 1e-9) or largest < LOWEST


def test_against_numpy_on_many_values() -> None:
    values = np.exp(np.random.default_rng(0).normal(-4, 2, 9_999))
    found = ErrorHistograms(1).update(torch.from_numpy(values)[None]).quantiles(0)
    for actual, percent in ((found.median, 50), (found.p90, 90), (found.p99, 99)):
        assert actual == pytest.approx(expected_at(values.tolist(), percent), rel=RELATIVE_RESOLUTION)


def test_all_at_once_are_those_of_each() -> None:
    values = torch.tensor([[0.5, 2.0, math.inf], [math.nan] * 3, [0.0, 0.0, 1e-3]], dtype=torch.float64)
    found = ErrorHistograms(3).update(values).all_quantiles()
    for quantiles, row in zip(found, values, strict=True):
        alone = ErrorHistograms(1).update(row[None]).quantiles(0)
        assert repr(quantiles) == repr(alone)  # NaN is itself
    assert [quantiles.count for quantiles in found] == [3, 0, 3]
    assert found[0].largest == math.inf
    assert found[2].median == 0


@given(blocks=st.lists(st.lists(st.tuples(ERRORS, ERRORS), max_size=20), min_size=1, max_size=5))
@settings(deadline=None)
def test_merged_parts_are_exactly_one_pass(blocks: list[list[Any]]) -> None:
    whole = ErrorHistograms(2)
    merged = ErrorHistograms(2)
    for block in blocks:
        errors = torch.tensor(block, dtype=torch.float64).reshape(-1, 2).T
        whole.update(errors)
        merged.merge(ErrorHistograms(2).update(errors))
    assert torch.equal(whole.counts_PB, merged.counts_PB)


def test_nan_is_left_out_and_infinity_counted() -> None:
    found = ErrorHistograms(1).update(torch.tensor([[math.nan, 0.5, math.inf, math.nan]])).quantiles(0)
    assert found.count == 2
    assert found.median == pytest.approx(0.5, rel=RELATIVE_RESOLUTION)
    assert found.largest == math.inf


def test_nothing_is_no_number() -> None:
    nothing = ErrorHistograms(1).update(torch.full((1, 3), math.nan)).quantiles(0)
    assert nothing.count == 0
    assert math.isnan(nothing.median)


def test_the_survival_counts_every_value_once_in_its_step() -> None:
    values = [0.0, 0.1, 0.149, 0.151, 0.3, math.inf]
    steps = ErrorHistograms(1).update(torch.tensor([values], dtype=torch.float64)).survival(0)
    assert sum(count for _, count in steps) == len(values)
    assert steps[0] == (0.0, 1)
    assert steps[-1] == (math.inf, 1)
    for value in values[1:-1]:
        edge = min(edge for edge, _ in steps if edge >= value)
        assert edge / STEP_RATIO <= value <= edge


def test_norms_of_deep_layers_are_on_the_axis() -> None:
    found = ErrorHistograms(1).update(torch.tensor([[22_000.0, 500_000.0, 500_000.0]])).quantiles(0)
    assert found.median == pytest.approx(500_000, rel=RELATIVE_RESOLUTION)


def test_another_number_of_pairs_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 pairs"):
        ErrorHistograms(2).update(torch.zeros(3, 4))
