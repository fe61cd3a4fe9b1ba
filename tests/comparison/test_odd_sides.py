"""Sides that a tester made to fool the comparison, on real activations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from builders import Written
from real_states import TRAINED, RealStates
from states_in_memory import in_memory

from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.comparison.thresholds import Thresholds, prior_floor
from eagle_parity.findings import Severity
from eagle_parity.hidden_states import HiddenStates, Unreadable
from eagle_parity.results import ExitStatus, FailOn, Result, Verdict, exit_status
from eagle_parity.targets import Target

if TYPE_CHECKING:
    from pathlib import Path


def compare(real: RealStates, live: HiddenStates, **more: Any) -> Result:
    trained = more.pop("trained", None) or real.side(kind="bfloat16")
    return diff_captures(DiffInputs(trained=trained, live=live, **more))


def names(result: Result) -> list[str]:
    return [finding.name for finding in result.findings]


def status(result: Result) -> ExitStatus:
    return exit_status(result, FailOn.ERROR)


def reasons(result: Result) -> str:
    return "\n".join(skip.reason for skip in result.skipped)


class TestNoise:
    """A second live capture measures noise; one that differs like another layer measures a fault."""

    def test_another_layer_is_no_noise(self, real: RealStates) -> None:
        late = tuple(boundary + 1 for boundary in TRAINED)
        early = tuple(boundary - 1 for boundary in TRAINED)
        result = compare(real, real.side(late), noise=real.side(early))
        assert names(result) == ["unexplained-difference"]
        assert "no noise" in reasons(result)

    def test_the_story_is_found_whatever_the_noise(self, real: RealStates) -> None:
        result = compare(real, real.side((0, *TRAINED[:2])), noise=real.side())
        assert names(result) == ["spurious-embedding"]

    def test_noise_never_reaches_another_layers_distance(self, real: RealStates) -> None:
        def noisy(slots: list[torch.Tensor], text: int) -> list[torch.Tensor]:
            generator = torch.Generator().manual_seed(text)
            spoilt = []
            for slot in slots:
                noise = torch.randn(slot.shape, generator=generator)
                spoilt.append(slot + 0.14 * noise * slot.norm(dim=1, keepdim=True) / noise.norm(dim=1, keepdim=True))
            return spoilt

        late = tuple(boundary + 1 for boundary in TRAINED)
        result = compare(real, real.side(late), noise=real.side(late, spoil=noisy))
        assert status(result) is ExitStatus.FOUND

    def test_noise_over_other_tokens_is_told(self, real: RealStates) -> None:
        other = in_memory([Written(real.token_ids[0] + 1, [real.states["float32"][0][b] for b in TRAINED])])
        result = compare(real, real.side(), noise=other)
        assert result.verdict is Verdict.PASS
        assert "measured nothing" in reasons(result)


class TestDeadStates:
    """A state that never changes is compared with nothing."""

    def test_zeros_on_both_sides_are_no_parity(self, real: RealStates) -> None:
        def zeros(slots: list[torch.Tensor], _: int) -> list[torch.Tensor]:
            return [torch.zeros_like(slots[0]), *slots[1:]]

        result = compare(real, real.side(spoil=zeros), trained=real.side(spoil=zeros))
        assert result.findings == []
        assert status(result) is ExitStatus.INCONCLUSIVE
        assert "slot 0: both sides hold one row for every token" in reasons(result)

    def test_one_constant_row_on_both_sides_is_no_parity(self, real: RealStates) -> None:
        row = real.states["float32"][0][16][5]

        def constant(slots: list[torch.Tensor], _: int) -> list[torch.Tensor]:
            return [row.expand_as(slot) for slot in slots]

        result = compare(real, real.side(spoil=constant), trained=real.side(spoil=constant))
        assert status(result) is ExitStatus.INCONCLUSIVE

    def test_zeros_against_states_are_a_difference(self, real: RealStates) -> None:
        zeros = real.side(spoil=lambda slots, _: [torch.zeros_like(slots[0]), *slots[1:]])
        result = compare(real, zeros)
        assert names(result) == ["unexplained-difference"]
        assert result.findings[0].slot == 0


def test_a_row_a_token_is_no_embedding_where_the_embedding_is_at_hand(real: RealStates) -> None:
    generator = torch.Generator().manual_seed(3)
    table = torch.randn(50_000, 576, generator=generator)
    live = real.side(spoil=lambda slots, text: [table[real.token_ids[text]], *slots[1:]])
    assert names(compare(real, live)) == ["spurious-embedding"]
    assert names(compare(real, live, reference=real.reference)) == ["unexplained-difference"]


def test_one_state_declared_as_two_boundaries_is_told(real: RealStates) -> None:
    result = compare(real, real.side(), trained_boundaries=TRAINED, live_boundaries=(0, 3, 16))
    assert names(result) == ["misdeclared-wiring"]
    assert result.findings[0].evidence["slots"] == [0, 1, 2]
    agreed = compare(real, real.side(), trained_boundaries=TRAINED, live_boundaries=TRAINED)
    assert agreed.findings == []


def test_repeats_of_one_context_are_one_token(real: RealStates) -> None:
    def repeated(wiring: tuple[int, ...]) -> HiddenStates:
        states = real.states["float32"][0]
        return in_memory([Written(real.token_ids[0][:4], [states[b][:4] for b in wiring])] * 6)

    result = compare(real, repeated((3, 17, 28)), trained=repeated(TRAINED))
    assert status(result) is ExitStatus.INCONCLUSIVE
    assert result.findings == []


class TestRowsThatGoWrongEverywhere:
    """A few bad rows are an accident; the same ones in every sequence are not."""

    def test_the_last_rows(self, real: RealStates) -> None:
        def last_two(slots: list[torch.Tensor], text: int) -> list[torch.Tensor]:
            generator = torch.Generator().manual_seed(text)
            for slot in slots:
                slot[-2:] = torch.randn(2, 576, generator=generator) * slot[-3].norm() / 24
            return slots

        thresholds = Thresholds(bad_row_share=0.5)  # far above what two rows a sequence are
        result = compare(real, real.side(spoil=last_two), thresholds=thresholds)
        assert names(result) == ["unexplained-difference"]

    def test_two_bad_rows_of_one_sequence_are_an_accident(self, real: RealStates) -> None:
        def one(slots: list[torch.Tensor], text: int) -> list[torch.Tensor]:
            if text == 0:
                slots[1][20:22] = slots[1][30:32]
            return slots

        assert compare(real, real.side(spoil=one), thresholds=Thresholds(bad_row_share=0.5)).findings == []

    def test_the_sinks(self, real: RealStates) -> None:
        def first(slots: list[torch.Tensor], text: int) -> list[torch.Tensor]:
            generator = torch.Generator().manual_seed(text)
            for slot in slots:
                slot[0] = torch.randn(576, generator=generator) * slot[0].norm() / 24
            return slots

        result = compare(real, real.side(spoil=first))
        assert [(f.name, f.severity) for f in result.findings] == [("unexplained-difference", Severity.WARNING)]
        assert "sink tokens" in result.findings[0].message


def test_many_broken_files_are_a_few_findings(real: RealStates) -> None:
    live = real.side()
    broken = replace(live, unreadable=tuple(Unreadable(f"gone_{i}", "no such file") for i in range(500)))
    result = compare(real, broken)
    assert len(result.findings) == 11
    assert "490 more files" in result.findings[-1].message or "490 more files" in str(result.findings)


def test_an_interrupted_capture_is_told(real: RealStates) -> None:
    live = real.side()
    layout = replace(live.layout, facts={**live.layout.facts, "incomplete": True})
    result = compare(real, replace(live, layout=layout))
    assert result.verdict is Verdict.PASS
    assert "interrupted" in reasons(result)


def test_a_target_without_weights_is_told(real: RealStates, tmp_path: Path) -> None:
    target = Target(
        path=str(tmp_path),
        folder=tmp_path,
        architectures=("LlamaForCausalLM",),
        text_architectures=(),
        model_type="llama",
        num_layers=30,
        hidden_size=576,
        vocab_size=49152,
        config={},
    )
    result = compare(real, real.side(), target=target)
    assert result.verdict is Verdict.PASS
    assert "no readable weights" in reasons(result)


def test_float8_is_stored_and_not_computed_in() -> None:
    assert prior_floor("float8_e4m3fn", 4) == prior_floor("float8_e4m3fn", 28)
    assert prior_floor("float8_e5m2", 4) > prior_floor("float8_e4m3fn", 4) > prior_floor("bfloat16", 4)


class TestDeclaredWithoutAReference:
    """What a side is said to be names it where nothing measures it, and only where it does differ."""

    def test_other_layers_by_both_manifests(self, real: RealStates) -> None:
        late = tuple(boundary + 1 for boundary in TRAINED)
        trained = real.side(kind="bfloat16", declared=TRAINED)
        result = compare(real, real.side(late, declared=late), trained=trained)
        assert names(result) == ["layer-mismatch"]
        assert result.findings[0].evidence["offset"] == 1
        assert result.wiring.live == list(late)
        assert result.wiring.live_from == "compared with trained"

    def test_the_same_layers_by_both_manifests_are_unexplained_where_they_differ(self, real: RealStates) -> None:
        late = tuple(boundary + 1 for boundary in TRAINED)
        trained = real.side(kind="bfloat16", declared=TRAINED)
        assert names(compare(real, real.side(late, declared=TRAINED), trained=trained)) == ["unexplained-difference"]


def test_the_limit_follows_the_depth_that_is_known(real: RealStates) -> None:
    def limits(**declared: Any) -> list[float]:
        result = compare(real, real.side(), trained=real.side(kind="bfloat16", **declared))
        return [row["limit"] for row in result.measurements["identified"]]

    unknown, known = limits(), limits(declared=TRAINED)
    assert all(k <= u for k, u in zip(known, unknown, strict=True))
    assert known[0] < unknown[0]
