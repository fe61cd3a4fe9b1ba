"""``explain``: one finding at length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.reporters.document import Cell, Entries, Entry, Paragraph, Tone
from eagle_parity.reporters.values import compact

if TYPE_CHECKING:
    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result


def section(result: Result) -> list[Block]:
    """Title, the reasons, the way out, and where it comes from."""
    told = {key: compact(value) for key, value in result.measurements.items()}
    checks = result.measurements.get("checks") or []
    emitted = ", ".join(str(check) for check in checks) if isinstance(checks, list) else ""
    entries = (
        ("severity", told.get("severity", "")),
        ("why", told.get("why", "")),
        ("remedy", told.get("remedy", "")),
        ("given by", emitted or "commands directly, where they meet it"),
        ("docs", f"{told['docs']} in the repository: the same" if told.get("docs") else ""),
    )
    heading = f"{told.get('code', '')} {told.get('name', '')}: {told.get('title', '')}"
    return [
        Paragraph(heading, Tone.STRONG),
        Entries("", tuple(Entry(Cell(label, Tone.MUTED), text) for label, text in entries if text)),
    ]
