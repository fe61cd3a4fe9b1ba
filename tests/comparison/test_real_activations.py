"""Each fault on states of a real model: one case that must fire, told as one error, and its like that must stay silent.

Everything is bfloat16 (live) against float32 (trained) unless a case says otherwise, and every text begins with a sink
token whose norm is up to 150 times that of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from builders import Written
from real_states import LAYERS, TRAINED
from states_in_memory import in_memory

from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.findings import Severity
from eagle_parity.numerics.rows import row_norms
from eagle_parity.numerics.sinks import SINK_RATIO, find_sinks
from eagle_parity.results import ExitStatus, FailOn, exit_status
from eagle_parity.targets import read_target
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from real_states import RealStates

    from eagle_parity.findings import Finding
    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.results import Result

pytestmark = pytest.mark.usefixtures("one_thread")

HELP = ("alone", "reference", "target", "both")
"""What is given beside the two sides: nothing, a capture of all boundaries, the target's weights, or both."""


def compare(real: RealStates, live: HiddenStates, given: str = "both", trained: HiddenStates | None = None) -> Result:
    return diff_captures(
        DiffInputs(
            trained=real.side() if trained is None else trained,
            live=live,
            reference=real.reference if given in {"reference", "both"} else None,
            target=read_target(str(real.target)) if given in {"target", "both"} else None,
        )
    )


def errors(result: Result) -> list[Finding]:
    return [finding for finding in result.findings if finding.severity is Severity.ERROR]


def the_error(result: Result, name: str) -> Finding:
    """The one error of a result, which must be of this name, with exit status 1."""
    found = errors(result)
    assert [finding.name for finding in found] == [name], [(f.name, f.message) for f in result.findings]
    assert exit_status(result, FailOn.ERROR) is ExitStatus.FOUND
    assert 0.5 <= found[0].confidence <= 1
    return found[0]


def silent(result: Result) -> None:
    """Exit status 0, and nothing found."""
    assert [(finding.name, finding.message) for finding in result.findings] == []
    assert exit_status(result, FailOn.WARNING) is ExitStatus.PARITY
    assert result.verdict == "pass"


def live_of(finding: Finding) -> list[Any]:
    return [slot["live"] for slot in finding.evidence["slots"]]


# What is no fault ---------------------------------------------------------------------------------------------------


def test_there_is_a_sink_token_in_every_text(real: RealStates) -> None:
    for states in real.states["float32"]:
        found = set()
        for boundary in TRAINED:
            norms = row_norms(states[boundary])
            assert float(norms[0] / norms.median()) > SINK_RATIO
            found |= set(find_sinks(norms[None]).nonzero().flatten().tolist())
        assert 0 in found
        assert len(found) <= 2  # one text has a second one


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("given", HELP)
def test_numerics_are_no_fault(real: RealStates, kind: str, given: str) -> None:
    result = compare(real, real.side(kind=kind), given)
    silent(result)
    for slot in result.measurements["slots"]:
        assert 4 <= slot["pair"]["sink_rows"] <= 8
        assert slot["pair"]["distance"] < 0.04
    if given in {"reference", "both"}:
        assert result.wiring.trained == list(TRAINED)
        assert result.wiring.live == list(TRAINED)


def test_the_trained_side_may_be_the_noisy_one(real: RealStates) -> None:
    silent(compare(real, real.side(), trained=real.side(kind="int8")))


def test_int8_at_every_boundary_is_that_boundary(real: RealStates) -> None:
    wiring = range(LAYERS + 1)
    result = compare(real, real.side(wiring, kind="int8"), "reference", trained=real.side(wiring))
    silent(result)
    assert result.wiring.live == [*wiring]


