"""``engines``: the rule tables, a table a kind of rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.reporters.values import compact, records

if TYPE_CHECKING:
    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result

_TITLES = {
    "engines": "Engines",
    "options": "Options",
    "keys": "Where the id list is looked for, in order",
    "classes": "Target classes: from ids to delivered boundaries",
    "wrappers": "Target classes around a language model that has its own rule",
    "refused": "Target classes that are refused",
    "unruled": "Target classes that no rule covers",
    "widths": "How many slots a draft class builds fc for",
    "buffers": "How many slots the buffers of CUDA graphs are made for",
    "vocab_maps": "What becomes of the map to the target's vocabulary",
    "written": "How a list is written, best first",
    "extractions": "What makes a target without a draft hand over states",
    "defects": "Known defects",
    "references": "References: what an index of their hidden states means",
    "trainers": "Trainers: what the ids of their drafts mean",
}


def section(result: Result) -> list[Block]:
    """One table a kind of rule, in the order of the data flow."""
    return [
        records(title, [_joined(row) for row in rows])
        for key, title in _TITLES.items()
        if (rows := result.measurements.get(key))
    ]


def _joined(row: dict[str, Any]) -> dict[str, Any]:
    """Lists of names as prose."""
    return {
        key: ", ".join(str(v) for v in value) if isinstance(value, list) else compact(value)
        for key, value in row.items()
    }
