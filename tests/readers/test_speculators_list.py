"""The ids beside the shards mean what the release that wrote them meant: the trainer's rule, by its version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders import make_sequences, write_speculators_list

from eagle_parity.readers import describe_shards

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("version", "slots", "last_state"),
    [
        ("0.3.0", (3, 6, 8), 10),
        ("0.4.0", (3, 6, 8), 10),
        ("v0.4.0+g12", (3, 6, 8), 10),
        # It never wrote this layout; if it had, its ids would be boundaries.
        ("0.5.0", (2, 5, 7), 9),
    ],
)
def test_the_version_decides_what_the_ids_mean(
    tmp_path: Path, version: str, slots: tuple[int, ...], last_state: int
) -> None:
    layout = describe_shards(str(write_speculators_list(tmp_path, make_sequences([4]), version=version)))
    assert layout.declared is not None
    assert (layout.declared.slots, layout.declared.last_state) == (slots, last_state)
    assert layout.last_state_boundary == last_state
    assert f"the rule of speculators {version}" in (layout.declared_by or "")


@pytest.mark.parametrize("version", ["0.10.0", "0.4.1.dev3", "nightly", ""])
def test_a_version_whose_rule_is_not_known_is_not_guessed(tmp_path: Path, version: str) -> None:
    layout = describe_shards(str(write_speculators_list(tmp_path, make_sequences([4]), version=version)))
    assert (layout.declared, layout.last_state_boundary) == (None, None)
    assert any(f"speculators {version}" in sentence for sentence in layout.unknown)
