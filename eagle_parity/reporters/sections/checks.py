"""``checks``: the catalogue of findings, then the checks that give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.reporters.values import records

if TYPE_CHECKING:
    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result


def section(result: Result) -> list[Block]:
    """Two tables."""
    tables = (("Findings", "findings"), ("Checks", "checks"))
    return [
        records(title, [_joined(row) for row in rows])
        for title, key in tables
        if (rows := result.measurements.get(key))
    ]


def _joined(row: dict[str, Any]) -> dict[str, Any]:
    """Lists of names as prose."""
    return {key: ", ".join(value) if isinstance(value, list) else value for key, value in row.items()}
