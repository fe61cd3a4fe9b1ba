"""``diff-captures``: what every slot holds, how far it is from what it should be, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eagle_parity.comparison.measurements import Measurements, SlotMeasurement, measurements_of
from eagle_parity.errors import InputError
from eagle_parity.reporters.document import Cell, Entries, Entry, Table, Tone
from eagle_parity.reporters.values import blocks, compact, words

if TYPE_CHECKING:
    from eagle_parity.comparison.measurements import Candidate, StateMeasurement
    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result

WORST_DIMENSIONS_SHOWN = 3
"""A slot; the JSON format has all that were kept."""

_SLOT_COLUMNS = (
    "slot",
    "trained holds",
    "live holds",
    "distance",
    "next nearest",
    "margin",
    "live to trained",
    "p90",
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
    return [*_slots(measured), *_dimensions(measured), _coverage(measured)]


def _slots(measured: Measurements) -> list[Block]:
    if not measured.slots:
        return []
    columns = tuple(Cell(title) for title in _SLOT_COLUMNS)
    table = Table("Slots, measured", columns, tuple(_slot_row(slot) for slot in measured.slots))
    return [table.without_empty_columns()]


def _slot_row(slot: SlotMeasurement) -> tuple[Cell, ...]:
    nearest, runner_up = _first_two(slot.live)
    trained, _ = _first_two(slot.trained)
    fit = slot.fits[0] if slot.fits else None
    pair = slot.pair
    texts = (
        str(slot.slot),
        trained.label if trained else "",
        nearest.label if nearest else "",
        compact(nearest.distance) if nearest else "",
        f"{runner_up.label} at {compact(runner_up.distance)}" if runner_up else "",
        _margin(nearest, runner_up),
        compact(pair.distance) if pair else "",
        compact(pair.p90) if pair else "",
        compact(pair.largest) if pair else "",
        f"{words(fit.name)}: {fit.formula}, {compact(fit.distance)} left" if fit else "",
    )
    return tuple(Cell(text) for text in texts)


def _margin(nearest: Candidate | None, runner_up: Candidate | None) -> str:
    if nearest is None or runner_up is None:
        return ""
    return f"{runner_up.distance / nearest.distance:.1f}x" if nearest.distance > 0 else "exact"


def _first_two(state: StateMeasurement | None) -> tuple[Candidate | None, Candidate | None]:
    candidates = state.candidates if state is not None else []
    return (candidates[0] if candidates else None, candidates[1] if len(candidates) > 1 else None)


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
