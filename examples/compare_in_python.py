"""python examples/compare_in_python.py TRAINED LIVE [REFERENCE]: the comparison as a library call.

Prints each slot's identity on both sides. Without arguments it compares the demonstration's recorded data.
"""

from __future__ import annotations

import sys
from pathlib import Path

from eagle_parity import demo
from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.readers import open_hidden_states


def main(arguments: list[str]) -> int:
    """Compares two sides and says what each slot is."""
    data = Path(demo.__file__).parent / "data"
    trained, live, *rest = arguments or [str(data / name) for name in ("shards", "live", "reference")]
    result = diff_captures(
        DiffInputs(
            trained=open_hidden_states(trained, role="trained"),
            live=open_hidden_states(live, role="live"),
            reference=open_hidden_states(rest[0], role="reference") if rest else None,
        )
    )
    sys.stdout.write(f"{result.verdict}: trained {result.wiring.trained}, live {result.wiring.live}\n")
    for finding in result.findings:
        sys.stdout.write(f"{finding.severity} {finding.name}: {finding.message}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
