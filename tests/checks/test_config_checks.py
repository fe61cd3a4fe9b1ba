"""Each check of a draft's config: a case in which it fires and one in which it stays silent."""

from __future__ import annotations

from typing import Any

import pytest
from config_cases import (
    KIMI_CONFIG,
    LLAMA_CONFIG,
    check,
    draft_config,
    draft_of,
    make_draft,
    make_target,
    named,
    nested,
    only,
    target_of,
    top,
    trained_on,
)

from eagle_parity.checks.catalogue import CHECKS
from eagle_parity.checks.of_configs import CONFIG_CHECKS
from eagle_parity.config_check import check_config
from eagle_parity.drafts import IDS, NESTED_IDS
from eagle_parity.findings import FINDINGS
from eagle_parity.hidden_states import LastStateRule, Layout
from eagle_parity.results import Result, Verdict
from eagle_parity.wiring import Wiring

KIMI, LLAMA = make_target(KIMI_CONFIG), make_target(LLAMA_CONFIG)
TRAINED = (3, 16, 28)


def llama(*engines: str, trained: tuple[Any, ...] | None = TRAINED, **values: Any) -> Result:
    return check(make_draft(draft_config(LLAMA_CONFIG, **values)), LLAMA, *engines, trained=trained)


def test_names_are_unique_and_what_they_emit_is_in_the_catalogue() -> None:
    assert len({c.name for c in CHECKS}) == len(CHECKS)
    assert {kind for c in CONFIG_CHECKS for kind in c.emits} <= set(FINDINGS)


def test_parity_is_silent() -> None:
    result = llama("sglang@0.5.23", **nested([2, 15, 27]))
    assert result.verdict is Verdict.PASS
    assert result.findings == []
    assert [skip.check for skip in result.skipped] == ["fc-width"]


def test_layer_id_convention_gives_both_numbers_and_the_list_to_write() -> None:
    finding = only(llama("sglang@0.5.23", **nested([3, 16, 28])), "layer-id-convention")
    assert "id 3, read by SGLang 0.5.23 as boundary 4 (output of layer 3, counted from 0)" in finding.message
    assert finding.evidence["ids"] == [3, 16, 28]
    assert finding.evidence["served"] == [4, 17, 29]
    assert finding.evidence["trained"] == [3, 16, 28]
    assert finding.evidence["offset"] == 1
    assert finding.evidence["change"] == {NESTED_IDS: [2, 15, 27]}
    assert finding.remedy == f"Write {NESTED_IDS}: [2, 15, 27]."


def test_variants_that_serve_the_same_by_other_keys_are_one_finding() -> None:
    result = llama("vllm@0.32.0", **nested([2, 15, 27]))
    finding = only(result, "layer-id-convention")
    assert named(result) == ["layer-id-convention"]
    assert finding.engine == "vllm@0.32.0"
    assert "with runner v1 reads" in finding.message
    assert "with runner v2 does not read" in finding.message
    assert named(result, "warning") == []


def test_variants_that_fail_at_other_times_are_one_finding() -> None:
    result = llama("vllm@0.32.0", **top([-1, 2, 15]))
    finding = only(result, "engine-failure")
    assert "with runner v1 dies at the first request" in finding.message
    assert "with runner v2 fails while it starts" in finding.message
    assert "no layer answers to id -1" in finding.message


def test_variants_that_disagree_are_told_apart() -> None:
    result = llama("vllm@0.32.0", **nested([3, 16, 28]))
    finding = only(result, "layer-ids-ignored")
    assert finding.engine == "vllm@0.32.0:runner=v2"
    assert finding.severity.value == "error"
    assert named(result) == ["layer-ids-ignored"]


def test_spurious_embedding() -> None:
    finding = only(llama("sglang@0.5.23", **nested([-1, 2, 15])), "spurious-embedding")
    assert finding.slot == 0
    assert finding.evidence["late_slots"] is True
    assert "arrive one slot late" in finding.message
    assert named(llama("sglang@0.5.23", trained=(0, 3, 16), **nested([-1, 2, 15]))) == []


def test_missing_embedding() -> None:
    result = llama("sglang@0.5.23", trained=(0, 3, 16), **nested([2, 15, 27]))
    assert named(result) == ["missing-embedding"]
    assert only(result, "missing-embedding").evidence["change"] == {NESTED_IDS: [-1, 2, 15]}


