"""``capture``: what was recorded of whom, and what the server counted meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.reporters.document import Cell, Entries, Entry, Table, Tone
from eagle_parity.reporters.sections.acceptance import accepted
from eagle_parity.reporters.values import compact, words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result

_RECORDED = ("output", "engine", "sequences", "tokens", "dtype", "hidden_size", "conditions", "attention", "device")
_OF_THE_SERVER = ("target_class", "draft_class", "layer_set", "tap", "ranks")
_STATES = {
    "equal": "what fc got is the slots side by side, bit for bit",
    "differs": "what fc got is NOT the slots side by side",
    "normed": "the head normalises before fc: what it got can't be held against the slots",
    "absent": "what fc got was not recorded",
}
"""How a sequence's draft input is told."""


def section(result: Result) -> list[Block]:
    """What was recorded, by whom, what fc got, what is missing, and the acceptance."""
    measured = result.measurements
    found: list[Block] = [_entries("Recorded", measured, _RECORDED)]
    server = _entries("The server", measured, _OF_THE_SERVER)
    if server.entries:
        found.append(server)
    states = measured.get("draft_input")
    if isinstance(states, dict) and states:
        tones = {"differs": Tone.BAD}
        rows = tuple(
            (Cell(compact(count)), Cell(_STATES.get(str(state), str(state)), tones.get(str(state), Tone.PLAIN)))
            for state, count in states.items()
        )
        found.append(Table("Draft input", (Cell("sequences"), Cell("")), rows))
    incomplete = measured.get("incomplete")
    if isinstance(incomplete, list) and incomplete:
        rows = tuple(
            (Cell(compact(entry.get("name"))), Cell(compact(entry.get("reason"))))
            for entry in incomplete
            if isinstance(entry, dict)
        )
        found.append(Table("Not recorded whole", (Cell("sequence"), Cell("why")), rows))
    acceptance = measured.get("acceptance")
    if isinstance(acceptance, dict):
        found.append(accepted(acceptance))
    return found


def _entries(title: str, measured: Mapping[str, Any], names: tuple[str, ...]) -> Entries:
    told = [(name, measured[name]) for name in names if measured.get(name) not in (None, [], {})]
    return Entries(title, tuple(Entry(Cell(words(name)), compact(value)) for name, value in told))
