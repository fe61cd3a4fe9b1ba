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

    from rich.console import RenderableType

    from eagle_parity.reporters import Style
    from eagle_parity.reporters.document import Block, Cell, FindingItem, Headline
    from eagle_parity.results import Result

MIN_WIDTH = 40
"""Narrower than this, words break anywhere; a terminal that claims less is mistaken (0 is common in CI)."""

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
"""Longer lists may break between ids, or they would leave ragged lines."""

_ASCII = str.maketrans("✗─│╭╮╰╯├┤┬┴┼·", "x-|+++++++++-")
"""For a stdout that isn't UTF-8; what is left outside ASCII is written out as an escape."""


def render_terminal(result: Result, style: Style) -> str:
    """The report as text.

    Args:
        result: what to render.
        style: width, colour, and whether only verdict and findings are wanted. Without colour there is no ANSI
            sequence in the text.
    """
    width = max(style.width, MIN_WIDTH)
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
    with console.capture() as captured:
        console.print(_headline(made.headline))
        for block in made.blocks:
            console.print()
            console.print(_block(block, width))
    lines = (line.rstrip() for line in captured.get().replace(GLUE, " ").splitlines())
    text = "\n".join(lines) + "\n"
    if style.unicode:
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def _block(block: Block, width: int) -> RenderableType:
    match block:
        case Table():
            return _table(block, width)
        case Entries():
            return _entries(block)
        case Findings():
            items = [Padding(_finding(item), (1 if i else 0, 0, 0, 0)) for i, item in enumerate(block.items)]
            return Group(_title(block.title), *items)
        case Paragraph():
            return _text(block.text, block.tone)
        case _:
            assert_never(block)


def _headline(headline: Headline) -> Text:
    line = Text(overflow="fold")
    if headline.verdict:
        line.append(f" {headline.verdict} ", BADGES.get(headline.tone, "bold"))
        line.append(" ")
    line.append(visible(headline.command), "bold")
    line.append(f"  {_glued(headline.sentence)}")
    return line


def _title(title: str) -> Text:
    return _text(title, Tone.STRONG)


def _text(text: str, tone: Tone = Tone.PLAIN) -> Text:
    return Text(_glued(text), STYLES[tone], overflow="fold")


def _glued(text: str) -> str:
    return ID_LIST.sub(_glue, visible(text))


def _glue(match: re.Match[str]) -> str:
    listed = match.group()
    return listed.replace(" ", GLUE) if len(listed) <= _LONGEST_WHOLE_LIST else listed


def _table(table: Table, width: int) -> RenderableType:
    notes = [Padding(_text(note, Tone.MUTED), (0, 0, 0, INDENT)) for note in table.notes]
    title = [_title(table.title)] if table.title else []
    return Group(*title, *(_grid(part, width) for part in _fitting(table, width)), *notes)


def _fitting(table: Table, width: int) -> list[Table]:
    """The table, or where it is too wide several, each with the pinned columns and as many others as fit."""
    widths = [width + COLUMN_FRAME for width in _widths(table)]
    pinned = list(range(min(table.pinned, len(widths))))
    room = width - 1 - sum(widths[: len(pinned)])
    parts: list[list[int]] = [[]]
    left = room
    for i in range(len(pinned), len(widths)):
        if parts[-1] and widths[i] > left:
            parts.append([])
            left = room
        parts[-1].append(i)
        left -= widths[i]
    return [table.select([*pinned, *part]) for part in parts]


def _widths(table: Table) -> list[int]:
    return [
        max(_cell_width(cell, whole=table.whole_cells) for cell in column)
        for column in zip(table.columns, *table.rows, strict=True)
    ]


def _cell_width(cell: Cell, *, whole: bool) -> int:
    """The columns that a cell needs to be read with ease."""
    lines = [_glued(cell.text), _glued(cell.detail)]
    pieces = lines if whole else [word for line in lines for word in line.split()]
    longest = max(map(cell_len, pieces), default=0)
    return longest if whole else min(longest, LONG_WORD)


def _grid(table: Table, width: int) -> RichTable:
    widths = _widths(table)
    fits = sum(widths) + COLUMN_FRAME * len(widths) < width
    drawn = RichTable(box=box.ROUNDED, header_style="bold", border_style="dim", padding=(0, 1))
    for i, column in enumerate(table.columns):
        # rich shrinks columns in proportion, through the middle of words, unless it is told how far it may go.
        least = widths[i] if fits else None
        drawn.add_column(_cell(column), overflow="fold", min_width=least, style="bold" if i == 0 else "")
    footer_start = len(table.rows) - table.footer_rows
    for i, row in enumerate(table.rows):
        drawn.add_row(*(_cell(cell) for cell in row), end_section=i == footer_start - 1)
    return drawn


def _cell(cell: Cell) -> Text:
    text = _text(cell.text, cell.tone)
    if cell.detail:
        text.append(f"\n{_glued(cell.detail)}", "not bold dim")
    return text


def _entries(block: Entries) -> RenderableType:
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    labels = [visible(entry.label.text) for entry in block.entries]
    grid.add_column(overflow="fold", max_width=max(map(cell_len, labels), default=1))
    grid.add_column(overflow="fold", ratio=1)
    for entry in block.entries:
        grid.add_row(_text(entry.label.text, entry.label.tone), _text(entry.text, entry.tone))
    body = Padding(grid, (0, 0, 0, INDENT))
    return Group(_title(block.title), body) if block.title else body


def _evidence(item: FindingItem) -> Text:
    told = Text(overflow="fold")
    crowded = False
    for i, (name, value) in enumerate(item.evidence):
        long = len(value) > LONG_EVIDENCE
        if i:
            told.append("\n" if long or crowded else " · ", "dim")
        told.append(f"{_glued(name)} ", "dim")
        told.append(_glued(value))
        crowded = long
    return told


def _finding(item: FindingItem) -> RenderableType:
    first = Text(overflow="fold")
    first.append(visible(item.severity).upper(), STYLES[item.tone] or "bold")
    first.append(f" {visible(item.code)} ", "dim")
    first.append(visible(item.name), "bold")
    for where in item.where:
        first.append(" · ", "dim")
        first.append(visible(where).replace("slot ", f"slot{GLUE}").replace("rank ", f"rank{GLUE}"))
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column()
    grid.add_column(overflow="fold", ratio=1)
    if item.evidence:
        grid.add_row(Text("evidence", "dim"), _evidence(item))
    if item.remedy:
        grid.add_row(Text("remedy", REMEDY), Text(_glued(item.remedy), "bold", overflow="fold"))
    return Group(first, Padding(Group(_text(item.message), grid), (0, 0, 0, INDENT)))