def test_layer_ids_unsorted_is_an_error_only_where_the_order_is_not_the_trained_one() -> None:
    wrong = llama("sglang@0.5.23", trained=(28, 3, 16), **nested([27, 2, 15]))
    assert named(wrong) == ["layer-ids-unsorted"]
    assert "permute the columns of the head's fc" in only(wrong, "layer-ids-unsorted").remedy
    right = llama("sglang@0.5.23", **nested([27, 2, 15]))
    assert named(right) == []
    assert named(right, "warning") == ["layer-ids-unsorted"]
    assert named(llama("sglang@0.5.23", **nested([2, 15, 27])), "warning") == []
    assert named(llama(**nested([27, 2, 15])), "warning") == ["layer-ids-unsorted"]


def test_a_trained_order_that_no_ascending_engine_has() -> None:
    assert named(llama("sglang@0.5.23", trained=(28, 3, 16), **nested([2, 15, 27]))) == ["layer-id-convention"]


def test_layer_ids_ignored_is_an_error_only_where_the_wiring_changes_by_it() -> None:
    moved = llama("sglang@0.5.23", **top([3, 16, 28]))
    assert named(moved) == ["layer-ids-ignored"]
    assert only(moved, "layer-ids-ignored").evidence["served"] == [2, 15, 27]
    same = llama("sglang@0.5.23", trained=(2, 15, 27), **top([1, 14, 26]))
    assert (named(same), named(same, "warning")) == ([], ["layer-ids-ignored"])
    both = llama("sglang@0.5.23", "vllm@0.32.0", **{IDS: [3, 16, 28], **nested([2, 15, 27])})
    assert (named(both), named(both, "warning"), both.verdict) == ([], [], Verdict.PASS)
    assert set(named(both, "note")) == {"layer-ids-ignored"}
    unknown = llama("sglang@0.5.23", trained=None, **top([3, 16, 28]))
    assert named(unknown) == ["layer-ids-ignored"]
    assert named(llama("sglang@0.5.23", **top("3,1"))) == ["layer-ids-ignored"]


def test_layer_ids_defaulted_is_a_warning_a_note_or_the_convention_error() -> None:
    assert named(llama("sglang@0.5.23", trained=None), "warning") == ["layer-ids-defaulted"]
    right = llama("sglang@0.5.23", trained=(2, 15, 27))
    assert (named(right), named(right, "warning"), named(right, "note")) == ([], [], ["layer-ids-defaulted"])
    wrong = llama("sglang@0.5.23")
    assert (named(wrong), named(wrong, "warning")) == (["layer-id-convention"], [])
    assert only(wrong, "layer-id-convention").evidence["default"] is True


def test_layer_ids_duplicate() -> None:
    result = llama("sglang@0.5.23", **nested([2, 2, 27]))
    assert named(result) == ["layer-ids-duplicate"]
    assert "names 2 more than once" in only(result, "layer-ids-duplicate").message
    assert named(llama(**nested([2, 2, 27]))) == ["layer-ids-duplicate"]
    assert named(llama(**nested([2, 15, 27]))) == []


def test_layer_id_out_of_range_where_no_engine_fails_by_it() -> None:
    target = target_of("Qwen3MoeForCausalLM", 48)
    wraps = check(draft_of(target, **nested([-2, 2, 5])), target, "sglang@0.5.23", trained=(3, 6, 30))
    assert named(wraps) == ["layer-id-out-of-range"]
    assert "wraps around and boundary 47 is served" in only(wraps, "layer-id-out-of-range").message
    assert named(llama(**nested([2, 15, 31]))) == ["layer-id-out-of-range"]
    assert named(llama(**nested([-1, 15, 30]))) == []
    fails = llama("sglang@0.5.23", **nested([2, 15, 31]))
    assert named(fails) == ["engine-failure"]
    assert "id 31 (which asks for the state before layer 32)" in only(fails, "engine-failure").message


