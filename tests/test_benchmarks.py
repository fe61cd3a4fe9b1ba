"""What of the benchmarks is no measurement: the numbers that are made of rounds, the data, the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import data, figures, startup
from eagle_parity.cli import COMMANDS, GROUPS
from eagle_parity.hidden_states import StateSequence
from eagle_parity.readers import open_hidden_states

if TYPE_CHECKING:
    from pathlib import Path


def test_every_command_is_started() -> None:
    grouped = [f"{name} {sub}" for name, group in GROUPS.items() for sub in group.commands]
    assert {*COMMANDS, *grouped} == set(startup.COMMANDS)


def test_few_rounds_are_told_by_their_least_and_most_and_many_by_quartiles() -> None:
    assert figures.Line("read", "s", (2.0, 1.0, 4.0)).spread == (1.0, 4.0)
    assert figures.Line("read", "s", tuple(float(n) for n in range(1, 8))).spread == (2.0, 6.0)
    assert figures.Line("read", "s", (2.0,)).spread is None


def test_what_couldnt_be_measured_has_a_line_and_no_number() -> None:
    topic = figures.Topic("peers", "CPU seconds")
    topic.absent("another tool", "can't be installed")
    (line,) = topic.plain()["lines"]
    assert (line["median"], line["rounds"], line["note"]) == (None, [], "can't be installed")


def test_ratios_are_made_round_by_round() -> None:
    assert figures.ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    with pytest.raises(ValueError, match="longer"):
        figures.ratios([1.0], [1.0, 2.0])


def test_generated_shards_are_recognised_and_no_two_have_the_same_ids(tmp_path: Path) -> None:
    data._small(tmp_path, 3)
    states = open_hidden_states(str(tmp_path / "trained"), role="trained")
    assert (states.layout.format, states.layout.slots, states.layout.hidden_size) == (
        "stacked",
        data.STATES,
        data.SMALL_WIDTH,
    )
    ids = set()
    for sequence in states:
        assert isinstance(sequence, StateSequence)
        assert sequence.token_ids is not None
        ids.add(tuple(sequence.token_ids.tolist()))
    assert len(ids) == 3
