"""The report for a terminal: rich tables in a given width, with or without colour."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, assert_never

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from eagle_parity.reporters.content import document
from eagle_parity.reporters.document import Entries, Findings, Paragraph, Table, Tone
from eagle_parity.reporters.escaping import ID_LIST, visible

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from rich.console import RenderableType

    from eagle_parity.reporters import Style
    from eagle_parity.reporters.document import Block, Cell, FindingItem, Headline
    from eagle_parity.results import Result

MIN_WIDTH = 20
"""Narrower than this, words break anywhere; a terminal that claims less is mistaken (0 is common in CI)."""

NARROW = 40
"""Narrower than this no table fits: each row becomes a line, and each label stands above what it labels."""

INDENT = 2

COLUMN_FRAME = 3
"""A border and two spaces."""

LONG_EVIDENCE = 50
"""A longer value has lines of its own."""

LONG_WORD = 16
"""Longer words, such as paths, may be broken before a table is."""

STYLES = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.MUTED: "dim",
    Tone.GOOD: "green",
    Tone.BAD: "bold red",
    Tone.WARNING: "yellow",
    Tone.NOTE: "cyan",
}

BADGES = {
    Tone.STRONG: "bold",
    Tone.GOOD: "bold white on green",
    Tone.BAD: "bold white on red",
    Tone.WARNING: "bold black on yellow",
}

REMEDY = "bold green"

GLUE = "\ue000"
"""Stands for a space that no line may end at, while rich wraps: an id list is read and copied whole. A private-use
character, which no escaped text contains; it never leaves this module."""

_LONGEST_WHOLE_LIST = 30
"""Longer lists may break between ids, or they would leave ragged lines. Where the width is short, so may those that
don't fit into a line."""

_ASCII = str.maketrans("✗─│╭╮╰╯├┤┬┴┼·", "x-|+++++++++-")
"""For a stdout that isn't UTF-8; what is left outside ASCII is written out as an escape."""


