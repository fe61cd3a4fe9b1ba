from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from eagle_parity.reporters.escaping import code_span, json_safe, markdown, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größe 層 ✗", "größe 層 ✗"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x9b31m", r"\x9b31m"),
        ("gpj.\u202etxt", r"gpj.\u202etxt"),
        ("\u2028", r"\u2028"),
        ("\ue000", r"\ue000"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_unsafe_characters_are_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_what_is_visible_is_printable(text: str) -> None:
    assert not [c for c in visible(text) if not c.isprintable() and c != "\u3000" and not c.isspace()]
    assert "\x1b" not in visible(text)
    assert "\n" not in visible(text)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5))
def test_safe_json_is_the_same_document(value: object) -> None:
    raw = json.dumps(value, ensure_ascii=False)
    safe = json_safe(raw)
    assert json.loads(safe) == json.loads(raw)
    assert not {"\x9b", "\u202e", "\x7f", "\u2028"} & set(safe)


@given(st.text(alphabet=st.sampled_from("ab1`*_[]()<>&|~#!-+=.:/\\ \n@$'\"")))
def test_markdown_holds_nothing_but_text_and_code(text: str) -> None:
    html = MarkdownIt("gfm-like", {"linkify": False}).render(markdown(text))
    rest = html.replace("<p>", "").replace("</p>", "").replace("<code>", "").replace("</code>", "")
    assert "<" not in rest


@given(st.text(alphabet=st.sampled_from("ab` |<&\\"), min_size=1))
def test_a_code_span_is_one_code_span(text: str) -> None:
    html = MarkdownIt().render(f"x {code_span(text)} y").strip()
    assert html.startswith("<p>x <code>")
    assert html.endswith("</code> y</p>")
    assert html.count("<code>") == 1
