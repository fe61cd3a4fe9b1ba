"""``ids``: what to write for each engine, or why nothing helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.reporters.document import Cell, Table, Tone
from eagle_parity.reporters.values import compact

if TYPE_CHECKING:
    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result


def section(result: Result) -> list[Block]:
    """One table: engine, target class, and each key with its value."""
    rows: list[tuple[Cell, ...]] = []
    for row in result.measurements.get("ids") or []:
        write = row.get("write") or {}
        head = (Cell(compact(row.get("engine")), Tone.STRONG), Cell(compact(row.get("target_class"))))
        rows.extend(
            (*(head if i == 0 else (Cell(""), Cell(""))), Cell(str(key), code=True), Cell(compact(value), Tone.GOOD))
            for i, (key, value) in enumerate(write.items())
        )
        if not write:
            rows.append((*head, Cell(""), Cell("can't be served", Tone.BAD)))
    columns = tuple(Cell(title) for title in ("engine", "target class", "key", "write"))
    return [Table("Ids to write", columns, tuple(rows))] if rows else []
