"""What the loops are compiled for."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest
from llvmlite.binding.targets import FeatureMap

from eagle_parity.numerics.processor import LEAST_FLOATS, this_processor


def features(*, wide: bool) -> FeatureMap:
    found = FeatureMap()
    found.update({"avx2": True, "avx512f": wide})
    return found


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX"):
        monkeypatch.delenv(name, raising=False)


def test_whole_vectors_where_there_are_wide_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: features(wide=True))
    found = this_processor()
    assert found.features == "+avx2,+avx512f,-prefer-256-bit"
    assert found.floats == 2 * LEAST_FLOATS


def test_nothing_is_said_of_vectors_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: features(wide=False))
    found = this_processor()
    assert found.features == "+avx2,-avx512f"
    assert found.floats == LEAST_FLOATS


@pytest.mark.parametrize("name", ["NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX"])
def test_the_users_choice(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: features(wide=True))
    monkeypatch.setenv(name, "0")
    assert this_processor().floats == LEAST_FLOATS
