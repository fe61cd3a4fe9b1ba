"""Two sides compared with numpy in float32, as somebody would write it who has an afternoon."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

start = time.process_time()
trained, live, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
worst = {"mean": 0.0, "deviation": 0.0, "difference": 0.0}
cosine = 1.0
for path in sorted(trained.iterdir())[:count]:
    x, y = (load_file(side / path.name)["hidden_states"].flatten(1).float().numpy() for side in (trained, live))
    difference = np.abs(x - y)
    for name, value in (
        ("mean", np.abs(x.mean(axis=0) - y.mean(axis=0)).max()),
        ("deviation", np.abs(x.std(axis=0) - y.std(axis=0)).max()),
        ("difference", difference.max()),
    ):
        worst[name] = max(worst[name], float(value))
    lengths = np.linalg.norm(x, axis=0) * np.linalg.norm(y, axis=0)
    cosine = min(cosine, float(((x * y).sum(axis=0) / lengths).min()))
print(json.dumps({"start": start, "said": f"least cosine of a dimension {cosine:.5f}"}))
