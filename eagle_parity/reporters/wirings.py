"""The wirings side by side, as one table: the picture that answers the question of the tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.reporters.document import Cell, Table, Tone
from eagle_parity.results import Outcome
from eagle_parity.wiring import brief_boundary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.findings import Finding
    from eagle_parity.results import ServedWiring, WiringSummary
    from eagle_parity.wiring import BoundaryEntry

OUTCOME_WORDS = {
    Outcome.SERVES: "serves",
    Outcome.FAILS_AT_LOAD: "fails at load",
    Outcome.FAILS_AT_FIRST_REQUEST: "fails at first request",
    Outcome.UNSUPPORTED: "unsupported",
}

TOLD_BY_FINDINGS = frozenset({"engine-failure", "unsupported-target"})
"""Findings that already give an engine's reason; it isn't told twice."""


def has_wirings(wiring: WiringSummary) -> bool:
    """Whether there is anything to put side by side."""
    return bool(wiring.trained or wiring.live or wiring.served)


def wirings_table(wiring: WiringSummary, findings: Sequence[Finding] = (), *, of: str = "") -> Table:
    """Rows are slots; columns the trained wiring, the live one and every served one.

    A cell that isn't what the head was trained on is marked, in words that survive without colour.

    Args:
        wiring: what to show; not empty, see ``has_wirings``.
        findings: of the same result: an engine's reason is left out where one of them tells it.
        of: the result that they are of, where several are shown.
    """
    slots = max(len(w) for w in (wiring.trained or (), wiring.live or (), *(s.boundaries for s in wiring.served)))
    columns = [_Column(Cell(""), [Cell(f"slot {i}") for i in range(slots)], "last state", "outcome", "ids")]
    trained = wiring.trained
    if trained is not None:
        column = [Cell(brief_boundary(b)) for b in trained]
        columns.append(
            _Column(Cell("trained", Tone.STRONG), column, brief_boundary_or_blank(wiring.last_state.trained))
        )
    if wiring.live is not None:
        live_last = brief_boundary_or_blank(wiring.last_state.live)
        columns.append(_Column(Cell("live", Tone.STRONG), _judged(wiring.live, trained), live_last))
    columns.extend(_served_column(served, trained) for served in wiring.served)

    rows = [tuple(column.cell(i) for column in columns) for i in range(slots)]
    footers = 0
    if wiring.last_state.trained is not None or wiring.last_state.live is not None:
        rows.append(tuple(Cell(column.last_state) for column in columns))
        footers += 1
    if any(column.ids for column in columns[1:]):
        rows.append(tuple(Cell(column.ids, Tone.MUTED) for column in columns))
        footers += 1
    if wiring.served:
        rows.append(tuple(Cell(column.outcome, column.tone) for column in columns))
        footers += 1
    layers = f" (target of {wiring.num_layers} layers)" if wiring.num_layers is not None else ""
    where = f" in {of}" if of else ""
    return Table(
        f"Wirings{where}{layers}: the boundary that each slot holds",
        tuple(column.head for column in columns),
        tuple(rows),
        notes=_notes(wiring, findings),
        pinned=1 if trained is None else 2,
        whole_cells=True,
        footer_rows=footers,
    )


@dataclass(frozen=True, slots=True)
class _Column:
    head: Cell
    cells: list[Cell]
    last_state: str
    outcome: str = ""
    ids: str = ""
    tone: Tone = Tone.PLAIN

    def cell(self, slot: int) -> Cell:
        return self.cells[slot] if slot < len(self.cells) else Cell("none", Tone.MUTED)


def brief_boundary_or_blank(boundary: BoundaryEntry) -> str:
    """As ``brief_boundary``, with nothing for a state that is unknown or absent."""
    return "" if boundary is None else brief_boundary(boundary)


def _judged(boundaries: Sequence[BoundaryEntry], trained: Sequence[BoundaryEntry] | None) -> list[Cell]:
    """Cells of a wiring beside the trained one: what agrees and what doesn't."""
    cells: list[Cell] = []
    for i, boundary in enumerate(boundaries):
        expected = trained[i] if trained is not None and i < len(trained) else None
        text = brief_boundary(boundary)
        if trained is None or boundary is None or (expected is None and i < len(trained)):
            cells.append(Cell(text))
        elif boundary == expected:
            cells.append(Cell(text, Tone.GOOD))
        else:
            cells.append(Cell(f"{text} ✗", Tone.BAD))
    return cells


def _served_column(served: ServedWiring, trained: Sequence[BoundaryEntry] | None) -> _Column:
    options = ",".join(f"{key}={value}" for key, value in served.options.items())
    ids = "default" if served.default else ""
    if served.ids is not None and not served.default:
        ids = str(served.ids)
    return _Column(
        Cell(served.engine, Tone.STRONG, detail=options),
        _judged(served.boundaries, trained),
        "",
        OUTCOME_WORDS[served.outcome],
        ids,
        Tone.GOOD if served.outcome is Outcome.SERVES else Tone.BAD,
    )


def _notes(wiring: WiringSummary, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Why an engine fails, unless a finding about it says so."""
    told = [f.engine for f in findings if f.engine is not None and f.name in TOLD_BY_FINDINGS]
    return tuple(
        f"{served.engine}: {served.reason}"
        for served in wiring.served
        if served.reason and not any(_is_about(engine, served) for engine in told)
    )


def _is_about(engine: str, served: ServedWiring) -> bool:
    """Whether a finding's engine is this variant: the same version, and no option that it has another value of."""
    name, _, options = engine.partition(":")
    wanted = {key: value for key, _, value in (option.partition("=") for option in options.split(",") if option)}
    return name == served.engine and wanted.items() <= served.options.items()
