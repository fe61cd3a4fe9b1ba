"""What a server counted of drafts while it was captured: the symptom, beside the cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.reporters.document import Cell, Entries, Entry, Tone
from eagle_parity.reporters.values import compact

if TYPE_CHECKING:
    from collections.abc import Mapping


def accepted(acceptance: Mapping[str, Any]) -> Entries:
    """What the server counted of drafts."""
    drafted, drafts = acceptance.get("draft_tokens"), compact(acceptance.get("drafts"))
    of = f" of {compact(drafted)} drafted" if drafted is not None else ""
    entries = [
        Entry(Cell("acceptance length"), compact(acceptance.get("length")), Tone.STRONG),
        Entry(Cell("accepted"), f"{compact(acceptance.get('accepted_tokens'))}{of} tokens, in {drafts} drafts"),
        Entry(Cell("counted by"), compact(acceptance.get("source"))),
    ]
    if acceptance.get("other_traffic"):
        entries.append(Entry(Cell("includes"), "requests of others, if there were any", Tone.MUTED))
    return Entries("Acceptance meanwhile", tuple(entries))