def render_terminal(result: Result, style: Style) -> str:
    """The report as text.

    Args:
        result: what to render.
        style: width, colour, and whether only verdict and findings are wanted. Without colour there is no ANSI
            sequence in the text.
    """
    width = style.width if style.width >= MIN_WIDTH else (MIN_WIDTH if style.width > 0 else NARROW)
    console = Console(
        file=StringIO(),
        width=width,
        color_system="standard" if style.color else None,
        force_terminal=style.color,
        no_color=not style.color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    made = document(result, quiet=style.quiet)
    page = _Page(width)
    with console.capture() as captured:
        console.print(page.headline(made.headline))
        for block in made.blocks:
            console.print()
            console.print(page.block(block))
    lines = (line.rstrip() for line in captured.get().replace(GLUE, " ").splitlines())
    text = "\n".join(lines) + "\n"
    if style.unicode:
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


class _Page:
    """What the parts of a document look like in a given width."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._narrow = width < NARROW
        self._longest_list = min(_LONGEST_WHOLE_LIST, width - 2 * INDENT)

    def headline(self, headline: Headline) -> Text:
        """The first line."""
        line = Text(overflow="fold")
        if headline.verdict:
            line.append(f" {headline.verdict} ", BADGES.get(headline.tone, "bold"))
            line.append(" ")
        line.append(visible(headline.command), "bold")
        line.append(f"  {self._glued(headline.sentence)}")
        return line

    def block(self, block: Block) -> RenderableType:
        """Anything below it."""
        match block:
            case Table():
                return self._rows(block) if self._narrow else self._table(block)
            case Entries():
                return self._entries(block)
            case Findings():
                items = [Padding(self._finding(item), (1 if i else 0, 0, 0, 0)) for i, item in enumerate(block.items)]
                more = [Padding(self._text(block.more, Tone.MUTED), (1, 0, 0, 0))] if block.more else []
                return Group(self._title(block.title), *items, *more)
            case Paragraph():
                return self._text(block.text, block.tone)
            case _:
                assert_never(block)

    # Text ------------------------------------------------------------------------------------------------------------

    def _title(self, title: str) -> Text:
        return self._text(title, Tone.STRONG)

    def _text(self, text: str, tone: Tone = Tone.PLAIN) -> Text:
        return Text(self._glued(text), STYLES[tone], overflow="fold")

    def _glued(self, text: str) -> str:
        return ID_LIST.sub(self._glue, visible(text))

    def _glue(self, match: re.Match[str]) -> str:
        listed = match.group()
        return listed.replace(" ", GLUE) if len(listed) <= self._longest_list else listed

    # Tables ----------------------------------------------------------------------------------------------------------

    def _table(self, table: Table) -> RenderableType:
        title = [self._title(table.title)] if table.title else []
        return Group(*title, *(self._grid(part) for part in self._fitting(table)), *self._notes(table))

    def _notes(self, table: Table) -> list[RenderableType]:
        return [Padding(self._text(note, Tone.MUTED), (0, 0, 0, INDENT)) for note in table.notes]

    def _rows(self, table: Table) -> RenderableType:
        """A table as lines: ``slot 0: trained 3 (layer 2 out), live 0 (embedding) ✗``."""
        lines: list[RenderableType] = []
        for row in table.rows:
            line = self._cell(row[0])
            line.stylize("bold")
            told = [(column, cell) for column, cell in zip(table.columns[1:], row[1:], strict=True) if cell.text]
            for i, (column, cell) in enumerate(told):
                line.append(", " if i else ": " if row[0].text else "")
                detail = f" ({self._glued(column.detail)})" if column.detail else ""
                line.append(f"{self._glued(column.text)}{detail} ", "not bold dim")
                line.append(self._glued(cell.text), STYLES[cell.tone])
                if cell.detail:
                    line.append(f" ({self._glued(cell.detail)})", "not bold dim")
            lines.append(Padding(line, (0, 0, 0, INDENT)))
        title = [self._title(table.title)] if table.title else []
        return Group(*title, *lines, *self._notes(table))

    def _fitting(self, table: Table) -> list[Table]:
        """The table, or where it is too wide several, each with the pinned columns and as many others as fit."""
        widths = [width + COLUMN_FRAME for width in self._widths(table)]
        pinned = list(range(min(table.pinned, len(widths))))
        room = self._width - 1 - sum(widths[: len(pinned)])
        parts: list[list[int]] = [[]]
        left = room
        for i in range(len(pinned), len(widths)):
            if parts[-1] and widths[i] > left:
                parts.append([])
                left = room
            parts[-1].append(i)
            left -= widths[i]
        return [table.select([*pinned, *part]) for part in parts]

    def _widths(self, table: Table) -> list[int]:
        return [
            max(self._cell_width(cell, whole=table.whole_cells) for cell in column)
            for column in zip(table.columns, *table.rows, strict=True)
        ]

    def _cell_width(self, cell: Cell, *, whole: bool) -> int:
        """The columns that a cell needs to be read with ease."""
        lines = [self._glued(cell.text), self._glued(cell.detail)]
        pieces = lines if whole else [word for line in lines for word in line.split()]
        longest = max(map(cell_len, pieces), default=0)
        return longest if whole else min(longest, LONG_WORD)

    def _shared_out(self, table: Table) -> list[int | None]:
        """The width of each column of a table that must be narrower than it would like to be.

        rich would shrink columns in proportion, through the middle of words, and past what it was told is the least
        lets the table grow out of the page. So each gets what it needs, and what is left goes where text is waiting.
        """
        least = self._widths(table)
        wanted = [
            max(cell_len(line) for cell in column for line in (self._glued(cell.text), self._glued(cell.detail)))
            for column in zip(table.columns, *table.rows, strict=True)
        ]
        room = self._width - 1 - COLUMN_FRAME * len(least)
        if sum(wanted) <= room or sum(least) > room:
            return [None] * len(least)
        widths = list(least)
        for _ in range(room - sum(least)):
            waiting = max(range(len(widths)), key=lambda i: wanted[i] / widths[i])
            widths[waiting] += 1
        return [min(width, want) for width, want in zip(widths, wanted, strict=True)]

    def _grid(self, table: Table) -> RichTable:
        widths = self._shared_out(table)
        drawn = RichTable(box=box.ROUNDED, header_style="bold", border_style="dim", padding=(0, 1))
        for i, column in enumerate(table.columns):
            drawn.add_column(self._cell(column), overflow="fold", width=widths[i], style="bold" if i == 0 else "")
        footer_start = len(table.rows) - table.footer_rows
        for i, row in enumerate(table.rows):
            drawn.add_row(*(self._cell(cell) for cell in row), end_section=i == footer_start - 1)
        return drawn

    def _cell(self, cell: Cell) -> Text:
        text = self._text(cell.text, cell.tone)
        if cell.detail:
            text.append(f"\n{self._glued(cell.detail)}", "not bold dim")
        return text

    # Lists -----------------------------------------------------------------------------------------------------------

    def _labelled(self, lines: Sequence[tuple[Text, Text]]) -> RenderableType:
        """Labels beside what they label, or above it where there is no room."""
        if self._narrow:
            parts: list[RenderableType] = []
            for label, text in lines:
                parts += [label, Padding(text, (0, 0, 0, INDENT))] if label.plain else [text]
            return Group(*parts)
        grid = RichTable.grid(padding=(0, 2, 0, 0))
        grid.add_column(overflow="fold", max_width=max((label.cell_len for label, _ in lines), default=1))
        grid.add_column(overflow="fold", ratio=1)
        for label, text in lines:
            grid.add_row(label, text)
        return grid

    def _entries(self, block: Entries) -> RenderableType:
        lines = [
            (
                Text(visible(entry.label.text), STYLES[entry.label.tone], overflow="fold"),
                self._text(entry.text, entry.tone),
            )
            for entry in block.entries
        ]
        body = Padding(self._labelled(lines), (0, 0, 0, INDENT))
        return Group(self._title(block.title), body) if block.title else body

    def _evidence(self, item: FindingItem) -> Text:
        told = Text(overflow="fold")
        crowded = False
        for i, (name, value) in enumerate(item.evidence):
            long = len(value) > LONG_EVIDENCE
            if i:
                told.append("\n" if long or crowded or self._narrow else " · ", "dim")
            told.append(f"{self._glued(name)} ", "dim")
            told.append(self._glued(value))
            crowded = long
        return told

    def _finding(self, item: FindingItem) -> RenderableType:
        first = Text(overflow="fold")
        first.append(visible(item.severity).upper(), STYLES[item.tone] or "bold")
        first.append(f" {visible(item.code)} ", "dim")
        first.append(visible(item.name), "bold")
        for where in item.where:
            first.append(" · ", "dim")
            first.append(visible(where).replace("slot ", f"slot{GLUE}").replace("rank ", f"rank{GLUE}"))
        lines: list[tuple[Text, Text]] = []
        if item.evidence:
            lines.append((Text("evidence", "dim"), self._evidence(item)))
        if item.remedy:
            lines.append((Text("remedy", REMEDY), Text(self._glued(item.remedy), "bold", overflow="fold")))
        more = [self._text(item.more, Tone.MUTED)] if item.more else []
        told = Group(self._text(item.message), self._labelled(lines), *more)
        return Group(first, Padding(told, (0, 0, 0, INDENT)))
