"""The report as Markdown, for a pull request's comment or a job's summary on GitHub."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from eagle_parity.reporters.content import document
from eagle_parity.reporters.document import Entries, Findings, Paragraph, Table, Tone
from eagle_parity.reporters.escaping import code_span, markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.reporters.document import Block, Cell, FindingItem, Headline
    from eagle_parity.results import Result

MARKS = {Tone.GOOD: "✅", Tone.BAD: "❌", Tone.WARNING: "⚠️", Tone.NOTE: "💡", Tone.STRONG: ""}


def render_markdown(result: Result) -> str:
    """The report in GitHub's Markdown, with a final newline."""
    made = document(result)
    parts = [_headline(made.headline), *(_block(block) for block in made.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(headline: Headline) -> str:
    verdict = f"{MARKS.get(headline.tone, '')} {headline.verdict}: " if headline.verdict else ""
    return f"## {verdict}{code_span(f'eagle-parity {headline.command}')}\n\n{markdown(headline.sentence)}"


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Entries():
            lines = [f"- {_label(entry.label)}{markdown(entry.text)}" for entry in block.entries]
            return _titled(block.title, "\n".join(lines))
        case Findings():
            told = [*(_finding(item) for item in block.items), *([markdown(block.more)] if block.more else [])]
            return _titled(block.title, "\n\n".join(told))
        case Paragraph():
            return _emphasised(markdown(block.text), strong=block.tone is Tone.STRONG)
        case _:
            assert_never(block)


def _titled(title: str, body: str) -> str:
    return f"### {markdown(title)}\n\n{body}" if title else body


def _emphasised(text: str, *, strong: bool) -> str:
    return f"**{text}**" if strong and text else text


def _label(label: Cell) -> str:
    if not label.text:
        return ""
    return f"{code_span(label.text) if label.code else _emphasised(markdown(label.text), strong=True)}: "


def _table(table: Table) -> str:
    lines = [_row(table.columns), "|" + " --- |" * len(table.columns), *(_row(row) for row in table.rows)]
    notes = "".join(f"\n\n{markdown(note)}" for note in table.notes)
    return _titled(table.title, "\n".join(lines) + notes)


def _row(cells: Sequence[Cell]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(cell: Cell) -> str:
    text = code_span(cell.text) if cell.code and cell.text else markdown(cell.text)
    # Colour doesn't exist here: what is wrong stands in bold.
    text = _emphasised(text, strong=cell.tone in {Tone.BAD, Tone.STRONG})
    return f"{text}<br>{markdown(cell.detail)}" if cell.detail else text


def _finding(item: FindingItem) -> str:
    where = f" ({markdown(', '.join(item.where))})" if item.where else ""
    mark = MARKS.get(item.tone, "")
    lines = [f"- {mark} **{markdown(item.severity)} {markdown(item.code)}** {code_span(item.name)}{where}"]
    lines.append(f"  {markdown(item.message)}")
    if item.remedy:
        lines.append(f"  **Remedy:** {markdown(item.remedy)}")
    if item.evidence:
        told = "\n".join(f"  - {markdown(name)}: {markdown(value)}" for name, value in item.evidence)
        lines.append(f"  <details><summary>Evidence</summary>\n\n{told}\n\n  </details>")
    if item.more:
        lines.append(f"  {markdown(item.more)}")
    return "\n\n".join(lines)