# Wirings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", HELP)
def test_spurious_embedding(real: RealStates, given: str) -> None:
    finding = the_error(compare(real, real.side((0, 3, 16), kind="bfloat16"), given), "spurious-embedding")
    assert finding.slot == 0
    assert finding.evidence["live"][0] == 0
    assert "one slot late" in finding.message
    if given in {"reference", "both"}:
        assert (finding.evidence["trained"], finding.evidence["live"]) == ([3, 16, 28], [0, 3, 16])
        assert "Serve boundaries (3, 16, 28)" in finding.remedy


@pytest.mark.parametrize("given", HELP)
def test_an_embedding_that_was_trained_on_is_none_too_many(real: RealStates, given: str) -> None:
    silent(compare(real, real.side((0, 3, 16), kind="bfloat16"), given, trained=real.side((0, 3, 16))))


@pytest.mark.parametrize("given", HELP)
def test_missing_embedding(real: RealStates, given: str) -> None:
    trained = real.side((0, 3, 16))
    finding = the_error(compare(real, real.side(kind="bfloat16"), given, trained=trained), "missing-embedding")
    assert finding.slot == 0
    assert finding.evidence["trained"][0] == 0


@pytest.mark.parametrize("given", ["target", "both"])
def test_the_embedding_is_known_by_the_targets_weights_where_no_token_repeats(real: RealStates, given: str) -> None:
    short: dict[str, Any] = {"texts": [0], "rows": 16}
    live = real.side((0, 3, 16), kind="bfloat16", **short)
    assert the_error(compare(real, live, given, real.side(**short)), "spurious-embedding").slot == 0
    trained = real.side((0, 3, 16), **short)
    live = real.side(kind="bfloat16", **short)
    assert the_error(compare(real, live, given, trained), "missing-embedding").slot == 0


def test_an_embedding_that_nothing_names_is_one_error_all_the_same(real: RealStates) -> None:
    short: dict[str, Any] = {"texts": [0], "rows": 16}
    result = compare(real, real.side((0, 3, 16), kind="bfloat16", **short), "alone", real.side(**short))
    assert "one slot late" in the_error(result, "layer-mismatch").message


@pytest.mark.parametrize(
    ("wiring", "offset"), [((4, 17, 29), 1), ((2, 15, 27), -1), ((7, 20, 30), None), ((5, 18, 30), 2)]
)
def test_all_slots_late_or_early(real: RealStates, wiring: tuple[int, ...], offset: int | None) -> None:
    live = real.side(wiring, kind="bfloat16")
    for given in ("reference", "both"):
        finding = the_error(compare(real, live, given), "layer-mismatch")
        assert finding.evidence["offset"] == offset
        assert (finding.evidence["trained_boundary"], finding.evidence["live_boundary"]) == (3, wiring[0])
        assert live_of(finding) == list(wiring)
        assert all(slot["margin"] > 5 for slot in finding.evidence["slots"])
    # Without a reference nothing can name the layer, and it is an error all the same.
    finding = the_error(compare(real, live, "alone"), "unexplained-difference")
    assert [slot["slot"] for slot in finding.evidence["slots"]] == [0, 1, 2]
    assert "--reference" in finding.remedy


@pytest.mark.parametrize("slot", [0, 1, 2])
@pytest.mark.parametrize("offset", [1, -1])
def test_one_slot_off_by_one(real: RealStates, slot: int, offset: int) -> None:
    wiring = [*TRAINED]
    wiring[slot] += offset
    finding = the_error(compare(real, real.side(wiring, kind="bfloat16"), "reference"), "layer-mismatch")
    assert (finding.slot, finding.evidence["offset"]) == (slot, offset)
    assert (finding.evidence["trained_boundary"], finding.evidence["live_boundary"]) == (TRAINED[slot], wiring[slot])
    finding = the_error(compare(real, real.side(wiring, kind="bfloat16"), "alone"), "unexplained-difference")
    assert finding.slot == slot


def test_an_off_by_one_under_int8_is_still_one(real: RealStates) -> None:
    result = compare(real, real.side((3, 17, 28), kind="bfloat16"), "reference", trained=real.side(kind="int8"))
    assert the_error(result, "layer-mismatch").slot == 1


