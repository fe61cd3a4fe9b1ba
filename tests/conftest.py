"""Fixtures that many tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of facts and samples beside the checkout; tests that use it are extra."""
    path = ROOT.parent / "shared"
    if not (path / "design.md").is_file():
        pytest.skip("../shared is not here: this test checks against the collected samples and is extra")
    return path
