"""``checks``: the catalogue of findings, then the checks that give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.reporters.values import records

if TYPE_CHECKING:
    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result


def section(result: Result) -> list[Block]:
    """Two tables."""
    tables = (("Findings", "findings"), ("Checks", "checks"))
    return [records(title, rows) for title, key in tables if (rows := result.measurements.get(key))]