@pytest.mark.parametrize("trained", [TRAINED, None])
def test_what_is_short_of_a_state_and_is_served_all_the_same(trained: tuple[int, ...] | None) -> None:
    dropped = llama("sglang@0.5.23", trained=trained, **nested([-9, 15, 99]))
    assert named(dropped) == ["layer-id-out-of-range"]
    message = only(dropped, "layer-id-out-of-range").message
    assert "no layer answers to id -9 (which asks for the state before layer -8)" in message
    assert named(dropped, "warning") == ["known-engine-defect"]
    repeated = llama("sglang@0.5.23", trained=trained, **nested([15, 15, 15]))
    assert named(repeated) == ["layer-ids-duplicate"]
    assert "captures a layer once and feeds (16)" in only(repeated, "layer-ids-duplicate").message


def test_a_list_that_no_graph_buffer_fits_is_told_with_the_way_out() -> None:
    result = llama("sglang@0.5.12", trained=(3, 16, 28, 30), **nested([2, 15, 27, 28]))
    assert named(result) == ["fc-width"]
    finding = only(result, "fc-width")
    assert "their buffer holds 3 slots" in finding.message
    assert "--disable-cuda-graph" in finding.message
    four = llama("sglang@0.5.12", trained=(3, 16, 28, 29), **nested([2, 15, 27, 28]))
    assert "--disable-cuda-graph" in only(four, "fc-width").remedy
    assert named(llama("sglang@0.5.15", trained=(3, 16, 28, 29), **nested([2, 15, 27, 28]))) == []


def test_an_engine_that_is_named_twice_is_judged_once() -> None:
    once = llama("sglang@0.5.23", "vllm@0.32.0", **nested([3, 16, 28]))
    twice = llama("sglang@0.5.23", "vllm@0.32.0", "sglang@0.5.23.0", "vllm@0.32.0+cpu", **nested([3, 16, 28]))
    assert (once.findings, once.wiring, once.skipped) == (twice.findings, twice.wiring, twice.skipped)
    assert [served.engine for served in twice.wiring.served] == ["sglang@0.5.23", "vllm@0.32.0", "vllm@0.32.0"]


def test_inputs_are_named_by_what_was_read_and_classes_stand_in_the_measurements() -> None:
    result = llama("sglang@0.5.23", **nested([2, 15, 27]))
    assert [(i.role, i.format) for i in result.inputs] == [("draft", "config"), ("target", "config")]
    assert result.measurements["target_class"] == "LlamaForCausalLM"
    assert result.measurements["draft_dialect"] == "specforge"
    weights = check(with_fc(1728, **nested([2, 15, 27])), LLAMA, "sglang@0.5.23", trained=TRAINED)
    assert weights.inputs[0].format == "checkpoint"


def test_the_slots_that_differ_are_named_apart_from_slots_that_are_described() -> None:
    finding = only(llama("sglang@0.5.23", **nested([2, 15, 28])), "layer-id-convention")
    assert finding.evidence["differing_slots"] == [2]
    assert "slots" not in finding.evidence


def test_engine_failure_of_a_null_section() -> None:
    assert named(llama("sglang@0.5.14", trained=(2, 15, 27), eagle_config=None)) == ["engine-failure"]
    assert named(llama("sglang@0.5.15", trained=(2, 15, 27), eagle_config=None)) == []


def test_a_failure_without_a_trained_wiring_is_still_an_error() -> None:
    result = llama("sglang@0.5.23", trained=None, **nested([-2, 2, 15]))
    assert named(result) == ["engine-failure"]
    assert result.verdict is Verdict.FAIL


def test_known_engine_defect() -> None:
    draft = make_draft(draft_config(KIMI_CONFIG, **nested([2, 30, 58])))
    warned = check(draft, KIMI, "sglang@0.5.12", trained=(3, 31, 59))
    assert set(named(warned, "warning")) == {"known-engine-defect"}
    assert [f.evidence["defect"] for f in warned.findings] == ["partial-sums", "expert-parallel-gather"]
    assert named(check(draft, KIMI, "sglang@0.5.14", trained=(2, 30, 58)), "warning") == []


