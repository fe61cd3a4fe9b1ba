"""The verdict is drawn from plain numbers: the same numbers judged by other thresholds, without a tensor."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from builders import Written
from states_in_memory import in_memory

from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.comparison.judge import judge, rejudge
from eagle_parity.comparison.measurements import Measurements, measurements_of
from eagle_parity.comparison.thresholds import Thresholds, prior_floor
from eagle_parity.comparison.views import look_at
from eagle_parity.errors import InputError, UsageError
from eagle_parity.results import ExitStatus, FailOn, Verdict, decode_result, encode_result, exit_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.results import Result
    from eagle_parity.wiring import BoundaryEntry

LAYERS = 8
IDS = torch.arange(1, 201)


def states() -> list[torch.Tensor]:
    """Boundaries of a made-up target: each is the one before plus half as much again."""
    generator = torch.Generator().manual_seed(0)
    found = [torch.randn(200, 32, generator=generator)]
    for _ in range(LAYERS):
        found.append(found[-1] + 0.5 * torch.randn(200, 32, generator=generator))
    return found


STATES = states()


def off_by(rows: torch.Tensor, error: float, seed: int = 1) -> torch.Tensor:
    """Rows at exactly this relative error."""
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed))
    spoilt: torch.Tensor = rows + error * noise * rows.norm(dim=1, keepdim=True) / noise.norm(dim=1, keepdim=True)
    return spoilt


def side(boundaries: Sequence[int], *, error: float = 0, tokens: int = 200, **more: Any) -> HiddenStates:
    return in_memory([Written(IDS[:tokens], [off_by(STATES[b], error, seed=b)[:tokens] for b in boundaries])], **more)


def reference(tokens: int = 200) -> HiddenStates:
    return side(range(LAYERS + 1), declared=list(range(LAYERS + 1)), num_layers=LAYERS, tokens=tokens)


def compare(trained: HiddenStates, live: HiddenStates, **more: Any) -> Result:
    return diff_captures(DiffInputs(trained=trained, live=live, **more))


def measured(result: Result) -> Measurements:
    return measurements_of(result.measurements, path="test")


def names(result: Result) -> list[str]:
    return [finding.name for finding in result.findings]


CASES: dict[str, Callable[[], Result]] = {
    "parity": lambda: compare(side([1, 4, 7]), side([1, 4, 7], error=0.01), reference=reference()),
    "story": lambda: compare(side([1, 4, 7]), side([0, 1, 4], error=0.01), reference=reference()),
    "off by one": lambda: compare(side([1, 4, 7]), side([1, 5, 7], error=0.01), reference=reference()),
    "unexplained": lambda: compare(side([1, 4, 7]), side([1, 5, 7], error=0.01)),
    "scaled": lambda: compare(side([4]), in_memory([Written(IDS, [2 * STATES[4]])])),
    "dead": lambda: compare(in_memory([Written(IDS, [0 * STATES[4]])]), side([4])),
    "nan": lambda: compare(in_memory([Written(IDS, [0 / (0 * STATES[4])])]), side([4])),
    "few": lambda: compare(side([4], tokens=5), side([4], tokens=5)),
    "other tokens": lambda: compare(side([4]), in_memory([Written(IDS + 1000, [STATES[4]])])),
    "hidden size": lambda: compare(side([4]), in_memory([Written(IDS, [STATES[4][:, :16]])])),
}


@pytest.mark.parametrize("name", CASES)
def test_a_saved_result_is_judged_alike(name: str) -> None:
    result = CASES[name]()
    saved = decode_result(encode_result(result), path="saved.json")
    kept = {key: value for key, value in saved.measurements.items() if key not in {"identified", "id_lists"}}
    assert msgspec.json.decode(msgspec.json.encode(measured(saved))) == kept
    again = rejudge(saved, [])
    assert again.findings == saved.findings
    assert again.skipped == saved.skipped
    assert again.wiring == saved.wiring
    assert again.verdict is saved.verdict
    assert msgspec.json.encode(again.measurements) == msgspec.json.encode(saved.measurements)


def test_judging_is_pure() -> None:
    numbers = measured(CASES["off by one"]())
    before = msgspec.json.encode(numbers)
    first, second = judge(numbers, Thresholds()), judge(numbers, Thresholds())
    assert first.outcomes == second.outcomes
    assert msgspec.json.encode(numbers) == before


def test_judging_imports_no_torch() -> None:
    code = "import sys; import eagle_parity.comparison.judge; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_thresholds_make_a_pass_a_fail_and_back() -> None:
    result = compare(side([1, 4, 7]), side([1, 4, 7], error=0.05))
    assert result.verdict is Verdict.PASS
    # A tenth of the distance is allowed; float32's own noise is less.
    strict = rejudge(result, ["parity_distance=0.005", "identity_distance=0.01"])
    assert (strict.verdict, names(strict)) == (Verdict.FAIL, ["unexplained-difference"])
    assert strict.measurements["thresholds"]["parity_distance"] == 0.005
    assert strict.findings[0].evidence["thresholds"]["parity_distance"] == 0.005
    back = rejudge(strict, ["parity-distance=0.06", "identity_distance=0.15"])
    assert (back.verdict, back.findings) == (Verdict.PASS, [])


def test_a_fail_becomes_a_pass_where_the_reader_allows_more() -> None:
    result = compare(side([1, 4, 7]), side([1, 4, 7], error=0.3))
    assert names(result) == ["unexplained-difference"]
    assert rejudge(result, ["parity_distance=0.4", "bad_row_distance=0.5"]).verdict is Verdict.PASS


def test_the_margin_decides_between_boundaries() -> None:
    result = CASES["off by one"]()
    assert names(result) == ["layer-mismatch"]
    wide = rejudge(result, ["margin=1000"])
    assert wide.verdict is Verdict.INCONCLUSIVE
    assert any("slot 1" in skip.reason and skip.blocks_verdict for skip in wide.skipped)


@pytest.mark.parametrize("assignment", ["nonsense", "nonsense=1", "margin=", "margin=x", "margin=-1", "margin=nan"])
def test_nonsense_is_a_usage_error(assignment: str) -> None:
    with pytest.raises(UsageError, match="--threshold"):
        Thresholds().replace([assignment])


def test_a_result_of_another_command_is_refused() -> None:
    other = msgspec.structs.replace(CASES["parity"](), measurements={"slots": 3})
    with pytest.raises(InputError, match="no measurements of diff-captures"):
        rejudge(other, [])


def test_numbers_that_json_has_not() -> None:
    for name in ("dead", "nan"):
        text = encode_result(CASES[name]()).decode()
        assert re.search(r"[:\[,] *-?(NaN|Infinity)", text) is None
        for slot in measured(decode_result(text.encode(), path="")).slots:
            assert slot.pair is None or slot.pair.distance > 0.5


# Tokens -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 4, 7, 8, 9])
def test_too_few_tokens_are_inconclusive(tokens: int) -> None:
    # None is a sink here: the norms are alike.
    for live in ([1, 4, 7], [0, 1, 4], [2, 5, 8]):
        result = compare(side([1, 4, 7], tokens=tokens), side(live, tokens=tokens), reference=reference(tokens))
        if tokens < Thresholds().min_tokens:
            assert result.findings == []
            assert exit_status(result, FailOn.ERROR) is ExitStatus.INCONCLUSIVE
            assert any(f"{tokens} comparable tokens; a conclusion needs 8" in skip.reason for skip in result.skipped)
        else:
            assert result.verdict is (Verdict.PASS if live == [1, 4, 7] else Verdict.FAIL)
            assert len(result.findings) == (live != [1, 4, 7])


def test_a_slot_with_too_few_numbers_is_left_open_and_the_others_judged() -> None:
    spoilt = STATES[4].clone()
    spoilt[5:] = torch.nan
    live = in_memory([Written(IDS, [STATES[1], spoilt, STATES[7]])])
    result = compare(side([1, 4, 7]), live, reference=reference())
    assert names(result) == ["non-finite"]
    assert any(skip.blocks_verdict and "5 in slot 1" in skip.reason for skip in result.skipped)
    assert result.wiring.live == [1, None, 7]


def test_a_reference_over_too_few_tokens_names_nothing() -> None:
    whole = side([1, 4, 7])
    result = compare(whole, side([1, 4, 7], error=0.01), reference=reference(tokens=6))
    assert result.wiring.live == [None, None, None]
    assert exit_status(result, FailOn.ERROR) is ExitStatus.INCONCLUSIVE
    assert any("the reference covers" in skip.reason and skip.blocks_verdict for skip in result.skipped)


def test_a_reference_over_half_of_the_sequences_is_no_match_for_the_others() -> None:
    """Rows that a reference lacks count for nothing: they once counted as exact."""

    def two(boundaries: Sequence[int], *, declared: Sequence[BoundaryEntry] | None = None) -> HiddenStates:
        return in_memory(
            [
                Written(IDS[:60], [STATES[b][:60] for b in boundaries]),
                Written(IDS[60:] + 500, [STATES[b][60:] for b in boundaries]),
            ],
            declared=declared,
        )

    result = compare(two([1, 4, 7]), two([2, 5, 8]), reference=reference(tokens=60))
    assert names(result) == ["layer-mismatch"]
    assert result.findings[0].evidence["offset"] == 1
    assert [slot["live"]["candidates"][0]["boundary"] for slot in result.measurements["slots"]] == [2, 5, 8]


# Views and labels ---------------------------------------------------------------------------------------------------


def test_labels_come_from_a_reference_then_from_what_is_said_then_from_places() -> None:
    said = side([1, 4], declared=(1, None))
    assert look_at(measured(compare(said, side([1, 4]))), Thresholds()).expected == (1, "trained slot 1")
    view = look_at(measured(compare(said, side([1, 4]), reference=reference())), Thresholds())
    assert view.expected == view.actual == (1, 4)


def test_a_declaration_that_the_reference_contradicts_is_no_label() -> None:
    trained = in_memory([Written(IDS, [off_by(STATES[4], 3.0)])], declared=[4])
    result = compare(trained, side([4]), reference=reference())
    assert look_at(measured(result), Thresholds()).expected == ("trained slot 0",)
    # By its word both sides would hold boundary 4, and all of this would be drift.
    assert names(result) == ["unexplained-difference"]


def test_views_have_a_limit_above_both_floors() -> None:
    numbers = measured(compare(side([1]), side([1], error=0.05), noise=side([1], error=0.09)))
    (view,) = look_at(numbers, Thresholds()).views
    assert view.agrees
    assert view.limit == pytest.approx(3 * 0.04, rel=0.02)  # three times what a second capture shows
    assert view.limit > Thresholds().parity_distance


def test_the_floor_grows_with_depth_and_coarseness() -> None:
    floors = [prior_floor(dtype, 30) for dtype in ("float32", "float16", "bfloat16", "float8_e5m2")]
    assert floors == sorted(floors)
    assert prior_floor("bfloat16", 2) < prior_floor("bfloat16", 30) < prior_floor("bfloat16", None)
    assert prior_floor("something new", 3) == prior_floor("bfloat16", 3)


@pytest.mark.parametrize("name", CASES)
def test_confidence_is_a_probability(name: str) -> None:
    for finding in CASES[name]().findings:
        assert 0 <= finding.confidence <= 1


def test_confidence_falls_with_the_margin() -> None:
    sure = compare(side([4]), side([5], error=0.01), reference=reference()).findings[0].confidence
    less = compare(side([4]), side([5], error=0.14), reference=reference()).findings[0].confidence
    assert 0.5 < less < sure
