from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import stories
from rich.cells import cell_len

from eagle_parity import findings
from eagle_parity.report import SavedResult, merge_results
from eagle_parity.reporters import Style, render
from eagle_parity.results import Outcome, Result, ServedWiring, WiringSummary, conclude

if TYPE_CHECKING:
    from collections.abc import Callable

    from syrupy.assertion import SnapshotAssertion

ANSI = re.compile(r"\x1b")


def report_of_three() -> Result:
    return merge_results(
        [
            SavedResult("before.json", stories.founding_story()),
            SavedResult("after.json", stories.parity()),
            SavedResult("states.json", stories.too_few_tokens()),
        ]
    )


STORIES: dict[str, Callable[[], Result]] = {
    "founding_story": stories.founding_story,
    "parity": stories.parity,
    "too_few_tokens": stories.too_few_tokens,
    "report_of_three": report_of_three,
}


@pytest.mark.parametrize("width", [120, 60])
@pytest.mark.parametrize("story", STORIES)
def test_looks_as_agreed(story: str, width: int, snapshot: SnapshotAssertion) -> None:
    assert render(STORIES[story](), "terminal", Style(width=width)) == snapshot


def test_quiet_is_verdict_and_findings(snapshot: SnapshotAssertion) -> None:
    text = render(stories.founding_story(), "terminal", Style(width=100, quiet=True))
    assert "Wirings" not in text
    assert "Skipped: fc-width" in text
    assert text == snapshot


@pytest.mark.parametrize("width", [0, 10, 20, 25, 33, 39, 40, 60, 77, 100, 120, 200])
@pytest.mark.parametrize("story", [*STORIES, "hostile"])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(story: str, width: int) -> None:
    result = {**STORIES, "hostile": stories.hostile}[story]()
    text = render(result, "terminal", Style(width=width))
    assert max(map(cell_len, text.splitlines())) <= (max(width, 20) if width else 40)
    squeezed = re.sub(r"\s", "", text)
    assert "…" not in text
    if story == "founding_story":
        for finding in result.findings:
            assert re.sub(r"\s", "", finding.remedy) in squeezed


@pytest.mark.parametrize("width", [20, 25, 39, 60, 80, 120])
def test_an_id_list_is_never_broken(width: int) -> None:
    text = render(stories.founding_story(), "terminal", Style(width=width))
    assert not [line for line in text.splitlines() if re.search(r"\[-?\d+,[^\]]*$", line)]


def test_colour_is_off_by_default_and_changes_no_word() -> None:
    plain = render(stories.founding_story(), "terminal", Style(width=100))
    coloured = render(stories.founding_story(), "terminal", Style(width=100, color=True))
    assert not ANSI.search(plain)
    assert ANSI.search(coloured)
    words = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in words.splitlines()] == plain.splitlines()


def test_colour_follows_the_style_and_not_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not ANSI.search(render(stories.founding_story(), "terminal", Style(width=100)))
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert ANSI.search(render(stories.founding_story(), "terminal", Style(width=100, color=True)))


def test_ascii_where_the_reader_has_no_more() -> None:
    text = render(stories.founding_story(), "terminal", Style(width=100, unicode=False))
    assert text.isascii()
    assert "0 (embedding) x" in text


def test_hostile_text_stays_text() -> None:
    text = render(stories.hostile(), "terminal", Style(width=100))
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "[bold]x[/bold]" in text
    assert "\\x1b[31m" in text
    assert "\\u202e" in text


def test_hostile_text_brings_no_colour_of_its_own() -> None:
    coloured = render(stories.hostile(), "terminal", Style(width=100, color=True))
    assert set(re.findall(r"\x1b(.)", coloured)) == {"["}
    assert "\x1b]8" not in coloured


def test_an_engine_without_a_finding_gives_its_reason_below_the_table() -> None:
    served = ServedWiring(
        engine="sglang@0.5.23",
        options={},
        boundaries=[],
        key=None,
        default=False,
        outcome=Outcome.UNSUPPORTED,
        reason="this class has no setter",
    )
    wiring = WiringSummary(served=[served])
    silent = conclude("check-config", outcomes=[], judged=True, wiring=wiring)
    text = render(silent, "terminal", Style(width=100))
    assert "sglang@0.5.23: this class has no setter" in text
    assert "unsupported" in text
    told = [findings.UNSUPPORTED_TARGET.finding("It can't.", engine="sglang@0.5.23")]
    loud = conclude("check-config", outcomes=told, judged=True, wiring=wiring)
    assert "this class has no setter" not in render(loud, "terminal", Style(width=100))


def test_columns_that_no_row_needs_are_dropped() -> None:
    text = render(stories.parity(), "terminal", Style(width=100))
    assert "sequences" not in text
    assert "last state" not in text


def test_a_command_that_judges_nothing_says_no_verdict() -> None:
    assert render(conclude("ids", outcomes=[], judged=True), "terminal", Style()).startswith("ids ")
    failed = conclude("ids", outcomes=[findings.LAYER_MISMATCH.finding("x")], judged=True)
    assert render(failed, "terminal", Style()).startswith(" FAIL ")


def test_measurements_of_any_shape_are_shown() -> None:
    deep: dict[str, object] = {}
    for _ in range(500):
        deep = {"deeper": deep, "list": [deep]}
    measured = {
        "format": "capture",
        "nothing": None,
        "rows": [{"engine": "sglang", "ids": [2, 30, 58]}, {"engine": "vllm", "note": "default"}],
        "numbers": list(range(100)),
        "deep": deep,
    }
    text = render(conclude("new", outcomes=[], judged=True, measurements=measured), "terminal", Style(width=100))
    assert "[2, 30, 58]" in text
    assert "... 100 in all" in text
    assert "default" in text
    assert "nothing" not in text


def test_measurements_of_another_release_are_shown_by_shape() -> None:
    result = conclude("diff-captures", outcomes=[], judged=True, measurements={"slots": [{"slot": 0, "odd": 1.25}]})
    assert "1.25" in render(result, "terminal", Style())
