"""How long each command takes to start, beside a bare typer program that prints one rich table.

``--help`` of every command, and the cheapest real run of each that needs neither a server nor a model. Runs are
interleaved, so that a busy machine slows all alike; the ratio of the medians is what counts.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.figures import Topic, ratios
from benchmarks.process import TOOL, Ran, run

if TYPE_CHECKING:
    from benchmarks.settings import Settings

MORE_ROUNDS = 3
"""Times the settings' rounds, of the two that a promise was made about."""
LIMIT = 1.6
"""``check-config`` takes at most this many times what the bare program takes, as the project has promised."""

DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 7168,
    "vocab_size": 163840,
    "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [-1, 2, 30]},
}
TARGET = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "vocab_size": 163840,
    },
}

BARE = """
import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer()

@app.command()
def main() -> None:
    table = Table("slot", "trained", "served")
    for slot in range(3):
        table.add_row(str(slot), "3", "0")
    Console().print(table)

app()
"""

COMMANDS = (
    "check-config",
    "ids",
    "diff-captures",
    "scan",
    "inspect",
    "report",
    "checks",
    "explain",
    "engines",
    "demo",
    "capture sglang",
    "capture vllm",
    "capture transformers",
)
"""Every command; a test holds them against the tool's own list."""

NEEDS = {
    "capture sglang": "a server",
    "capture vllm": "a server",
    "capture transformers": "a model",
}
"""What a real run of a command takes that isn't here."""

_BARE = "bare typer app"
_PROMISED = (_BARE, "check-config")
_FINDINGS = (0, 1, 3)
"""Exit statuses of a run that came to its end."""


def measure(settings: Settings) -> Topic:
    """Rounds of: the bare program, ``--help`` of each command, the cheapest real run of each."""
    small = data.prepare(settings.cache, "small", 1)
    topic = Topic("startup", "wall seconds, and how many times those of a bare typer program")
    with tempfile.TemporaryDirectory() as folder:
        runs = {_BARE: [sys.executable, str(Path(folder) / "bare.py")], **_runs(Path(folder), small)}
        taken: dict[str, list[Ran]] = {name: [] for name in runs}
        for number in range(MORE_ROUNDS * settings.rounds + 1):
            for name, command in runs.items():
                if number > settings.rounds and name not in _PROMISED:
                    continue
                ran = run(command, may_fail=True)
                if ran.status not in _FINDINGS:
                    taken.pop(name, None)
                elif number and name in taken:  # the first round only warms up
                    taken[name].append(ran)
    bare = statistics.median(ran.seconds for ran in taken[_BARE])
    for name in runs:
        if name not in taken:
            topic.absent(name, "this version has no such command, or it failed")
            continue
        seconds = [ran.seconds for ran in taken[name]]
        cpu = statistics.median(ran.cpu for ran in taken[name])
        topic.add(name, "s", seconds, note=f"{statistics.median(seconds) / bare:.2f} times; {cpu:.2f} CPU s")
    checked, started = ([ran.seconds for ran in taken[name]] for name in ("check-config", _BARE))
    topic.add("check-config, to the bare app", "", ratios(checked, started), asked=f"{LIMIT} at most")
    for name, what in NEEDS.items():
        topic.absent(name, f"needs {what}")
    return topic


def _runs(root: Path, small: Path) -> dict[str, list[str]]:
    """Command lines by name, and what they need in the folder; beside it a few small shards."""
    draft, target, result = root / "draft.json", root / "target.json", root / "result.json"
    draft.write_text(json.dumps(DRAFT))
    target.write_text(json.dumps(TARGET))
    (root / "bare.py").write_text(BARE)
    check = [str(draft), "--target", str(target), "--trained-boundaries", "3,31,59"]
    check += ["--engine", "sglang@0.5.12:embedding-capture=patched", "--engine", "vllm@0.32.0"]
    arguments = {
        "check-config": check,
        "ids": ["3,31,59", "--target", str(target)],
        "diff-captures": [str(small / "trained"), str(small / "live")],
        "inspect": [str(small / "trained")],
        "report": [str(result)],
        "checks": [],
        "explain": ["EP201"],
        "engines": [],
        "demo": [],
        "scan": [str(small / "trained")],
    }
    run([*TOOL, "check-config", *check, "--format", "json", "--output", str(result)], may_fail=True)
    return {
        **{f"{name} --help": [*TOOL, *name.split(), "--help"] for name in COMMANDS},
        **{name: [*TOOL, name, *arguments[name]] for name in COMMANDS if name in arguments},
    }
