"""``torch.testing.assert_close`` with its defaults for bfloat16."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

start = time.process_time()
trained, live, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
raised = 0
for path in sorted(trained.iterdir())[:count]:
    x, y = (load_file(side / path.name)["hidden_states"] for side in (trained, live))
    try:
        torch.testing.assert_close(y, x)
    except AssertionError:
        raised += 1
print(json.dumps({"start": start, "said": f"raises for {raised} of {count} files"}))
