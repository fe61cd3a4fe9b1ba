from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import stories
from markdown_it import MarkdownIt

from eagle_parity.report import SavedResult, merge_results
from eagle_parity.reporters import Style, render

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


@pytest.mark.parametrize("story", ["founding_story", "parity", "too_few_tokens"])
def test_looks_as_agreed(story: str, snapshot: SnapshotAssertion) -> None:
    assert render(getattr(stories, story)(), "markdown", Style()) == snapshot


def test_a_report_of_three_looks_as_agreed(snapshot: SnapshotAssertion) -> None:
    merged = merge_results(
        [
            SavedResult("before.json", stories.founding_story()),
            SavedResult("after.json", stories.parity()),
            SavedResult("states.json", stories.too_few_tokens()),
        ]
    )
    assert render(merged, "markdown", Style()) == snapshot


def test_hostile_text_is_no_markup() -> None:
    """Drawn by an independent renderer with raw HTML allowed, as GitHub does."""
    html = MarkdownIt("gfm-like", {"linkify": False}).enable("table").render(render_hostile())
    tags = set(re.findall(r"<(\w+)", html))
    assert tags <= {"h2", "h3", "p", "ul", "li", "code", "strong", "table", "thead", "tbody", "tr", "th", "td"} | {
        "details",
        "summary",
        "br",
    }
    assert "<b>" not in html
    assert "<script" not in html
    assert html.count("<strong>b</strong>") == 0
    rows = re.findall(r"<tr>.*?</tr>", html, flags=re.DOTALL)
    assert rows
    assert {row.count("<t") for row in rows} <= {2, 3, 4}  # no cell was split by a pipe


def render_hostile() -> str:
    return render(stories.hostile(), "markdown", Style())


def test_hostile_text_mentions_nobody_and_links_nowhere() -> None:
    outside_code = re.sub(r"(`+).*?\1", "", render_hostile())
    assert not re.search(r"(?<!\w)@\w", outside_code)
    assert not re.search(r"(?<!\\)://", outside_code)


def test_hostile_text_has_no_line_of_its_own() -> None:
    assert not [line for line in render_hostile().splitlines() if line.startswith("# ")]


def test_the_remedy_stands_outside_the_folded_part() -> None:
    text = render(stories.founding_story(), "markdown", Style())
    for finding in stories.founding_story().findings:
        assert "**Remedy:**" in text
        assert text.count("**Remedy:**") == len(stories.founding_story().findings)
        assert finding.name in text
