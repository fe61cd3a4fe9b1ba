"""``scan``: what the set holds, what its states are like, and how its parts differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eagle_parity.reporters.document import Block, Cell, Entries, Entry, Table, Tone
from eagle_parity.reporters.values import compact
from eagle_parity.scan.measurements import SetMeasurements, SetStateNumbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eagle_parity.results import Result


def section(result: Result) -> list[Block]:
    """The set line by line, then a table of its states."""
    try:
        found = msgspec.convert(result.measurements, SetMeasurements)
    except msgspec.ValidationError:
        return []  # of another release, or written by hand: shown by its findings alone
    blocks: list[Block] = [Entries(found.root, tuple(_lines(found)))]
    if found.states:
        blocks.append(_states(found))
    return blocks


def _lines(found: SetMeasurements) -> Iterator[Entry]:
    for layout in found.layouts[:_SHOWN_LAYOUTS]:
        last = ", last state" if layout.last_state == "stored" else ""
        told = f"{layout.slots} slots of {layout.hidden_size:,} {layout.dtype}{last}, {layout.files:,} files"
        yield Entry(
            Cell(layout.format, Tone.MUTED), told, Tone.WARNING if layout is not found.layouts[0] else Tone.PLAIN
        )
    yield _line("files", f"{found.files:,}, {found.bytes / 1e9:,.2f} GB")
    lengths = "" if found.shortest is None else f", {found.shortest:,} to {found.longest:,} a sequence"
    yield _line("sequences", f"{found.sequences:,}, {found.tokens:,} tokens{lengths}")
    which = "every row" if found.rows_of_each is None else f"{found.rows_of_each} rows of each sequence"
    share = f"{found.sink_rows:,} of them sinks, left out"
    yield _line("looked at", f"{which}: {found.sampled_rows:,} rows, {share}")
    if found.mask_tokens:
        masked = found.masked_tokens / found.mask_tokens
        yield _line("loss masks", f"{1 - masked:.0%} of {found.mask_tokens:,} tokens are trained on")
    duplicates = found.duplicates
    if duplicates is not None:
        told = f"{duplicates.sequences:,} sequences too many" if duplicates.texts else "none"
        yield Entry(Cell("duplicates", Tone.MUTED), told, Tone.WARNING if duplicates.texts else Tone.PLAIN)
    if found.drift:
        apart, by_chance = max(
            (pair for part in found.drift for pair in zip(part.distances, part.by_chance, strict=True)),
            key=lambda pair: pair[0],
        )
        yield _line("parts", f"at most {apart:.2f} deviations of a dimension apart ({by_chance:.2f} by chance)")
    elif found.no_drift:
        yield _line("parts", f"not compared: {found.no_drift}")


_SHOWN_LAYOUTS = 4


def _line(label: str, text: str) -> Entry:
    return Entry(Cell(label, Tone.MUTED), text)


def _states(found: SetMeasurements) -> Table:
    error = found.quantile_error
    of_sample = "Medians are of a sample of the rows that were looked at; their ranks among these are off by"
    notes = () if not error else (f"{of_sample} {error:.2f} at most, but for one dimension in a hundred.",)
    return Table(
        title="States, sinks left out",
        columns=tuple(Cell(name) for name in ("state", "rms", "least", "greatest", "medians", "outliers", "dead")),
        rows=tuple(_row(state) for state in found.states),
        notes=notes,
    )


def _row(state: SetStateNumbers) -> tuple[Cell, ...]:
    outliers = ", ".join(
        f"{dimension} ({ratio:.0f}x)" for dimension, ratio in state.outlier_dimensions[:_SHOWN_OUTLIERS]
    )
    more = state.outlier_count - min(state.outlier_count, _SHOWN_OUTLIERS)
    return (
        Cell(state.state),
        Cell(compact(state.rms)),
        Cell(compact(state.least)),
        Cell(compact(state.greatest)),
        Cell(f"{compact(state.quantiles[0])} to {compact(state.quantiles[-1])}"),
        Cell(outliers + (f", {more} more" if more else "")),
        Cell(f"{state.dead_dimensions:,}" if state.dead_dimensions else "", Tone.WARNING),
    )


_SHOWN_OUTLIERS = 3
