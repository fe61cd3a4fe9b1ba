from __future__ import annotations

import pytest

from eagle_parity.engines import newest_engines, parse_engine
from eagle_parity.engines.resolved import resolve_engine, resolve_engines
from eagle_parity.errors import UsageError


@pytest.mark.parametrize(
    "text",
    [
        "sglang@0.5.12",
        "sglang@0.5.12.post1",
        "sglang@0.5.12:embedding-capture=patched",
        "vllm@0.32.0:impl=transformers,runner=v2",
        "tensorrt-llm@1.2.0rc2:ids=-1+2+18,one-model=no",
    ],
)
def test_names_are_written_as_they_are_read(text: str) -> None:
    assert str(parse_engine(text)) == text


def test_options_are_sorted_and_v_is_dropped() -> None:
    assert str(parse_engine("vLLM@v0.32.0:runner=v2,impl=native")) == "vllm@0.32.0:impl=native,runner=v2"


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("tensorrt@1.0", "known: sglang, vllm, tensorrt-llm"),
        ("sglang", "no version"),
        ("sglang@", "no version"),
        ("sglang@newest", "no version"),
        ("sglang@0.5.12:runner=v2", "known: embedding-capture"),
        ("vllm@0.32.0:runner=v3", "known: v1, v2"),
        ("vllm@0.32.0:runner", "known: v1, v2"),
        ("trtllm@1.2.0rc2", "known: sglang, vllm, tensorrt-llm"),
        ("tensorrt-llm@1.2.0rc2:ids=", "a list such as 1"),
        ("tensorrt-llm@1.2.0rc2:ids=1+", "a list such as 1"),
        ("tensorrt-llm@1.2.0rc2:ids=1.5", "a list such as 1"),
        ("tensorrt-llm@1.2.0rc2:ids=" + "9" * 5000, "a list such as 1"),
        ("tensorrt-llm@1.2.0rc2:ids=" + "+".join(["1"] * 5000), "a list such as 1"),
        ("transformers@5.19.0", "capture transformers"),
        ("transformers", "capture transformers"),
    ],
)
def test_what_is_not_known_is_answered_with_what_is(text: str, listed: str) -> None:
    with pytest.raises(UsageError, match=listed):
        parse_engine(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vllm@0.32.0+cpu", "vllm@0.32.0"),
        ("sglang@0.5.12-post1", "sglang@0.5.12.post1"),
        ("sglang@0.5.12.0", "sglang@0.5.12"),
        ("sglang@0.5.23.dev1+g12", "sglang@0.5.23.dev1"),
        ("sglang@0.7.0", "sglang@0.7.0"),
    ],
)
def test_a_version_is_named_as_the_tables_have_it(text: str, name: str) -> None:
    assert str(parse_engine(text)) == name


@pytest.mark.parametrize(
    ("text", "version", "nearest"),
    [
        ("sglang@0.5.12.0", "0.5.12", None),
        ("vllm@0.32.0+cpu", "0.32.0", None),
        ("sglang@0.5.23.dev1+g12", None, "0.5.22"),
    ],
)
def test_a_dev_build_is_unknown_and_a_build_of_a_release_is_that_release(
    text: str, version: str | None, nearest: str | None
) -> None:
    resolved = resolve_engine(parse_engine(text), assume_nearest=False)
    assert (resolved.version, resolved.nearest) == (version, nearest)
    assert resolve_engine(parse_engine(text), assume_nearest=True).version == (version or nearest)


def test_an_engine_that_is_named_twice_is_resolved_once_and_in_order() -> None:
    names = [parse_engine(text) for text in ("vllm@0.32.0", "sglang@0.5.12", "vllm@v0.32.0+cpu", "sglang@0.5.12.0")]
    assert [str(r.name) for r in resolve_engines(names, assume_nearest=False)] == ["vllm@0.32.0", "sglang@0.5.12"]


def test_the_newest_engines_are_one_each_of_those_that_are_answered_for_unasked() -> None:
    assert [name.label for name in newest_engines()] == ["sglang@0.5.23", "vllm@0.32.0"]
