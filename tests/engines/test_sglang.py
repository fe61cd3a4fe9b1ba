"""SGLang: setters against what its own code printed, then what the forward delivers, by class and version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from config_cases import draft_of, nested, serve_all, serve_one, target_of
from msgspec.structs import replace

from eagle_parity.drafts import IDS
from eagle_parity.engines import find_engine, parse_engine
from eagle_parity.engines.failures import FailureKind
from eagle_parity.engines.serving import Unjudged, serve
from eagle_parity.engines.sglang import (
    BUFFERS,
    CLASSES,
    DEEPSEEK_WIDTHS,
    KEYS,
    LLAMA_WIDTHS,
    NO_RULE,
    NO_SETTER,
    SGLANG,
    VERSIONS,
)
from eagle_parity.results import Outcome
from eagle_parity.versions import in_range, parse_version

SETTERS = json.loads((Path(__file__).parent / "sglang_setters.json").read_text())
LLAMA = "LlamaForCausalLM"
DEEPSEEK = "DeepseekV3ForCausalLM"
KIMI = "KimiK25ForConditionalGeneration"
GPT_OSS = "GptOssForCausalLM"
GLM_LITE = "Glm4MoeLiteForCausalLM"
QWEN_MOE = "Qwen3MoeForCausalLM"


@pytest.mark.parametrize("case", SETTERS["cases"], ids=lambda c: f"{c['architecture']}-{c['ids']}")
def test_setters_ask_for_what_sglang_s_own_code_asks_for(case: dict[str, Any]) -> None:
    target = target_of(case["architecture"], SETTERS["num_layers"])
    draft = draft_of(target, **({} if case["ids"] is None else nested(case["ids"])))
    served = serve_one("sglang@0.5.23", draft, target)
    if "error" in case:
        assert served.outcome is Outcome.FAILS_AT_LOAD
        assert served.failure is not None
        assert case["error"] in served.failure.words
        return
    assert list(served.asked) == case["asked"]
    if "flagged" in case:
        assert sorted(b for b in served.boundaries if isinstance(b, int)) == case["flagged"]


@pytest.mark.parametrize(
    ("engine", "architecture", "ids", "boundaries", "outcome"),
    [
        # The founding story's class: +1 until 0.5.12, the first-id rule from 0.5.13.
        ("sglang@0.5.12", KIMI, [-1, 2, 30], (0, 3, 31), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.12:embedding-capture=patched", KIMI, [-1, 2, 30], (0, 3, 31), Outcome.SERVES),
        ("sglang@0.5.12", KIMI, [2, 30, 58], (3, 31, 59), Outcome.SERVES),
        ("sglang@0.5.12.post1", KIMI, [2, 30, 58], (3, 31, 59), Outcome.SERVES),
        ("sglang@0.5.13", KIMI, [2, 30, 58], (2, 30, 58), Outcome.SERVES),
        ("sglang@0.5.13", KIMI, [1, 29, 57], (2, 30, 58), Outcome.SERVES),
        ("sglang@0.5.23", KIMI, [-1, 2, 30], (2, 30), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.23:embedding-capture=patched", KIMI, [-1, 2, 30], (2, 30), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.10", KIMI, [2, 30, 58], (3, 31, 59), Outcome.SERVES),
        ("sglang@0.5.9", KIMI, [2, 30, 58], (), Outcome.UNSUPPORTED),
        ("sglang@0.5.8", KIMI, [2, 30, 58], (), Outcome.UNSUPPORTED),
        ("sglang@0.5.8", DEEPSEEK, [2, 30, 58], (3, 31, 59), Outcome.SERVES),
        # Index 0: a TypeError until the class captures at a boundary object.
        ("sglang@0.5.13", DEEPSEEK, [0, 5, 9], (0, 5, 9), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.14", DEEPSEEK, [0, 5, 9], (0, 5, 9), Outcome.SERVES),
        ("sglang@0.5.21", LLAMA, [-1, 2, 5], (0, 3, 6), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.22", LLAMA, [-1, 2, 5], (0, 3, 6), Outcome.SERVES),
        ("sglang@0.5.12", "Qwen3ForCausalLM", [-1, 2, 5], (0, 3, 6), Outcome.SERVES),
        # Order of the loop, duplicates, the last layer, beyond it.
        ("sglang@0.5.23", LLAMA, [5, 1, 3], (2, 4, 6), Outcome.SERVES),
        ("sglang@0.5.23", LLAMA, [1, 1, 3], (2, 4), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.23", LLAMA, [1, 3, 60], (2, 4), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.23", LLAMA, [-2, 2, 5], (3, 6), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.23", QWEN_MOE, [-2, 2, 5], (3, 6, 60), Outcome.SERVES),
        ("sglang@0.5.23", QWEN_MOE, [2, 5, 60], (3, 6), Outcome.FAILS_AT_LOAD),
        ("sglang@0.5.23", GPT_OSS, [24, 30, 61], (24, 30, 61), Outcome.SERVES),
        ("sglang@0.5.23", GPT_OSS, [23, 29, 60], (24, 30, 61), Outcome.SERVES),
        ("sglang@0.5.16", GPT_OSS, [24, 30, 61], (25, 31), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.23", "Glm4MoeLiteForCausalLM", [2, 5, 9], (2, 5, 9), Outcome.SERVES),
        ("sglang@0.5.12", "Glm4MoeLiteForCausalLM", [2, 5, 9], (), Outcome.FAILS_AT_FIRST_REQUEST),
        ("sglang@0.5.13", "Glm4MoeLiteForCausalLM", [2, 5, 9], (2, 5, 9), Outcome.SERVES),
    ],
)
def test_what_the_forward_delivers(
    engine: str, architecture: str, ids: list[int], boundaries: tuple[int, ...], outcome: Outcome
) -> None:
    target = target_of(architecture)
    served = serve_one(engine, draft_of(target, **nested(ids)), target)
    assert (served.boundaries, served.outcome) == (boundaries, outcome)


def test_glm_lite_dies_by_its_own_fault_before_0_5_13() -> None:
    target = target_of(GLM_LITE)
    served = serve_one("sglang@0.5.12", draft_of(target), target)
    assert served.failure is not None
    assert (served.failure.kind, served.boundaries) == (FailureKind.CAPTURE, ())
    assert "AttributeError in the target's forward at index 2" in served.failure.words
    # A list of which no layer is asked for never gets there.
    nothing = serve_one("sglang@0.5.12", draft_of(target, **nested([97, 98, 99])), target)
    assert nothing.failure is not None
    assert nothing.failure.kind is FailureKind.MISSING_STATE


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.5.16", "shape error in the draft's fc"),
        ("0.5.17", "AssertionError"),
        ("0.5.19", "AssertionError"),
        ("0.5.20", "RuntimeError in the target's forward: captured 2 of 3"),
    ],
)
def test_who_notices_a_missing_state_on_deepseek(version: str, words: str) -> None:
    target = target_of(KIMI)
    served = serve_one(f"sglang@{version}", draft_of(target, **nested([-1, 2, 30])), target)
    assert served.failure is not None
    assert words in served.failure.words


@pytest.mark.parametrize(
    ("config", "key", "boundaries", "outcome"),
    [
        ({}, None, (2, 30, 58), Outcome.SERVES),
        ({"eagle_aux_hidden_state_layer_ids": [3, 31, 59]}, None, (2, 30, 58), Outcome.SERVES),
        (nested(None), None, (2, 30, 58), Outcome.SERVES),
        (nested([]), "nested", (), Outcome.FAILS_AT_FIRST_REQUEST),
        (nested("1,2"), "nested", (), Outcome.FAILS_AT_LOAD),
        (nested(5), "nested", (), Outcome.FAILS_AT_LOAD),
        (nested([1.0, 2.0, 5.0]), "nested", (2, 3, 6), Outcome.SERVES),
        (nested([1.5, 2, 5]), "nested", (3, 6), Outcome.FAILS_AT_FIRST_REQUEST),
        (nested(["1", 2, 5]), "nested", (), Outcome.FAILS_AT_LOAD),
        (nested([[1], 2, 5]), "nested", (), Outcome.FAILS_AT_LOAD),
        (nested([True, 2, 5]), "nested", (2, 3, 6), Outcome.SERVES),
        (nested([1, 2, 5], use_aux_hidden_state=False), "nested", ("post_norm",), Outcome.SERVES),
        ({"eagle_config": [1]}, None, (), Outcome.FAILS_AT_LOAD),
    ],
)
def test_key_reading(config: dict[str, Any], key: str | None, boundaries: tuple[Any, ...], outcome: Outcome) -> None:
    target = target_of(LLAMA)
    served = serve_one("sglang@0.5.23", draft_of(target, **config), target)
    expected = "eagle_config.eagle_aux_hidden_state_layer_ids" if key == "nested" else None
    assert (served.boundaries, served.outcome, served.key) == (boundaries, outcome, expected)


@pytest.mark.parametrize(("version", "outcome"), [("0.5.14", Outcome.FAILS_AT_LOAD), ("0.5.15", Outcome.SERVES)])
def test_a_null_eagle_config_kills_the_old_draft_worker(version: str, outcome: Outcome) -> None:
    target = target_of(LLAMA)
    assert serve_one(f"sglang@{version}", draft_of(target, eagle_config=None), target).outcome is outcome


DEEPSEEK_DRAFT = {"architectures": ["Eagle3DeepseekV2ForCausalLM"]}


@pytest.mark.parametrize(
    ("version", "values", "outcome", "words"),
    [
        ("0.5.11", {}, Outcome.FAILS_AT_FIRST_REQUEST, "shape error in the draft's fc"),
        # The draft-extend graphs' buffer is sized by the target's config until 0.5.14, which is to say for three.
        ("0.5.12", {}, Outcome.FAILS_AT_LOAD, "their buffer holds 3 slots"),
        ("0.5.12.post1", {}, Outcome.FAILS_AT_LOAD, "their buffer holds 3 slots"),
        ("0.5.13", DEEPSEEK_DRAFT, Outcome.FAILS_AT_LOAD, "their buffer holds 3 slots"),
        ("0.5.14", {"num_aux_hidden_states": 4}, Outcome.FAILS_AT_LOAD, "their buffer holds 3 slots"),
        ("0.5.15", {}, Outcome.SERVES, None),
        ("0.5.15", DEEPSEEK_DRAFT, Outcome.SERVES, None),
        ("0.5.23", {"num_aux_hidden_states": 4}, Outcome.SERVES, None),
        # From 0.5.15 on the buffer goes by more keys than fc does.
        ("0.5.23", {**DEEPSEEK_DRAFT, "num_aux_hidden_states": 3}, Outcome.FAILS_AT_LOAD, "their buffer holds 3 slots"),
    ],
)
def test_four_slots_need_an_fc_and_a_graph_buffer_that_are_sized_by_the_list(
    version: str, values: dict[str, Any], outcome: Outcome, words: str | None
) -> None:
    target = target_of(LLAMA)
    served = serve_one(f"sglang@{version}", draft_of(target, **nested([1, 2, 5, 9]), **values), target)
    assert served.outcome is outcome
    assert (served.failure.words if served.failure else None, words) == (None, None) or (
        words is not None and served.failure is not None and words in served.failure.words
    )


def test_a_top_level_list_sizes_the_graph_buffer_although_its_ids_are_not_read() -> None:
    target = target_of(LLAMA)
    served = serve_one("sglang@0.5.23", draft_of(target, **{IDS: [1, 2, 5, 9]}), target)
    assert (served.boundaries, served.outcome) == ((2, 30, 58), Outcome.FAILS_AT_LOAD)
    assert served.failure is not None
    assert "--disable-cuda-graph" in served.failure.remark


@pytest.mark.parametrize(
    ("engine", "architecture", "ids", "values", "outcome", "defects"),
    [
        # Nothing notices.
        ("sglang@0.5.23", LLAMA, [5, 5, 5], {}, Outcome.SERVES, ["fc-skipped"]),
        ("sglang@0.5.23", LLAMA, [5], {}, Outcome.SERVES, ["fc-skipped"]),
        ("sglang@0.5.11", LLAMA, [5], {}, Outcome.SERVES, ["fc-skipped"]),
        ("sglang@0.5.12", LLAMA, [5], {}, Outcome.FAILS_AT_LOAD, ["fc-skipped"]),
        ("sglang@0.5.23", LLAMA, [-9, 5, 99], {}, Outcome.SERVES, ["fc-skipped"]),
        ("sglang@0.5.23", LLAMA, [5, 5, 5], {"hidden_size": 32}, Outcome.FAILS_AT_FIRST_REQUEST, []),
        (
            "sglang@0.5.23",
            LLAMA,
            [5, 7],
            {"hidden_size": 128, "target_hidden_size": 64},
            Outcome.SERVES,
            ["fc-skipped"],
        ),
        ("sglang@0.5.23", LLAMA, [5, 7, 9], {"hidden_size": 128, "target_hidden_size": 64}, Outcome.SERVES, []),
        ("sglang@0.5.23", LLAMA, [5, 5, 7], {}, Outcome.FAILS_AT_FIRST_REQUEST, []),
        # The packer notices before the draft is asked.
        ("sglang@0.5.23", DEEPSEEK, [5, 5, 5], {}, Outcome.FAILS_AT_FIRST_REQUEST, ["fc-skipped"]),
    ],
)
def test_states_that_are_together_as_wide_as_the_draft_go_past_fc(  # noqa: PLR0917  a case's columns
    engine: str, architecture: str, ids: list[int], values: dict[str, Any], outcome: Outcome, defects: list[str]
) -> None:
    target = target_of(architecture)
    served = serve_one(engine, draft_of(target, **nested(ids), **values), target)
    assert (served.outcome, [d.name for d in served.defects if d.name == "fc-skipped"]) == (outcome, defects)


@pytest.mark.parametrize(
    ("values", "outcome"), [({}, Outcome.SERVES), ({"hidden_size": 32}, Outcome.FAILS_AT_FIRST_REQUEST)]
)
def test_the_final_state_goes_past_fc_where_it_is_as_wide_as_the_draft(
    values: dict[str, Any], outcome: Outcome
) -> None:
    target = target_of(LLAMA)
    draft = draft_of(target, **nested([1, 2, 5], use_aux_hidden_state=False), **values)
    served = serve_one("sglang@0.5.23", draft, target)
    assert (served.boundaries, served.outcome, served.defects) == (("post_norm",), outcome, ())


@pytest.mark.parametrize(
    ("engine", "architecture", "ids", "defects"),
    [
        ("sglang@0.5.12", KIMI, [2, 30, 58], ["partial-sums", "expert-parallel-gather"]),
        ("sglang@0.5.13.post1", DEEPSEEK, [1, 29, 57], ["partial-sums", "expert-parallel-gather"]),
        ("sglang@0.5.12", GLM_LITE, [2, 30, 58], []),
        ("sglang@0.5.13", GLM_LITE, [2, 30, 58], ["partial-sums"]),
        ("sglang@0.5.20", GLM_LITE, [2, 30, 58], ["partial-sums"]),
        ("sglang@0.5.21", GLM_LITE, [2, 30, 58], []),
        ("sglang@0.5.14", KIMI, [2, 30, 58], []),
        ("sglang@0.5.20", GPT_OSS, [2, 30, 50], ["partial-sums"]),
        ("sglang@0.5.21", GPT_OSS, [2, 30, 50], []),
        ("sglang@0.5.10.post1", LLAMA, [2, 30, 50], ["verify-graphs-use-default-layers"]),
        ("sglang@0.5.10.post1", LLAMA, [1, 29, 57], []),
        ("sglang@0.5.11", LLAMA, [2, 30, 50], []),
        ("sglang@0.5.20", "Qwen2ForCausalLM", [-1, 30, 50], ["embedding-alias"]),
        ("sglang@0.5.20", "Qwen2ForCausalLM", [2, 30, 50], []),
    ],
)
def test_known_defects_by_version(engine: str, architecture: str, ids: list[int], defects: list[str]) -> None:
    target = target_of(architecture)
    served = serve_one(engine, draft_of(target, **nested(ids)), target)
    assert [defect.name for defect in served.defects] == defects


def test_a_class_that_no_table_knows_is_not_guessed() -> None:
    target = target_of("SomethingNewForCausalLM")
    (served,) = serve_all("sglang@0.5.23", draft_of(target, **nested([1, 2, 5])), target)
    assert isinstance(served, Unjudged)
    assert "SomethingNewForCausalLM" in served.reason


READ = json.loads((Path(__file__).parent / "sglang_classes.json").read_text())["setters"]
"""By class, then by the file that its setter is in, "no setter" or "absent": the releases."""

CLASSES_OF_RULES = sorted({a for rules in (CLASSES, NO_SETTER, NO_RULE) for rule in rules for a in rule.architectures})


@pytest.mark.parametrize("architecture", CLASSES_OF_RULES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_class_and_version_was_read_and_has_the_rule_that_was_found(architecture: str, version: str) -> None:
    (found,) = [state for state, releases in READ[architecture].items() if version in releases]
    rules = [r for r in CLASSES if architecture in r.architectures and in_range(version, r.first, r.last)]
    refusals = [r for r in NO_SETTER if architecture in r.architectures and in_range(version, r.first, r.last)]
    if found == "absent":
        assert rules == []
        assert all("does not exist" in refusal.reason for refusal in refusals)
    elif found == "no setter":
        assert (len(rules), len(refusals)) == (0, 1)
        assert "does not exist" not in refusals[0].reason
    else:
        unruled = [r for r in NO_RULE if architecture in r.architectures and in_range(version, r.first, r.last)]
        assert (len(rules) + len(unruled), len(refusals)) == (1, 0)


def test_every_version_has_one_rule_for_keys_and_for_each_width() -> None:
    for version in VERSIONS:
        for rules in ([KEYS], [*LLAMA_WIDTHS], [*BUFFERS]):
            assert sum(in_range(version, r.first, r.last) for r in rules) == 1, version
        assert sum(in_range(version, r.first, r.last) for r in DEEPSEEK_WIDTHS) == (
            parse_version(version) >= parse_version("0.5.12")
        )


@pytest.mark.parametrize("architecture", CLASSES_OF_RULES)
@pytest.mark.parametrize("options", ["", ":embedding-capture=patched"])
def test_a_version_that_is_listed_but_not_read_gets_no_answer(architecture: str, options: str) -> None:
    listed = replace(SGLANG, versions=(*VERSIONS, "0.5.24"))
    target = target_of(architecture)
    name = parse_engine(f"sglang@0.5.24{options}")
    served = serve(
        listed, draft_of(target, **nested([1, 2, 5])), target, name=name, variant=dict(name.options), version="0.5.24"
    )
    assert isinstance(served, Unjudged)


def test_a_class_that_was_read_does_not_lend_its_rule_to_a_version_without_rules_for_drafts() -> None:
    rule = next(r for r in CLASSES if LLAMA in r.architectures and r.last == VERSIONS[-1])
    listed = replace(SGLANG, versions=(*VERSIONS, "0.5.24"), classes=(replace(rule, last="0.5.24"),))
    target = target_of(LLAMA)
    name = parse_engine("sglang@0.5.24")
    served = serve(listed, draft_of(target), target, name=name, variant={}, version="0.5.24")
    assert isinstance(served, Unjudged)
    assert "how SGLang 0.5.24 reads a draft" in served.reason


def test_sources_name_a_release_of_the_rule_s_own_range() -> None:
    assert find_engine(parse_engine("sglang@0.5.12")) is SGLANG
    for rule in CLASSES:
        assert in_range(rule.source.version, rule.first, rule.last), rule.source


@pytest.mark.parametrize(
    ("engine", "outcome", "words"),
    [
        ("sglang@0.5.9:impl=mindspore", Outcome.UNSUPPORTED, "no set_eagle3_layers_to_capture"),
        ("sglang@0.5.8:impl=transformers", Outcome.UNSUPPORTED, "no set_eagle3_layers_to_capture"),
        ("sglang@0.5.23:impl=transformers", Outcome.UNSUPPORTED, "does not implement"),
        ("sglang@0.5.23:impl=sglang", Outcome.SERVES, ""),
    ],
)
def test_another_implementation_loads_another_class(engine: str, outcome: Outcome, words: str) -> None:
    target = target_of("LlamaForCausalLM")
    served = serve_one(engine, draft_of(target, **nested([1, 2, 5])), target)
    assert served.outcome is outcome
    assert words in (served.failure.words if served.failure else "")


@pytest.mark.parametrize("version", ["0.5.10", "0.5.16", "0.5.23"])
def test_what_mindspore_captures_is_not_guessed(version: str) -> None:
    target = target_of("Qwen3ForCausalLM")
    (served,) = serve_all(f"sglang@{version}:impl=mindspore", draft_of(target, **nested([1, 2, 5])), target)
    assert isinstance(served, Unjudged)
    assert "sgl_mindspore" in served.reason


@pytest.mark.parametrize("version", ["0.5.20", "0.5.23"])
def test_qwen4_exp_hands_over_other_states_than_it_captures(version: str) -> None:
    target = target_of("Qwen4ExpForConditionalGeneration")
    (served,) = serve_all(f"sglang@{version}", draft_of(target, **nested([1, 2, 5])), target)
    assert isinstance(served, Unjudged)
    assert "4 residual streams" in served.reason
    assert "in place of the captured states" in served.reason