@pytest.mark.parametrize("given", HELP)
@pytest.mark.parametrize("wiring", [(28, 16, 3), (16, 3, 28)])
def test_slot_order(real: RealStates, wiring: tuple[int, ...], given: str) -> None:
    finding = the_error(compare(real, real.side(wiring, kind="bfloat16"), given), "slot-order")
    moved = [slot for slot in range(3) if wiring[slot] != TRAINED[slot]]
    assert [slot["slot"] for slot in finding.evidence["slots"]] == moved


def test_another_order_on_both_sides_is_none(real: RealStates) -> None:
    for given in HELP:
        silent(compare(real, real.side((28, 3, 16), kind="bfloat16"), given, trained=real.side((28, 3, 16))))


@pytest.mark.parametrize("given", HELP)
@pytest.mark.parametrize("wiring", [(3, 16), (3, 16, 28, 29), (16, 28), (3, 28)])
def test_slot_count(real: RealStates, wiring: tuple[int, ...], given: str) -> None:
    finding = the_error(compare(real, real.side(wiring, kind="bfloat16"), given), "slot-count")
    assert f"3 slots in training, {len(wiring)} live" in finding.message


@pytest.mark.parametrize("wiring", [(3,), (3, 16), (1, 3, 16, 20, 28)])
def test_any_number_of_slots_is_right_where_both_have_it(real: RealStates, wiring: tuple[int, ...]) -> None:
    silent(compare(real, real.side(wiring, kind="bfloat16"), "alone", trained=real.side(wiring)))


@pytest.mark.parametrize("given", HELP)
@pytest.mark.parametrize(("wiring", "slot"), [((3, 3, 28), 1), ((3, 16, 16), 2), ((16, 16, 28), 0)])
def test_slot_duplicate(real: RealStates, wiring: tuple[int, ...], slot: int, given: str) -> None:
    finding = the_error(compare(real, real.side(wiring, kind="bfloat16"), given), "slot-duplicate")
    assert finding.slot == slot


@pytest.mark.parametrize("given", HELP)
def test_a_duplicate_that_was_trained_on_is_none(real: RealStates, given: str) -> None:
    trained = real.side((3, 3, 28))
    silent(compare(real, real.side((3, 3, 28), kind="bfloat16"), given, trained=trained))
    # And the two that are one don't make each other ambiguous.
    result = compare(real, real.side((3, 28, 3), kind="bfloat16"), given, trained=trained)
    assert [slot["slot"] for slot in the_error(result, "slot-order").evidence["slots"]] == [1, 2]


def test_a_slot_that_is_the_last_state_too_is_not_ambiguous(real: RealStates) -> None:
    trained = real.side((3, 16, 30), last_state=30)
    result = compare(real, real.side((30, 16, 3), kind="bfloat16"), "alone", trained=trained)
    the_error(result, "slot-order")


@pytest.mark.parametrize("given", HELP)
def test_a_slot_that_holds_the_last_state(real: RealStates, given: str) -> None:
    trained = real.side(last_state=30)
    finding = the_error(compare(real, real.side((3, 16, 30), kind="bfloat16"), given, trained), "layer-mismatch")
    assert finding.slot == 2
    assert finding.evidence["live_boundary"] == 30


# States that are no boundary ----------------------------------------------------------------------------------------


def test_shape_mismatch(real: RealStates) -> None:
    half = real.side(spoil=lambda slots, _: [slot[:, :288] for slot in slots])
    finding = the_error(compare(real, half, "reference"), "shape-mismatch")
    assert finding.evidence == {"trained_hidden_size": 576, "live_hidden_size": 288}


