"""Versions as packages really state them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_parity.engines.sglang import VERSIONS
from eagle_parity.errors import UsageError
from eagle_parity.versions import in_range, known_version, nearest_version, parse_version, spell_version


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("0.5.12", "0.5.12"),
        ("v0.5.12", "0.5.12"),
        ("0.32.0+cpu", "0.32.0"),
        ("0.32.0+cu129.g1a2b3c", "0.32.0"),
        ("0.5.12-post1", "0.5.12.post1"),
        ("0.5.12-1", "0.5.12.post1"),
        ("0.5.12post1", "0.5.12.post1"),
        ("0.5.12.rev1", "0.5.12.post1"),
        ("0.5.12.post", "0.5.12.post0"),
        ("0.5.23.dev1+g12", "0.5.23.dev1"),
        ("0.5.12-RC.1", "0.5.12rc1"),
        ("0.5.12alpha", "0.5.12a0"),
        ("0.5.12rc1.post2.dev3", "0.5.12rc1.post2.dev3"),
        (" 0.5.12 ", "0.5.12"),
    ],
)
def test_every_spelling_is_read(text: str, spelt: str) -> None:
    assert spell_version(text) == spelt
    assert parse_version(text) == parse_version(spelt)


@pytest.mark.parametrize(
    "text", ["", "newest", "0.5.x", "0.5.12+", "1!0.5.12", "0.5.12.post1.post2", "0." * 9, "9" * 40]
)
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(UsageError, match="is no version"):
        parse_version(text)


def test_the_order() -> None:
    ordered = [
        "0.5.9",
        "0.5.10.dev1",
        "0.5.10a1.dev1",
        "0.5.10a1",
        "0.5.10b1",
        "0.5.10rc1",
        "0.5.10rc2",
        "0.5.10",
        "0.5.10.post1.dev1",
        "0.5.10.post1",
        "0.5.11",
        "0.6",
    ]
    keys = [parse_version(text) for text in ordered]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert [text for text in ordered if parse_version(text).is_release] == [
        "0.5.9",
        "0.5.10",
        "0.5.10.post1",
        "0.5.11",
        "0.6",
    ]
    shuffled = [*VERSIONS[1::2], *VERSIONS[::2]]
    assert sorted(shuffled, key=parse_version) == list(VERSIONS)


def test_ranges_are_inclusive() -> None:
    assert in_range("0.5.12.post1", "0.5.11", "0.5.12.post1")
    assert not in_range("0.5.12.post1", "0.5.11", "0.5.12")
    assert in_range("0.5.11.0", "0.5.11", "0.5.12")


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("0.5.12.0", "0.5.12"),
        ("0.5.12-post1", "0.5.12.post1"),
        ("0.5.12+cu129", "0.5.12"),
        ("0.5.23.dev1+g12", None),
        ("0.5.23rc1", None),
        ("0.5.12.post2", None),
        ("0.5", None),
    ],
)
def test_a_known_version_is_found_by_meaning_and_a_pre_release_is_none(version: str, known: str | None) -> None:
    assert known_version(version, VERSIONS) == known


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("0.5.99", "0.5.23"),
        ("0.4.0", "0.5.8"),
        ("0.5.14.post2", "0.5.14"),
        ("0.5.23.dev1+g12", "0.5.22"),
        ("0.5.23rc1", "0.5.22"),
    ],
)
def test_the_nearest_version_is_not_newer_where_one_is_older(version: str, nearest: str) -> None:
    assert nearest_version(version, VERSIONS) == nearest


@given(st.text(alphabet="0123456789.postrcdev+-v", max_size=16))
def test_spelling_keeps_the_meaning_and_is_stable(text: str) -> None:
    try:
        spelt = spell_version(text)
    except UsageError:
        return
    assert parse_version(spelt) == parse_version(text)
    assert spell_version(spelt) == spelt
