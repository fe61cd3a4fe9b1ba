from __future__ import annotations

import pytest

from eagle_parity.engines import newest_engines, parse_engine
from eagle_parity.versions import in_range, nearest_version, parse_version as version_key
from eagle_parity.engines.sglang import VERSIONS
from eagle_parity.errors import UsageError


@pytest.mark.parametrize(
    "text",
    [
        "sglang@0.5.12",
        "sglang@0.5.12.post1",
        "sglang@0.5.12:embedding-capture=patched",
        "vllm@0.32.0:impl=transformers,runner=v2",
    ],
)
def test_names_are_written_as_they_are_read(text: str) -> None:
    assert str(parse_engine(text)) == text


def test_options_are_sorted_and_v_is_dropped() -> None:
    assert str(parse_engine("vLLM@v0.32.0:runner=v2,impl=native")) == "vllm@0.32.0:impl=native,runner=v2"


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("tensorrt@1.0", "known: sglang, vllm"),
        ("sglang", "no version"),
        ("sglang@", "no version"),
        ("sglang@newest", "no version"),
        ("sglang@0.5.12:runner=v2", "known: embedding-capture"),
        ("vllm@0.32.0:runner=v3", "known: v1, v2"),
        ("vllm@0.32.0:runner", "known: v1, v2"),
    ],
)
def test_what_is_not_known_is_answered_with_what_is(text: str, listed: str) -> None:
    with pytest.raises(UsageError, match=listed):
        parse_engine(text)


def test_versions_are_ordered_as_numbers() -> None:
    shuffled = [*VERSIONS[1::2], *VERSIONS[::2]]
    assert sorted(shuffled, key=version_key) == list(VERSIONS)
    assert version_key("0.5.9") < version_key("0.5.10") < version_key("0.5.10.post1") < version_key("0.5.11")
    assert version_key("0.5.12rc1") < version_key("0.5.12")
    assert in_range("0.5.12.post1", "0.5.11", "0.5.12.post1")
    assert not in_range("0.5.12.post1", "0.5.11", "0.5.12")


@pytest.mark.parametrize(("version", "nearest"), [("0.5.99", "0.5.23"), ("0.4.0", "0.5.8"), ("0.5.14.post2", "0.5.14")])
def test_the_nearest_version_is_not_newer_where_one_is_older(version: str, nearest: str) -> None:
    assert nearest_version(version, VERSIONS) == nearest


def test_the_newest_engines_are_one_each() -> None:
    assert [name.label for name in newest_engines()] == ["sglang@0.5.23", "vllm@0.32.0"]
