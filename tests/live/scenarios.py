"""What a run says of each scenario: expected, found, seconds; printed at the end and kept in .cache/live."""

from __future__ import annotations

from dataclasses import dataclass

_WIDTHS = (58, 46, 46)
_COLUMNS = ("scenario", "expected", "found")


@dataclass
class Scenario:
    """One scenario.

    Attributes:
        name: of the test, with its class.
        expected: in words.
        found: likewise, what the tool and the server gave.
        outcome: pytest's word; ``skipped`` has its reason in ``found``.
        seconds: of the test, and of the launch where it was the first on its server.
    """

    name: str
    expected: str = ""
    found: str = ""
    outcome: str = "not run"
    seconds: float = 0.0

    def expect(self, what: str) -> None:
        """Says what is right."""
        self.expected = what

    def find(self, what: object) -> None:
        """Says what was there."""
        self.found = str(what)


def as_table(scenarios: list[Scenario]) -> str:
    """All of them in lines that wrap within their column."""
    lines = [_row((*_COLUMNS, "outcome", "seconds")), _row(("-" * 8,) * 5)]
    for scenario in scenarios:
        cells = (scenario.name, scenario.expected, scenario.found, scenario.outcome, f"{scenario.seconds:.0f}")
        lines += _wrapped(cells)
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    widths = (*_WIDTHS, 8, 7)
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _wrapped(cells: tuple[str, ...]) -> list[str]:
    import textwrap

    columns = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, (*_WIDTHS, 8, 7), strict=True)]
    height = max(len(column) for column in columns)
    return [_row(tuple(column[line] if line < len(column) else "" for column in columns)) for line in range(height)]
