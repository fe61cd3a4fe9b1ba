"""How long ``check-config`` takes, beside a bare typer program that prints one rich table.

Runs of the two are interleaved, so that a busy machine slows both alike; the ratio of the medians is what counts.
``python -m benchmarks.startup``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 15
WARM_UP = 2
LIMIT = 1.6
"""At most this many times the bare program, as the project has promised."""

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


def main() -> None:
    """Times both programs and prints medians, spread and ratio."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "draft.json").write_text(json.dumps(DRAFT))
        (root / "target.json").write_text(json.dumps(TARGET))
        (root / "bare.py").write_text(BARE)
        check = [
            *(sys.executable, "-m", "eagle_parity", "check-config", str(root / "draft.json")),
            *("--target", str(root / "target.json"), "--trained-boundaries", "3,31,59"),
            *("--engine", "sglang@0.5.12:embedding-capture=patched", "--engine", "vllm@0.32.0"),
        ]
        bare = [sys.executable, str(root / "bare.py")]
        times: dict[str, list[float]] = {"check-config": [], "bare typer app": []}
        for round_number in range(ROUNDS + WARM_UP):
            for name, command in (("check-config", check), ("bare typer app", bare)):
                seconds = _time(command)
                if round_number >= WARM_UP:
                    times[name].append(seconds)
    for name, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4)
        sys.stdout.write(
            f"{name:16} median {middle * 1000:6.0f} ms, quartiles {low * 1000:.0f} to {high * 1000:.0f} ms\n"
        )
    ratios = [a / b for a, b in zip(times["check-config"], times["bare typer app"], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    ratio = statistics.median(times["check-config"]) / statistics.median(times["bare typer app"])
    sys.stdout.write(
        f"ratio of medians {ratio:.2f} (round by round, quartiles {low:.2f} to {high:.2f}; limit {LIMIT})\n"
    )


def _time(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=False, capture_output=True)  # noqa: S603  our own command lines
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
