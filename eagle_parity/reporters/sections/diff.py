"""``diff-captures``: what every slot holds, how far it is from what it should be, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.comparison.measurements import Measurements, SlotMeasurement, measurements_of
from eagle_parity.errors import InputError
from eagle_parity.reporters.document import Cell, Entries, Entry, Table, Tone
from eagle_parity.reporters.sections.recording import recording_blocks
from eagle_parity.reporters.values import blocks, compact, words

if TYPE_CHECKING:
    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result

WORST_DIMENSIONS_SHOWN = 3
"""A slot; the JSON format has all that were kept."""

_SLOT_COLUMNS = (
    "slot",
    "trained",
    "live",
    "distance",
    "limit",
    "states",
    "live is nearest",
    "then",
    "largest",
    "explained by",
)
_DIMENSION_COLUMNS = (
    "slot",
    "dimension",
    "mean trained",
    "mean live",
    "std trained",
    "std live",
    "max difference",
)


def section(result: Result) -> list[Block]:
    """The slots, their worst dimensions, and what was paired."""
    try:
        measured = measurements_of(result.measurements, path="")
    except InputError:
        # A result of another release, or none of ours: shown by shape rather than not at all.
        return blocks("", result.measurements)
    server: list[Block] = []
    if measured.recording is not None:
        server = recording_blocks(measured.recording, result.measurements.get("acceptance"))
    return [
        *_slots(measured, result.measurements.get("identified")),
        *server,
        *_dimensions(measured),
        _coverage(measured),
    ]


def _slots(measured: Measurements, identified: object) -> list[Block]:
    if not measured.slots:
        return []
    columns = tuple(Cell(title) for title in _SLOT_COLUMNS)
    rows = identified if isinstance(identified, list) else []
    known = {row.get("slot"): row for row in rows if isinstance(row, dict)}
    table = Table("Slots, measured", columns, tuple(_slot_row(s, known.get(s.slot, {})) for s in measured.slots))
    return [table.without_empty_columns()]


def _slot_row(slot: SlotMeasurement, identified: dict[str, Any]) -> tuple[Cell, ...]:
    fit = slot.fits[0] if slot.fits else None
    pair = slot.pair
    by = identified.get("by")
    by = by if isinstance(by, dict) else {}
    agrees = pair is not None and bool(identified.get("agrees"))
    texts = (
        str(slot.slot),
        _label(identified, "trained"),
        _label(identified, "live"),
        compact(pair.distance) if pair else "",
        compact(identified.get("limit")) if pair and identified else "",
        ("same" if agrees else "differs") if pair and identified else "",
        _nearest(by, "nearest", "distance"),
        _nearest(by, "runner_up", "runner_up_distance"),
        compact(pair.largest) if pair else "",
        f"{words(fit.name)}: {fit.formula}, {compact(fit.distance)} left" if fit else "",
    )
    return tuple(Cell(text) for text in texts)


def _label(identified: dict[str, Any], side: str) -> str:
    """What a side's state was found to be; nothing where the slots weren't judged."""
    if side not in identified:
        return ""
    label = identified[side]
    return "no known state" if label is None else str(label)


def _nearest(by: dict[str, Any], name: str, distance: str) -> str:
    return f"{by[name]} at {compact(by.get(distance))}" if by.get(name) else ""


def _dimensions(measured: Measurements) -> list[Block]:
    rows = [
        tuple(
            Cell(text)
            for text in (
                str(slot.slot),
                str(d.index),
                *map(compact, (d.mean_trained, d.mean_live, d.std_trained, d.std_live, d.max_difference)),
            )
        )
        for slot in measured.slots
        if slot.pair is not None
        for d in slot.pair.worst_dimensions[:WORST_DIMENSIONS_SHOWN]
        if d.max_difference > 0
    ]
    columns = tuple(Cell(title) for title in _DIMENSION_COLUMNS)
    return [Table("Worst dimensions, trained against live", columns, tuple(rows), pinned=2)] if rows else []


def _coverage(measured: Measurements) -> Entries:
    """How much was compared: every count that isn't zero, and the lines that say which."""
    told = {"tokens compared": measured.tokens, **msgspec.structs.asdict(measured.sequences)}
    return Entries(
        "Compared",
        tuple(Entry(Cell(words(key), Tone.MUTED), compact(value)) for key, value in told.items() if value),
    )
