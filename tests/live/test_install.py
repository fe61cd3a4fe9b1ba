"""The package beside an engine: nothing that the engine pins is moved, torch least of all."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from live.conftest import ROOT, packages

if TYPE_CHECKING:
    from pathlib import Path

    from live.scenarios import Scenario


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_nothing_is_moved(engine: str, request: pytest.FixtureRequest, tmp_path: Path, scenario: Scenario) -> None:
    scenario.expect("pip would add what is missing of the base dependencies, and change no package that is there")
    python: Path = request.getfixturevalue(engine)
    report = tmp_path / "report.json"
    words = ["install", "--quiet", "--disable-pip-version-check", "--dry-run", "--report", str(report), str(ROOT)]
    subprocess.run([python, "-m", "pip", *words], check=True, capture_output=True)
    wanted = {
        item["metadata"]["name"].lower(): item["metadata"]["version"]
        for item in json.loads(report.read_text("utf-8"))["install"]
    }
    there = packages(python)
    moved = {name: version for name, version in wanted.items() if name in there and name != "eagle-parity"}
    added = sorted(set(wanted) - set(there))
    scenario.find(f"torch {there['torch']} stays; changed {moved or 'none'}, added {added or 'none'}")
    assert moved == {}
    assert not {"torch", "numpy", "safetensors", "transformers"} & set(added)
