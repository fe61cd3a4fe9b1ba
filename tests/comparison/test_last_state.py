from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from builders import Written
from states_in_memory import in_memory

from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.errors import UsageError
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.results import Result
    from eagle_parity.wiring import Boundary

LAYERS = 10
IDS = torch.arange(1, 41)
STATES: dict[Boundary, torch.Tensor] = {
    boundary: torch.randn(40, 16, generator=torch.Generator().manual_seed(seed))
    for seed, boundary in enumerate([*range(LAYERS + 1), POST_NORM])
}


def undecided(boundaries: Sequence[Boundary]) -> HiddenStates:
    return in_memory([Written(IDS, [STATES[b] for b in boundaries])], undecided=True)


def decided(boundaries: Sequence[Boundary], last_state: Boundary | None = None) -> HiddenStates:
    last = None if last_state is None else STATES[last_state]
    return in_memory([Written(IDS, [STATES[b] for b in boundaries], last_state=last)], last_state=last_state)


def reference(boundaries: Sequence[Boundary] = tuple(range(LAYERS + 1)), *, layers: int | None = LAYERS) -> Any:
    written = Written(IDS, [STATES[b] for b in boundaries])
    return in_memory([written], declared=list(boundaries), num_layers=layers)


def compare(trained: HiddenStates, live: HiddenStates, **more: Any) -> Result:
    return diff_captures(DiffInputs(trained=trained, live=live, **more))


def names(result: Result) -> list[str]:
    return [finding.name for finding in result.findings]


def told(result: Result, role: str) -> str:
    note = result.measurements[role]["last_state_note"]
    said = {skip.reason for skip in result.skipped if skip.check == "declared-wiring"}
    assert f"{role}: its final state is compared as the {note}" in said
    return str(note)


def test_a_reference_that_holds_the_last_boundary_settles_it() -> None:
    result = compare(undecided([2, 5, 7, 10]), decided([2, 5, 7]), reference=reference())
    assert names(result) == []
    assert told(result, "trained") == "last state: by the reference, its final state is the target's last boundary"
    assert (result.wiring.trained, result.wiring.last_state.trained) == ([2, 5, 7], 10)
    result = compare(undecided([2, 5, 7]), decided([2, 5, 7]), reference=reference())
    assert names(result) == []
    assert told(result, "trained").startswith("slot: by the reference")


def test_a_reference_that_lacks_the_last_boundary_settles_nothing() -> None:
    # Of boundaries 2, 5 and 7, 7 is the greatest and nevertheless a slot.
    for layers in (LAYERS, None):
        result = compare(undecided([2, 5, 7]), undecided([2, 5, 7]), reference=reference((2, 5, 7), layers=layers))
        assert names(result) == []
        assert told(result, "trained").startswith("slot: ")
        assert result.wiring.live == [2, 5, 7]


def test_a_declaration_with_one_entry_less_settles_it_without_a_reference() -> None:
    result = compare(undecided([2, 5, 7, 10]), decided([2, 5, 7]), trained_boundaries=(2, 5, 7))
    assert names(result) == []
    assert told(result, "trained") == "last state: --trained-boundaries names one state less than there are"


def test_one_entry_more_than_slots_names_the_last_state() -> None:
    result = compare(undecided([2, 5, 7, 10]), decided([2, 5, 7]), trained_boundaries=(2, 5, 7, 10))
    assert names(result) == []
    assert (result.wiring.trained, result.wiring.last_state.trained) == ([2, 5, 7], 10)
    result = compare(decided([2, 5, 7]), undecided([2, 5, 7, 10]), live_boundaries=(2, 5, 7, POST_NORM))
    assert result.wiring.last_state.live == POST_NORM


def test_the_other_sides_number_of_slots_settles_it() -> None:
    result = compare(undecided([2, 5, 7, 10]), decided([2, 5, 7], 10))
    assert names(result) == []
    assert told(result, "trained") == "last state: the other side has 3 slots"
    result = compare(undecided([2, 5, 7, 10]), decided([2, 5, 7, 10]))
    assert names(result) == []
    assert told(result, "trained") == "slot: the other side has 4 slots"


def test_where_nothing_tells_both_are_compared_whole() -> None:
    result = compare(undecided([2, 5, 7, 10]), undecided([2, 5, 7, 10]))
    assert names(result) == []
    assert told(result, "trained").startswith("slot: ")
    assert len(result.measurements["slots"]) == 4


@pytest.mark.parametrize("longer", ["trained", "live"])
def test_one_state_more_where_both_leave_it_open_leaves_the_verdict_open(longer: str) -> None:
    sides = {"trained": undecided([2, 5, 7]), "live": undecided([2, 5, 7]), longer: undecided([2, 5, 7, 10])}
    result = compare(sides["trained"], sides["live"])
    assert names(result) == []
    assert result.verdict == "inconclusive"
    assert told(result, "trained" if longer == "live" else "live").startswith("slot: ")
    assert told(result, longer).startswith("last state: a guess, as it has one state more than the other side")
    assert any(skip.blocks_verdict and f"--{longer}-boundaries" in skip.reason for skip in result.skipped)
    # Said, or measured, it is no guess.
    result = compare(sides["trained"], sides["live"], **{f"{longer}_boundaries": (2, 5, 7)})
    assert (names(result), result.verdict) == ([], "pass")
    result = compare(sides["trained"], sides["live"], reference=reference())
    assert (names(result), result.verdict) == ([], "pass")
    # And a wrong layer is an error whichever it is.
    wrong = undecided([2, 5, 8]) if longer == "trained" else undecided([2, 5, 8, 10])
    other = sides["trained"]
    assert names(compare(other, wrong, reference=reference())) == ["layer-mismatch"]


def test_a_number_of_slots_that_fits_neither_way_is_a_slot_count() -> None:
    result = compare(undecided([2, 5, 7, 10]), decided([2, 5]))
    assert names(result) == ["slot-count"]


def test_the_last_state_is_measured_against_a_reference() -> None:
    trained = in_memory([Written(IDS, [STATES[2]], last_state=STATES[10])])
    result = compare(trained, decided([2]), reference=reference())
    assert result.wiring.last_state.trained == 10


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("option", ["trained_boundaries", "live_boundaries"])
def test_a_list_of_another_length_is_a_usage_error(option: str, count: int) -> None:
    with pytest.raises(UsageError, match=rf"--{option.replace('_', '-')}: {count} boundaries for 3 slots"):
        compare(decided([2, 5, 7], 10), decided([2, 5, 7], 10), **{option: tuple(range(count))})


def test_a_reference_list_of_another_length_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--reference-boundaries: 2 boundaries for 11 states"):
        compare(decided([2]), decided([2]), reference=reference(), reference_boundaries=(1, 2))
