"""A report before it has a format: what is said, in order, without how it is drawn.

``content.py`` makes one from a result; ``terminal.py`` and ``markdown.py`` draw it. Text in here is raw: whoever draws
it escapes it for its own format.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence


def rest(count: int, of: str = "more") -> str:
    """What stands for what isn't told: ``and 12 more; --format json has them all``."""
    return f"and {count:,} {of}; --format json has them all"


class Tone(StrEnum):
    """What a piece of text means, so that each format can show it its own way."""

    PLAIN = "plain"
    STRONG = "strong"
    MUTED = "muted"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of text.

    Attributes:
        text: what it says.
        tone: what that means.
        code: whether it is a name or value that a person may copy.
        detail: a second line, less loud.
    """

    text: str
    tone: Tone = Tone.PLAIN
    code: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """The first line: the verdict (empty where the command judges nothing), the command, one sentence."""

    verdict: str
    tone: Tone
    command: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        title: above it.
        columns: the headers; as many as each row has cells.
        rows: the cells.
        notes: lines below it.
        pinned: how many of the first columns are repeated where the width is short and the others go into several
            tables, one below the other.
        footer_rows: how many of the last rows are set apart.
        whole_cells: whether a cell is one thing, which had better not be wrapped.
    """

    title: str
    columns: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    pinned: int = 1
    footer_rows: int = 0
    whole_cells: bool = False

    def bounded(self, limit: int) -> Table:
        """The same with the first rows only; what is set apart at the end stays."""
        body = len(self.rows) - self.footer_rows
        if body <= limit:
            return self
        rows = (*self.rows[:limit], *self.rows[body:])
        return replace(self, rows=rows, notes=(rest(body - limit), *self.notes))

    def select(self, columns: Sequence[int]) -> Table:
        """The same with some columns."""
        return replace(
            self,
            columns=tuple(self.columns[i] for i in columns),
            rows=tuple(tuple(row[i] for i in columns) for row in self.rows),
        )

    def without_empty_columns(self) -> Table:
        """The same without the columns in which no row says anything; the first column stays."""
        return self.select([i for i in range(len(self.columns)) if i == 0 or any(row[i].text for row in self.rows)])


@dataclass(frozen=True, slots=True)
class Entry:
    """A labelled line of a list."""

    label: Cell
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Entries:
    """A titled list of labelled lines."""

    title: str
    entries: tuple[Entry, ...]

    def bounded(self, limit: int) -> Entries:
        """The same with the first entries only, and how many others there are."""
        if len(self.entries) <= limit:
            return self
        left = Entry(Cell("", Tone.MUTED), rest(len(self.entries) - limit), Tone.MUTED)
        return replace(self, entries=(*self.entries[:limit], left))


@dataclass(frozen=True, slots=True)
class FindingItem:
    """A finding as it is told.

    Attributes:
        severity: the word.
        tone: its tone.
        code: ``EP201``.
        name: ``spurious-embedding``.
        where: engine, slot, rank, sources: what it is about.
        message: the finding's.
        evidence: name and value pairs, compact.
        remedy: the finding's.
        more: others like this one and those before it, which aren't told one by one.
    """

    severity: str
    tone: Tone
    code: str
    name: str
    where: tuple[str, ...]
    message: str
    evidence: tuple[tuple[str, str], ...]
    remedy: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """A titled list of findings.

    Attributes:
        title: above it.
        items: the findings.
        more: how many others there are.
    """

    title: str
    items: tuple[FindingItem, ...]
    more: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of prose."""

    text: str
    tone: Tone = Tone.PLAIN


Block: TypeAlias = Table | Entries | Findings | Paragraph


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    headline: Headline
    blocks: tuple[Block, ...]
