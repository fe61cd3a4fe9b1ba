"""What the capture hooks of both engines say alike of the objects that they find in a worker.

This runs inside somebody's server: it imports the standard library only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CONFIG_CHARS = 65_536
"""Of a config in a rank's record; a longer one has tables in it that nobody reads there."""


def rank_name(parallel: Mapping[str, int]) -> str:
    """A name that no other worker of the server has: ``tp1``, ``dp1.pp1.tp0``."""
    replica = f"dp{parallel['dp_rank']}." if parallel.get("dp_size", 1) > 1 else ""
    pipeline = f"pp{parallel['pp_rank']}." if parallel.get("pp_size", 1) > 1 else ""
    return f"{replica}{pipeline}tp{parallel.get('tp_rank', 0)}"


def config_of(config: Any) -> dict[str, Any] | None:
    """A config as JSON, where it is one of moderate size."""
    try:
        text = json.dumps(config.to_dict(), default=str)
    except Exception:  # noqa: BLE001  any class of any checkpoint
        return None
    return json.loads(text) if len(text) <= MAX_CONFIG_CHARS else None


def class_of(module: object) -> str | None:
    """The whole name of a module's Python class."""
    return None if module is None else f"{type(module).__module__}.{type(module).__qualname__}"