def rms_norm(rows: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    return rows * (rows.square().mean(1, keepdim=True) + 1e-5).rsqrt() * gains


@pytest.mark.parametrize("given", HELP)
def test_norm_stage_with_other_gains(real: RealStates, given: str) -> None:
    gains = torch.rand(576, generator=torch.Generator().manual_seed(0)) + 0.5

    def normed(slots: list[torch.Tensor], _: int) -> list[torch.Tensor]:
        return [slots[0], slots[1], rms_norm(slots[2].float(), gains)]

    finding = the_error(compare(real, real.side(kind="bfloat16", spoil=normed), given), "norm-stage")
    assert finding.slot == 2
    (evidence,) = finding.evidence["slots"]
    assert evidence["norm"] == "fitted"
    assert evidence["distance_left"] < 0.05 < evidence["distance_before"]


@pytest.mark.parametrize("given", ["target", "both"])
def test_norm_stage_with_the_final_norm(real: RealStates, given: str) -> None:
    from eagle_parity.target_weights import read_final_norm

    gains = read_final_norm(read_target(str(real.target)))
    assert gains is not None

    def normed(slots: list[torch.Tensor], _: int) -> list[torch.Tensor]:
        return [slots[0], slots[1], rms_norm(slots[2].float(), gains)]

    finding = the_error(compare(real, real.side(kind="bfloat16", spoil=normed), given), "norm-stage")
    assert finding.slot == 2
    assert finding.evidence["slots"][0]["norm"] == "final"


@pytest.mark.parametrize("wirings", [((3, 16, 30), (3, 16, POST_NORM)), ((3, 16, POST_NORM), (3, 16, 30))])
def test_norm_stage_of_the_last_boundary(real: RealStates, wirings: tuple[Sequence[Any], Sequence[Any]]) -> None:
    trained, live = real.side(wirings[0]), real.side(wirings[1], kind="bfloat16")
    assert the_error(compare(real, live, "reference", trained), "norm-stage").slot == 2
    assert the_error(compare(real, live, "target", trained), "norm-stage").slot == 2


def test_a_normed_state_on_both_sides_is_none(real: RealStates) -> None:
    wiring = (3, 16, POST_NORM)
    for given in HELP:
        silent(compare(real, real.side(wiring, kind="bfloat16"), given, trained=real.side(wiring)))


@pytest.mark.parametrize("slots", [(0,), (1,), (2,), (0, 1, 2)])
def test_missing_residual(real: RealStates, slots: tuple[int, ...]) -> None:
    def without(states: list[torch.Tensor], text: int) -> list[torch.Tensor]:
        before = [real.states["bfloat16"][text][boundary - 1] for boundary in TRAINED]
        return [s.float() - before[i].float() if i in slots else s for i, s in enumerate(states)]

    live = real.side(kind="bfloat16", spoil=without)
    finding = the_error(compare(real, live, "reference"), "missing-residual")
    assert [slot["slot"] for slot in finding.evidence["slots"]] == list(slots)
    for slot in finding.evidence["slots"]:
        boundary = TRAINED[slot["slot"]]
        assert slot["explanation"] == f"boundary {boundary} minus boundary {boundary - 1}"
    finding = the_error(compare(real, live, "alone"), "unexplained-difference")
    assert [slot["slot"] for slot in finding.evidence["slots"]] == list(slots)


@pytest.mark.parametrize("given", HELP)
@pytest.mark.parametrize("factor", [2.0, 0.5, 1.1, -1.0, 1 / 128])
def test_scaled(real: RealStates, factor: float, given: str) -> None:
    live = real.side(kind="bfloat16", spoil=lambda slots, _: [factor * slot for slot in slots])
    finding = the_error(compare(real, live, given), "scaled")
    assert [slot["slot"] for slot in finding.evidence["slots"]] == [0, 1, 2]
    for slot in finding.evidence["slots"]:
        assert slot["factor"] == pytest.approx(factor, rel=0.02)


@pytest.mark.parametrize("given", HELP)
def test_a_scaled_embedding_is_no_precision_drift(real: RealStates, given: str) -> None:
    live = real.side((0, 3, 16), kind="bfloat16", spoil=lambda slots, _: [24 * slots[0], *slots[1:]])
    finding = the_error(compare(real, live, given, trained=real.side((0, 3, 16))), "scaled")
    assert finding.slot == 0
    assert finding.evidence["slots"][0]["factor"] == pytest.approx(24, rel=0.02)


def test_the_trained_side_can_be_the_scaled_one(real: RealStates) -> None:
    trained = real.side(spoil=lambda slots, _: [slots[0], 3 * slots[1], slots[2]], declared=TRAINED)
    finding = the_error(compare(real, real.side(kind="bfloat16"), "reference", trained), "scaled")
    (slot,) = finding.evidence["slots"]
    assert (slot["slot"], slot["side"]) == (1, "trained")
    assert slot["factor"] == pytest.approx(3, rel=0.02)


def test_two_percent_are_no_scale(real: RealStates) -> None:
    silent(compare(real, real.side(kind="bfloat16", spoil=lambda slots, _: [1.02 * slot for slot in slots])))


@pytest.mark.parametrize("given", HELP)
@pytest.mark.parametrize("shift", [1, -1, 2])
def test_token_shift(real: RealStates, shift: int, given: str) -> None:
    live = real.side(kind="bfloat16", spoil=lambda slots, _: [slot.roll(shift, 0) for slot in slots])
    finding = the_error(compare(real, live, given), "token-shift")
    assert [(slot["slot"], slot["shift"]) for slot in finding.evidence["slots"]] == [(i, -shift) for i in range(3)]


def test_a_shift_on_both_sides_is_none(real: RealStates) -> None:
    def shifted(slots: list[torch.Tensor], _: int) -> list[torch.Tensor]:
        return [slot.roll(1, 0) for slot in slots]

    silent(compare(real, real.side(kind="bfloat16", spoil=shifted), "alone", trained=real.side(spoil=shifted)))


@pytest.mark.parametrize("given", ["alone", "both"])
def test_dead_slot_is_unexplained_and_no_embedding(real: RealStates, given: str) -> None:
    live = real.side(kind="bfloat16", spoil=lambda slots, _: [torch.zeros_like(slots[0]), *slots[1:]])
    assert the_error(compare(real, live, given), "unexplained-difference").slot == 0
    constant = real.side(kind="bfloat16", spoil=lambda slots, _: [slots[0][5].expand_as(slots[0]), *slots[1:]])
    assert the_error(compare(real, constant, given), "unexplained-difference").slot == 0
    # The other way round a distance has no finite value; the result must.
    from eagle_parity.results import decode_result, encode_result

    result = compare(real, real.side(kind="bfloat16"), given, trained=live)
    the_error(result, "unexplained-difference")
    assert decode_result(encode_result(result), path="") is not None


@pytest.mark.parametrize("given", HELP)
def test_noise_is_unexplained(real: RealStates, given: str) -> None:
    generator = torch.Generator().manual_seed(1)

    def noisy(slots: list[torch.Tensor], _: int) -> list[torch.Tensor]:
        return [slots[0], torch.randn(slots[1].shape, generator=generator) * slots[1].float().std(), slots[2]]

    assert the_error(compare(real, real.side(kind="bfloat16", spoil=noisy), given), "unexplained-difference").slot == 1


@pytest.mark.parametrize("texts", [(1, 3), (2, 3)])
def test_a_known_trained_state_is_not_explained_by_a_norm_of_itself(real: RealStates, texts: tuple[int, int]) -> None:
    """Gains fitted on these 80 tokens make boundary 16 out of its own normed rows to 0.055: no reason for noise."""
    few: dict[str, Any] = {"texts": texts, "rows": 40}
    generator = torch.Generator().manual_seed(0)

    def noisy(slots: list[torch.Tensor], _: int) -> list[torch.Tensor]:
        return [torch.randn(slots[0].shape, generator=generator) * slots[0][1:].float().std()]

    live = real.side((16,), kind="bfloat16", spoil=noisy, **few)
    the_error(compare(real, live, "reference", real.side((16,), **few)), "unexplained-difference")


@pytest.mark.parametrize("slots", [(1,), (0, 1, 2)])
@pytest.mark.parametrize("given", HELP)
def test_stale_rows_show_although_the_median_agrees(real: RealStates, slots: tuple[int, ...], given: str) -> None:
    def stale(states: list[torch.Tensor], _: int) -> list[torch.Tensor]:
        for slot in slots:
            states[slot][20:32] = states[slot][8:20].clone()
        return states

    finding = the_error(compare(real, real.side(kind="bfloat16", spoil=stale), given), "unexplained-difference")
    assert [slot["slot"] for slot in finding.evidence["slots"]] == list(slots)
    for slot in finding.evidence["slots"]:
        assert slot["bad_rows"] >= 44
        assert slot["distance"] < 0.02


def test_one_odd_row_is_no_pattern(real: RealStates) -> None:
    def odd(states: list[torch.Tensor], text: int) -> list[torch.Tensor]:
        if text == 0:
            states[1][20] = states[1][19]
        return states

    silent(compare(real, real.side(kind="bfloat16", spoil=odd)))


@pytest.mark.parametrize("given", HELP)
def test_non_finite_rows(real: RealStates, given: str) -> None:
    def broken(states: list[torch.Tensor], text: int) -> list[torch.Tensor]:
        states[2][5] = torch.nan
        states[2][7 + text, 3] = torch.inf
        return states

    finding = the_error(compare(real, real.side(kind="bfloat16", spoil=broken), given), "non-finite")
    assert (finding.slot, finding.evidence) == (2, {"side": "live", "rows_by_slot": {"2": 8}})


def test_non_finite_everywhere_in_one_slot_leaves_that_slot_open(real: RealStates) -> None:
    live = real.side(kind="bfloat16", spoil=lambda slots, _: [*slots[:2], torch.full_like(slots[2], torch.nan)])
    result = compare(real, live)
    the_error(result, "non-finite")
    (skip,) = [skip for skip in result.skipped if skip.check == "live-wiring" and skip.blocks_verdict]
    assert skip.blocks_verdict
    assert "0 in slot 2" in skip.reason
    assert result.wiring.live == [3, 16, None]


# Tokens -------------------------------------------------------------------------------------------------------------


def cut(real: RealStates, *, first: int = 0, last: int | None = None, ids_too: bool = False) -> HiddenStates:
    """The live side with rows missing at an end, with or without their token ids."""
    sequences = []
    for ids, states in zip(real.token_ids, real.states["bfloat16"], strict=True):
        kept = slice(first, None if last is None else len(ids) - last)
        sequences.append(Written(ids[kept] if ids_too else ids, [states[b][kept] for b in TRAINED]))
    return in_memory(sequences)


@pytest.mark.parametrize("given", HELP)
@pytest.mark.parametrize("ids_too", [False, True])
@pytest.mark.parametrize(("first", "last"), [(16, 0), (0, 16)])
def test_truncated_capture(real: RealStates, first: int, last: int, ids_too: bool, given: str) -> None:
    result = compare(real, cut(real, first=first, last=last, ids_too=ids_too), given)
    finding = the_error(result, "truncated-capture")
    assert finding.evidence["sequences"] == 4
    assert all(slot["pair"]["distance"] < 0.02 for slot in result.measurements["slots"])


def test_truncation_does_not_hide_a_wrong_layer(real: RealStates) -> None:
    live = in_memory(
        [
            Written(ids, [states[b][16:] for b in (3, 17, 28)])
            for ids, states in zip(real.token_ids, real.states["bfloat16"], strict=True)
        ]
    )
    result = compare(real, live)
    assert sorted(finding.name for finding in errors(result)) == ["layer-mismatch", "truncated-capture"]


def test_token_mismatch(real: RealStates) -> None:
    """A template that differs in one token near the end: what stands before it is compared, and agrees."""
    sequences = []
    for ids, states in zip(real.token_ids, real.states["bfloat16"], strict=True):
        changed = ids.clone()
        changed[60] += 1
        slots = [states[b].clone() for b in TRAINED]
        for slot in slots:
            slot[60:] = slot[60:].flip(0)  # other tokens, other states
        sequences.append(Written(changed, slots))
    for given in HELP:
        result = compare(real, in_memory(sequences), given)
        finding = the_error(result, "token-mismatch")
        assert "position 60" in finding.message
        assert result.measurements["tokens"] == 4 * 60


def test_other_texts_are_not_compared(real: RealStates) -> None:
    result = compare(real, real.side(texts=[2, 3]), trained=real.side(texts=[0, 1]))
    assert errors(result) == []
    assert exit_status(result, FailOn.ERROR) is ExitStatus.INCONCLUSIVE


# What is said of the states -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["trained", "live"])
def test_misdeclared_wiring(real: RealStates, role: str) -> None:
    said = real.side(kind="int8", declared=(2, 15, 27))
    sides = {"trained": real.side(), "live": real.side(kind="bfloat16"), role: said}
    finding = the_error(compare(real, sides["live"], "reference", sides["trained"]), "misdeclared-wiring")
    assert finding.evidence["side"] == role
    assert [(slot["declared"], slot["nearest"]) for slot in finding.evidence["slots"]] == [
        (2, "boundary 3"),
        (15, "boundary 16"),
        (27, "boundary 28"),
    ]


def test_a_right_declaration_is_silent(real: RealStates) -> None:
    trained = real.side(declared=TRAINED, last_state=30)
    silent(compare(real, real.side(kind="bfloat16", declared=TRAINED), "reference", trained))


def test_a_misdeclared_capture_of_the_wrong_layers_is_one_error(real: RealStates) -> None:
    live = real.side((4, 17, 29), kind="bfloat16", declared=TRAINED)
    result = compare(real, live, "reference")
    the_error(result, "layer-mismatch")
    assert [f.name for f in result.findings if f.severity is Severity.WARNING] == ["misdeclared-wiring"]


@pytest.mark.parametrize("given", ["reference", "both"])
def test_precision_drift(real: RealStates, given: str) -> None:
    generator = torch.Generator().manual_seed(2)

    def drifted(slots: list[torch.Tensor], _: int) -> list[torch.Tensor]:
        last = slots[2].float()
        noise = torch.randn(last.shape, generator=generator)
        return [*slots[:2], last + 0.1 * noise * last.norm(dim=1, keepdim=True) / noise.norm(dim=1, keepdim=True)]

    result = compare(real, real.side(spoil=drifted), given)
    assert [(f.name, f.severity, f.slot) for f in result.findings] == [("precision-drift", Severity.WARNING, 2)]
    assert exit_status(result, FailOn.ERROR) is ExitStatus.PARITY
    # Without a reference it could as well be another layer: that is told, and nothing is claimed.
    result = compare(real, real.side(spoil=drifted), "alone")
    assert result.findings == []
    assert exit_status(result, FailOn.ERROR) is ExitStatus.INCONCLUSIVE
    assert any("slot 2" in skip.reason and "--noise" in skip.reason for skip in result.skipped)


def test_a_second_live_capture_settles_what_is_noise(real: RealStates) -> None:
    def drifted(seed: int) -> HiddenStates:
        generator = torch.Generator().manual_seed(seed)

        def spoil(slots: list[torch.Tensor], _: int) -> list[torch.Tensor]:
            noise = [torch.randn(slot.shape, generator=generator) for slot in slots]
            return [
                s + 0.07 * n * s.norm(dim=1, keepdim=True) / n.norm(dim=1, keepdim=True)
                for s, n in zip(slots, noise, strict=True)
            ]

        return real.side(spoil=spoil)

    inputs = DiffInputs(trained=real.side(), live=drifted(3), noise=drifted(4))
    silent(diff_captures(inputs))
