"""How problems of many files or sequences are told: counted, with the first ones as examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eagle_parity.scan.measurements import SetProblem


def told(problem: SetProblem) -> str:
    """``data_3.ckpt (no such key); data_7.ckpt (an empty file)``, and how many more."""
    shown = problem.examples[:2]
    more = problem.count - len(shown)
    return "; ".join(f"{name} ({reason})" for name, reason in shown) + (f"; and {more:,} more" if more > 0 else "")


def evidence(problem: SetProblem, of: int) -> dict[str, Any]:
    """Of sequences that have it."""
    return {
        "sequences": problem.count,
        "of": of,
        "examples": [{"sequence": name, "reason": reason} for name, reason in problem.examples],
    }
