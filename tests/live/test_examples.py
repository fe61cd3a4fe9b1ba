"""The examples that users copy, run as they stand: from a cold start to a verdict."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from live.captures import manifest
from live.servers import SGLANG_ON_CPU, VLLM_ON_CPU, sglang_surroundings, take_port, vllm_surroundings
from live.workshop import LENGTHS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from live.scenarios import Scenario
    from live.workshop import Workshop

pytestmark = pytest.mark.full

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS = 900
"""From a cold start to the verdict, on a busy machine."""
BOUNDARIES = (3, 6, 7)


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "late"])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_example(
    engine: str, wrong: bool, workshop: Workshop, request: pytest.FixtureRequest, tmp_path: Path, scenario: Scenario
) -> None:
    scenario.expect("exit 1, layer-mismatch" if wrong else "exit 0, pass")
    python: Path = request.getfixturevalue(engine)
    shift = int(wrong)
    if engine == "sglang":
        ids: dict[str, object] = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2 + shift, 5, 6]}}
        surroundings, flags = sglang_surroundings(python), [*SGLANG_ON_CPU, "--dtype", "bfloat16"]
    else:
        ids = {"eagle_aux_hidden_state_layer_ids": [3 + shift, 6, 7]}
        surroundings, flags = vllm_surroundings(python), [*VLLM_ON_CPU, "--dtype", "bfloat16"]
    draft = workshop.draft(f"example-{engine}-{shift}", ids, dtype="bfloat16")
    inputs = {
        "TARGET": str(workshop.target("llama", "bfloat16")),
        "DRAFT": str(draft),
        "SHARDS": str(workshop.shards("llama", "bfloat16", BOUNDARIES)),
        "REFERENCE": str(workshop.reference("llama", "bfloat16")),
    }
    status, printed, log = run_example(f"capture_{engine}.sh", python, {**surroundings, **inputs}, flags, tmp_path)
    recorded = manifest(tmp_path / "live")
    verdict = next((line for line in printed.splitlines() if "layer-mismatch" in line or "pass" in line.lower()), "?")
    scenario.find(f"exit {status}, {len(recorded['sequences'])} sequences: {verdict.strip()[:100]}")
    assert processes_in(tmp_path) == []
    assert status == int(wrong), f"{printed[-3000:]}\n{log[-3000:]}"
    assert ("layer-mismatch" in printed) is wrong
    assert len(recorded["sequences"]) == len(LENGTHS)


def processes_in(folder: Path) -> list[str]:
    """What still runs there: a server that the script has left behind."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                command = (entry / "cmdline").read_text("utf-8", errors="replace").replace("\0", " ")[:100]
                found += [command] if command else []  # without one it has ended, and its memory is being freed
        except OSError:
            continue  # it has just ended
    return found


def run_example(
    name: str, python: Path, environment: dict[str, str], flags: Sequence[str], folder: Path
) -> tuple[int, str, str]:
    """One script in an empty folder: its status, stdout and stderr.

    Args:
        name: of the script.
        python: the engine's.
        environment: with the script's own variables.
        flags: what the server needs on this machine.
        folder: where it runs.
    """
    port, lock = take_port()
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    variables = {"PYTHON": str(python), "PORT": str(port), "SERVER_FLAGS": shlex.join(flags), "PATH": path}
    with lock:
        ran = subprocess.run(
            [str(EXAMPLES / name)],
            env={**environment, **variables},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    return ran.returncode, ran.stdout, ran.stderr
