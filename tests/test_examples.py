"""What the documentation shows works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import yaml
from conftest import ROOT

from eagle_parity.cli.app import run
from eagle_parity.readers import open_hidden_states

if TYPE_CHECKING:
    from pathlib import Path


def test_the_writer_in_the_docs_writes_a_capture(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/capture-format.md").read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    states = open_hidden_states(str(tmp_path / "live"), role="live")
    assert (states.layout.slots, states.layout.hidden_size, list(states.names)) == (3, 576, ["request-0"])


def test_the_python_example_finds_the_story() -> None:
    script = ROOT / "examples/compare_in_python.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "spurious-embedding" in done.stdout


def test_the_defaults_in_the_examples_are_options(tmp_path: Path) -> None:
    defaults = ROOT / "examples/parity.yaml"
    values = yaml.safe_load(defaults.read_text())["check-config"]
    data = ROOT / "eagle_parity/demo/data"
    arguments = ["check-config", str(data / "draft"), "--target", str(data / "target")]
    status = run(["--defaults", str(defaults), *arguments, "--output", str(tmp_path / "result.txt")])
    assert status == 1  # the demonstration's fault, found by the example's engines and boundaries
    assert values["trained-boundaries"] == "3,16,28"


def test_the_workflow_in_the_examples_is_one() -> None:
    workflow = yaml.safe_load((ROOT / "examples/github-actions.yml").read_text())
    assert [step.get("uses", step.get("run")) for step in workflow["jobs"]["parity"]["steps"]]