def test_unsupported_target() -> None:
    draft = make_draft(draft_config(KIMI_CONFIG, **nested([2, 30, 58])))
    assert named(check(draft, KIMI, "sglang@0.5.9", trained=(3, 31, 59))) == ["unsupported-target"]
    assert named(check(draft, KIMI, "sglang@0.5.10", trained=(3, 31, 59))) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**LLAMA_CONFIG, "hc_mult": 4}, "4 residual streams"),
        ({**LLAMA_CONFIG, "architectures": ["Qwen4ExpForConditionalGeneration"], "hc_count": 2}, "2 residual streams"),
        ({**LLAMA_CONFIG, "architectures": ["DeepseekV4ForCausalLM"]}, "4 residual streams"),
        ({**LLAMA_CONFIG, "attn_res_block_size": 12}, "attention residuals"),
    ],
)
def test_a_target_without_one_residual_stream_has_no_boundaries(config: dict[str, Any], words: str) -> None:
    result = check(make_draft(draft_config(LLAMA_CONFIG)), make_target(config), "vllm@0.25.0", trained=TRAINED)
    assert named(result) == ["unsupported-target"]
    assert words in only(result, "unsupported-target").message
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize("off", [{"hc_mult": 1}, {"hc_mult": 4, "mhc": False}, {"attn_res_block_size": None}])
def test_a_target_whose_streams_are_one_is_judged(off: dict[str, Any]) -> None:
    target = make_target({**LLAMA_CONFIG, **off})
    draft = make_draft(draft_config(LLAMA_CONFIG, **top([2, 15, 27])))
    assert named(check(draft, target, "vllm@0.32.0", trained=(2, 15, 27))) == []


def test_an_engine_that_refuses_is_told_whatever_the_streams() -> None:
    target = make_target({**LLAMA_CONFIG, "architectures": ["DeepseekV4ForCausalLM"], "hc_mult": 4})
    draft = make_draft(draft_config(LLAMA_CONFIG, **nested([2, 15, 27])))
    alone = check(draft, target, "sglang@0.5.23", trained=TRAINED)
    assert [f.engine for f in alone.findings if f.name == "unsupported-target"] == ["sglang@0.5.23"]
    both = check(draft, target, "sglang@0.5.23", "vllm@0.32.0", trained=TRAINED)
    assert [f.engine for f in both.findings if f.name == "unsupported-target"] == [None, "sglang@0.5.23"]
    evidence = next(f.evidence for f in both.findings if f.engine is None)
    assert "mean over its residual streams" in str(evidence["engines"])


def test_a_class_without_a_rule_is_inconclusive() -> None:
    target = target_of("NewForCausalLM")
    result = check(draft_of(target, **nested([2, 15, 27])), target, "sglang@0.5.23", trained=TRAINED)
    assert (named(result), result.verdict) == ([], Verdict.INCONCLUSIVE)
    assert any(skip.check == "target-support" and skip.blocks_verdict for skip in result.skipped)


def test_unknown_engine_version() -> None:
    draft = make_draft(draft_config(LLAMA_CONFIG, **nested([2, 15, 27])))
    unknown = check(draft, LLAMA, "sglang@0.6.0", trained=TRAINED)
    assert (named(unknown, "warning"), unknown.verdict) == (["unknown-engine-version"], Verdict.INCONCLUSIVE)
    assumed = check(draft, LLAMA, "sglang@0.6.0", trained=TRAINED, assume_nearest=True)
    assert (named(assumed, "warning"), assumed.verdict) == (["unknown-engine-version"], Verdict.PASS)
    assert "0.5.23" in only(assumed, "unknown-engine-version").message


@pytest.mark.parametrize("values", [{"architectures": ["DFlashDraftModel"]}, {"architectures": ["PEagleDraftModel"]}])
def test_eagle3_rules_are_applied_to_no_other_family(values: dict[str, Any]) -> None:
    result = llama("sglang@0.5.23", **{**nested([-1, 2, 15]), **values})
    assert (named(result), result.verdict) == ([], Verdict.INCONCLUSIVE)
    assert [skip.check for skip in result.skipped if skip.blocks_verdict] == ["draft-family"]


def test_no_engine_and_no_trained_wiring_are_said() -> None:
    result = llama(trained=None, **nested([2, 15, 27]))
    assert {skip.check for skip in result.skipped if skip.blocks_verdict} == {"engine-version", "served-wiring"}
    assert result.verdict is Verdict.INCONCLUSIVE


