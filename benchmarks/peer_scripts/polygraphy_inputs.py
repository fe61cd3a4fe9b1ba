"""Writes some files of both sides in Polygraphy's format, float32: ``TRAINED LIVE COUNT OUTPUT``."""

from __future__ import annotations

import sys
from pathlib import Path

from polygraphy.comparator import IterationResult, RunResults
from safetensors.torch import load_file

count, output = int(sys.argv[3]), Path(sys.argv[4])
for name, side in (("trained", Path(sys.argv[1])), ("live", Path(sys.argv[2]))):
    results = RunResults()
    iterations = []
    for path in sorted(side.iterdir())[:count]:
        states = load_file(path)["hidden_states"].flatten(1).float().numpy()
        iterations.append(IterationResult({"hidden_states": states}, runtime=0.0, runner_name=name))
    results.append((name, iterations))
    results.save(str(output / f"{name}.json"))
