"""``polygraphy run --load-outputs A B`` with its defaults: element by element."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from pathlib import Path

from polygraphy.tools import main

start = time.process_time()
folder = Path(sys.argv[4])
sys.argv[1:] = ["run", "--load-outputs", *(str(folder / f"{name}.json") for name in ("trained", "live"))]
with contextlib.redirect_stdout(io.StringIO()):
    try:
        status = main()
    except SystemExit as stop:
        status = stop.code
print(json.dumps({"start": start, "said": f"status {status}"}))