def with_fc(inner: int, **values: Any) -> Any:
    import dataclasses

    draft = make_draft(draft_config(LLAMA_CONFIG, **values))
    return dataclasses.replace(draft, fc_shape=(576, inner), fc_source="model.safetensors: fc.weight")


def test_fc_width() -> None:
    fits = check(with_fc(1728, **nested([2, 15, 27])), LLAMA, "sglang@0.5.23", trained=TRAINED)
    assert (fits.verdict, fits.findings, fits.skipped) == (Verdict.PASS, [], [])
    four = check(with_fc(4 * 576, **nested([2, 15, 27])), LLAMA, "sglang@0.5.23", trained=TRAINED)
    assert named(four) == ["fc-width"]
    assert "the weights hold one for 4" in only(four, "fc-width").message
    stated = check(with_fc(4 * 576, **nested([2, 15, 27, 28])), LLAMA, "sglang@0.5.23", trained=TRAINED)
    assert "fc-width" in named(stated)
    assert named(check(with_fc(1728, **nested([2, 15])), LLAMA, trained=TRAINED)) == ["fc-width"]


@pytest.mark.parametrize(
    ("values", "errors"),
    [
        ({}, []),
        ({"hidden_size": 512, "target_hidden_size": 576}, []),
        ({"hidden_size": 576, "target_hidden_size": 640}, ["hidden-size"]),
        ({"hidden_size": 512}, ["hidden-size"]),
    ],
)
def test_hidden_size(values: dict[str, Any], errors: list[str]) -> None:
    assert named(llama("sglang@0.5.23", **{**nested([2, 15, 27]), **values})) == errors


def test_hidden_size_by_fc_and_by_shards() -> None:
    assert named(check(with_fc(1000, **nested([2, 15, 27])), LLAMA, "sglang@0.5.23", trained=TRAINED)) == [
        "hidden-size"
    ]
    assert named(with_shards(layout(TRAINED, hidden_size=64))) == ["hidden-size"]


@pytest.mark.parametrize(
    ("values", "errors"),
    [
        ({}, []),
        ({"draft_vocab_size": 8192}, []),
        ({"draft_vocab_size": 60000}, ["vocab-size"]),
        ({"vocab_size": 32000}, ["vocab-size"]),
    ],
)
def test_vocab_size(values: dict[str, Any], errors: list[str]) -> None:
    assert named(llama("sglang@0.5.23", **{**nested([2, 15, 27]), **values})) == errors


def layout(
    declared: tuple[Any, ...] | None,
    *,
    slots: int = 3,
    hidden_size: int = 576,
    last_state: LastStateRule = LastStateRule.ABSENT,
) -> Layout:
    return Layout(
        format="test",
        description="a layout",
        slots=slots,
        hidden_size=hidden_size,
        dtype="bfloat16",
        last_state=last_state,
        declared=None if declared is None else Wiring(declared),
        declared_by="data_config.json: hidden_states.layer_ids",
    )


def with_shards(shards: Layout, stated: tuple[Any, ...] | None = None) -> Result:
    return check_config(
        make_draft(draft_config(LLAMA_CONFIG, **nested([2, 15, 27]))),
        LLAMA,
        engines=[],
        stated=None if stated is None else trained_on(*stated),
        shards=("shards", shards),
    )


def test_shards_state_the_trained_wiring() -> None:
    undecided = layout((3, 16, 28, 30), slots=4, last_state=LastStateRule.UNDECIDED)
    result = with_shards(undecided)
    assert result.wiring.trained == [3, 16, 28]
    assert result.wiring.last_state.trained == 30
    assert "data_config.json" in result.measurements["trained_by"]


def test_misdeclared_wiring() -> None:
    assert named(with_shards(layout((3, 16, 28)), (3, 16, 28))) == []
    contradicted = with_shards(layout((3, 16, 28)), (2, 15, 27))
    assert named(contradicted) == ["misdeclared-wiring"]
    assert contradicted.wiring.trained == [3, 16, 28]
    assert named(with_shards(layout(None, slots=5), (3, 16, 28))) == ["misdeclared-wiring"]
    assert named(with_shards(layout(None, slots=4, last_state=LastStateRule.UNDECIDED), (3, 16, 28))) == []
