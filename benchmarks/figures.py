"""What was measured, round by round, and what is printed of it: lines of a table a topic."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

_FEWEST_FOR_QUARTILES = 4
_WHOLE_FROM = 100


@dataclass(frozen=True)
class Line:
    """One figure.

    Attributes:
        what: it is.
        unit: of its numbers: ``s``, ``CPU s``, ``GB/s``, ``MB``; empty for a ratio.
        rounds: its numbers; empty where it couldn't be measured.
        asked: the bound that it is held beside, in words; nothing fails by it.
        note: how it came about, or why there is no number.
    """

    what: str
    unit: str
    rounds: tuple[float, ...]
    asked: str = ""
    note: str = ""

    @property
    def median(self) -> float | None:
        """Of the rounds."""
        return statistics.median(self.rounds) if self.rounds else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """Quartiles, or least and most of fewer than four rounds; None of a single one."""
        if len(self.rounds) <= 1:
            return None
        if len(self.rounds) < _FEWEST_FOR_QUARTILES:
            return min(self.rounds), max(self.rounds)
        low, _, high = statistics.quantiles(self.rounds, n=4)
        return low, high

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        low, high = self.spread or (None, None)
        return {
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "low": low,
            "high": high,
            "rounds": list(self.rounds),
            "asked": self.asked,
            "note": self.note,
        }


@dataclass
class Topic:
    """One table.

    Attributes:
        name: as ``--only`` has it.
        title: what is measured.
        lines: in the order in which they are read.
        notes: below the table.
    """

    name: str
    title: str
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, what: str, unit: str, rounds: Sequence[float], *, asked: str = "", note: str = "") -> None:
        """One more line."""
        self.lines.append(Line(what, unit, tuple(rounds), asked, note))

    def absent(self, what: str, why: str) -> None:
        """A line without a number."""
        self.lines.append(Line(what, "", (), note=why))

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "name": self.name,
            "title": self.title,
            "lines": [line.plain() for line in self.lines],
            "notes": self.notes,
        }

    def table(self) -> Table:
        """As people read it."""
        table = Table(title=f"{self.name}: {self.title}", title_justify="left", caption_justify="left")
        table.add_column("what", overflow="fold")
        for heading in ("median", "spread", "rounds"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("asked")
        table.add_column("note", overflow="fold")
        for line in self.lines:
            spread = "" if line.spread is None else f"{told(line.spread[0])} to {told(line.spread[1])}"
            median = "-" if line.median is None else f"{told(line.median)} {line.unit}".rstrip()
            table.add_row(line.what, median, spread, str(len(line.rounds) or ""), line.asked, line.note)
        if self.notes:
            table.caption = "\n".join(self.notes)
        return table


def told(number: float) -> str:
    """Three digits that count; whole numbers from a hundred on."""
    return f"{number:,.0f}" if abs(number) >= _WHOLE_FROM else f"{number:.3g}"


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Round by round, so that a machine that was busy in one of them was so for both."""
    return [a / b for a, b in zip(numerators, denominators, strict=True)]
