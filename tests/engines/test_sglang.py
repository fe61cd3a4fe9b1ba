"""SGLang: setters against what its own code printed, then what the forward delivers, by class and version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from config_cases import draft_of, nested, serve_all, serve_one, target_of

from eagle_parity.engines.serving import Unjudged
from eagle_parity.engines.sglang import CLASSES, NO_SETTER, VERSIONS
from eagle_parity.results import Outcome

SETTERS = json.loads((Path(__file__).parent / "sglang_setters.json").read_text())
LLAMA = "LlamaForCausalLM"
DEEPSEEK = "DeepseekV3ForCausalLM"
KIMI = "KimiK25ForConditionalGeneration"
GPT_OSS = "GptOssForCausalLM"
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
        ("sglang@0.5.12", "Glm4MoeLiteForCausalLM", [2, 5, 9], (3, 6, 10), Outcome.SERVES),
    ],
)
def test_what_the_forward_delivers(
    engine: str, architecture: str, ids: list[int], boundaries: tuple[int, ...], outcome: Outcome
) -> None:
    target = target_of(architecture)
    served = serve_one(engine, draft_of(target, **nested(ids)), target)
    assert (served.boundaries, served.outcome) == (boundaries, outcome)


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


@pytest.mark.parametrize(
    ("version", "outcome"), [("0.5.11", Outcome.FAILS_AT_FIRST_REQUEST), ("0.5.12", Outcome.SERVES)]
)
def test_four_slots_need_an_fc_that_is_sized_by_the_list(version: str, outcome: Outcome) -> None:
    target = target_of(LLAMA)
    assert serve_one(f"sglang@{version}", draft_of(target, **nested([1, 2, 5, 9])), target).outcome is outcome


@pytest.mark.parametrize(
    ("engine", "architecture", "ids", "defects"),
    [
        ("sglang@0.5.12", KIMI, [2, 30, 58], ["partial-sums"]),
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


def test_no_version_of_a_class_has_two_rules_or_a_rule_and_a_refusal() -> None:
    from eagle_parity.versions import in_range

    for version in VERSIONS:
        rules = [r for r in CLASSES if in_range(version, r.first, r.last)]
        refusals = [r for r in NO_SETTER if in_range(version, r.first, r.last)]
        seen = [a for r in rules for a in r.architectures] + [a for r in refusals for a in r.architectures]
        assert len(seen) - len(set(seen)) <= len(
            {a for r in refusals for a in r.architectures} & {a for r in rules for a in r.architectures}
        )
        assert len({a for r in rules for a in r.architectures}) == sum(len(r.architectures) for r in rules)


def test_every_class_is_covered_from_its_first_to_the_newest_version() -> None:
    from eagle_parity.versions import in_range

    for architecture in {a for r in CLASSES for a in r.architectures}:
        covered = [
            any(architecture in r.architectures and in_range(version, r.first, r.last) for r in CLASSES)
            for version in VERSIONS
        ]
        assert covered == sorted(covered), architecture
        assert covered[-1], architecture
