from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_parity.numerics.sinks import SINK_SHARE, find_sinks, limits_of, stands_out


def test_the_first_token_is_the_sink() -> None:
    norms = torch.tensor([900.0, 30.0, 31.0, 29.0, 60.0])
    assert find_sinks(norms[None]).tolist() == [True, False, False, False, False]


@given(norms=st.lists(st.sampled_from([0.0, 1.0, 5.0, 1000.0, 22_000.0, math.inf, math.nan]), min_size=1, max_size=400))
@settings(deadline=None)
def test_sinks_are_few_finite_and_the_greatest(norms: list[float]) -> None:
    found_norms = torch.tensor(norms, dtype=torch.float64)
    sinks = find_sinks(found_norms[None])
    assert int(sinks.sum()) <= max(1, int(SINK_SHARE * len(norms)))
    assert found_norms[sinks].isfinite().all()
    rest = found_norms[~sinks & found_norms.isfinite()]
    if bool(sinks.any()) and len(rest):
        assert float(found_norms[sinks].min()) >= float(rest.max())


def test_all_nan_has_no_sinks() -> None:
    assert not find_sinks(torch.full((1, 3), math.nan)).any()


def test_what_stands_out_in_any_state_does() -> None:
    norms_NT = torch.tensor([[900.0, 30, 31, 29], [1, 1, 1, 90]], dtype=torch.float64)
    limits_N = limits_of(norms_NT)
    assert stands_out(norms_NT, limits_N[:, None]).tolist() == [True, False, False, True]
    assert find_sinks(norms_NT).tolist() == [True, False, False, True]
