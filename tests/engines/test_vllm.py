"""vLLM 0.32.0's rules: where each runner looks, and what each kind of target class delivers."""

from __future__ import annotations

from typing import Any

import pytest
from config_cases import draft_of, make_draft, nested, serve_all, serve_one, target_of

from eagle_parity.drafts import IDS
from eagle_parity.engines.serving import Served, Unjudged
from eagle_parity.results import Outcome

TOP, NESTED, LAYER_IDS = [1, 2, 3], [4, 5, 6], [2, 4, 6]
DEFAULT = (2, 30, 58)
LLAMA, KIMI = "LlamaForCausalLM", "KimiK25ForConditionalGeneration"


@pytest.mark.parametrize(
    ("config", "v1", "v2"),
    [
        ({}, DEFAULT, DEFAULT),
        ({IDS: TOP}, (1, 2, 3), (1, 2, 3)),
        ({IDS: TOP, **nested(NESTED)}, (1, 2, 3), (1, 2, 3)),
        ({IDS: TOP, **nested(None)}, (1, 2, 3), (1, 2, 3)),
        (nested(NESTED), (4, 5, 6), DEFAULT),
        ({IDS: None, **nested(NESTED)}, (4, 5, 6), DEFAULT),
        ({IDS: [], **nested(NESTED)}, (4, 5, 6), DEFAULT),
        ({IDS: "1,2,3", **nested(NESTED)}, DEFAULT, DEFAULT),
        (nested("4,5"), None, None),
        ({"eagle_config": {"layer_ids": LAYER_IDS}}, DEFAULT, (2, 4, 6)),
        ({"eagle_config": {"layer_ids": NESTED, IDS: LAYER_IDS}}, (2, 4, 6), (4, 5, 6)),
        ({IDS: TOP, "eagle_config": {"layer_ids": NESTED}}, (1, 2, 3), (1, 2, 3)),
        ({"target_layer_ids": TOP}, DEFAULT, (2, 3, 4)),
        ({"dspark_target_layer_ids": TOP}, DEFAULT, (2, 3, 4)),
        ({"aux_hidden_state_layer_ids": TOP}, DEFAULT, DEFAULT),
    ],
)
def test_where_each_runner_looks(
    config: dict[str, Any], v1: tuple[int, ...] | None, v2: tuple[int, ...] | None
) -> None:
    target = target_of(LLAMA)
    first, second = serve_all("vllm@0.32.0", draft_of(target, **config), target)
    assert isinstance(first, Served)
    assert isinstance(second, Served)
    if v1 is not None:
        assert (first.boundaries, second.boundaries) == (v1, v2)


@pytest.mark.parametrize(
    ("engine", "architecture", "ids", "boundaries", "outcome"),
    [
        ("vllm@0.32.0:runner=v1", LLAMA, [7, 1, 4], (1, 4, 7), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", LLAMA, [-1, 2, 5], (2, 5), Outcome.FAILS_AT_FIRST_REQUEST),
        ("vllm@0.32.0:runner=v2", LLAMA, [-1, 2, 5], (2, 5), Outcome.FAILS_AT_LOAD),
        ("vllm@0.32.0:runner=v1", LLAMA, [2, 2, 5], (2, 5), Outcome.FAILS_AT_FIRST_REQUEST),
        ("vllm@0.32.0:runner=v1", LLAMA, [2, 5, 62], (2, 5), Outcome.FAILS_AT_FIRST_REQUEST),
        ("vllm@0.32.0:runner=v1", LLAMA, [0, 2, 61], (0, 2, 61), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", KIMI, [0, 2, 30], (0, 2, 30), Outcome.FAILS_AT_LOAD),
        ("vllm@0.32.0:runner=v1", KIMI, [3, 31, 61], (3, 31, 61), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", KIMI, [-9, -8, -7], (), Outcome.FAILS_AT_LOAD),
        ("vllm@0.32.0:runner=v1", LLAMA, [1, 3, 5, 7], (1, 3, 5, 7), Outcome.FAILS_AT_FIRST_REQUEST),
        ("vllm@0.32.0:runner=v2,impl=transformers", LLAMA, [8, 1, 4], (8, 1, 4), Outcome.SERVES),
        ("vllm@0.32.0:runner=v2,impl=transformers", LLAMA, [0, 1, 4], (1, 4), Outcome.FAILS_AT_LOAD),
        ("vllm@0.32.0:runner=v2,impl=transformers", LLAMA, [-1, 1, 4], (1, 4), Outcome.FAILS_AT_LOAD),
        ("vllm@0.32.0:runner=v2", "SmolLM3ForCausalLM", [8, 1, 4], (8, 1, 4), Outcome.SERVES),
        ("vllm@0.32.0:runner=v2", "Qwen2MoeForCausalLM", [1, 4, 8], (), Outcome.UNSUPPORTED),
    ],
)
def test_what_the_forward_delivers(
    engine: str, architecture: str, ids: list[int], boundaries: tuple[int, ...], outcome: Outcome
) -> None:
    target = target_of(architecture)
    served = serve_one(engine, draft_of(target, **{IDS: ids}), target)
    assert (served.boundaries, served.outcome) == (boundaries, outcome)


@pytest.mark.parametrize("num_layers", range(1, 13))
def test_the_default_needs_seven_layers(num_layers: int) -> None:
    target = target_of(LLAMA, num_layers)
    served = serve_one("vllm@0.32.0:runner=v1", draft_of(target), target)
    assert served.serves == (num_layers not in {1, 2, 4, 5, 6})


def test_four_ids_serve_once_fc_is_told_how_many() -> None:
    target = target_of(LLAMA)
    ids = [1, 3, 5, 7]
    assert all(
        isinstance(s, Served) and s.serves
        for s in serve_all("vllm@0.32.0", draft_of(target, **{IDS: ids, "num_aux_hidden_states": 4}), target)
    )
    qwen = draft_of(target, **{IDS: ids, "architectures": ["Eagle3Qwen3ForCausalLM"]})
    assert all(isinstance(s, Served) and s.serves for s in serve_all("vllm@0.32.0", qwen, target))


def test_without_aux_states_v1_feeds_the_final_state_and_v2_does_not_start() -> None:
    target = target_of(LLAMA)
    first, second = serve_all("vllm@0.32.0", draft_of(target, **nested([], use_aux_hidden_state=False)), target)
    assert isinstance(first, Served)
    assert isinstance(second, Served)
    assert (first.boundaries, first.outcome) == (("post_norm",), Outcome.SERVES)
    assert second.outcome is Outcome.FAILS_AT_LOAD


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"architectures": ["LlamaEagle3DraftModel"]}, "is not supported"),
        ({"model_type": "deepseek_v3"}, "MTP"),
        ({"eagle_config": [1]}, "eagle_config is no object"),
    ],
)
def test_drafts_that_do_not_start(values: dict[str, Any], words: str) -> None:
    target = target_of(LLAMA)
    draft = draft_of(target, **{IDS: TOP, **values})
    for served in serve_all("vllm@0.32.0", draft, target):
        assert isinstance(served, Served)
        assert served.outcome is Outcome.FAILS_AT_LOAD
        assert served.failure is not None
        assert words in served.failure.words


def speculators(**values: Any) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3"},
        "transformer_layer_config": {"model_type": "llama", "hidden_size": 64, "vocab_size": 99},
        **values,
    }


@pytest.mark.parametrize(
    ("values", "boundaries"),
    [
        ({IDS: [3, 31, 59]}, (3, 31, 59)),
        ({}, DEFAULT),
        ({IDS: None}, DEFAULT),
        (nested([3, 31, 59]), DEFAULT),
        ({"aux_hidden_state_layer_ids": [3, 31, 59]}, DEFAULT),
    ],
)
def test_the_speculators_dialect_drops_eagle_config(values: dict[str, Any], boundaries: tuple[int, ...]) -> None:
    target = target_of(LLAMA)
    for served in serve_all("vllm@0.32.0", make_draft(speculators(**values)), target):
        assert isinstance(served, Served)
        assert (served.boundaries, served.outcome) == (boundaries, Outcome.SERVES)


def test_native_is_not_what_runs_through_the_transformers_backend() -> None:
    target = target_of("SmolLM3ForCausalLM")
    (served,) = serve_all("vllm@0.32.0:impl=native,runner=v1", draft_of(target), target)
    assert isinstance(served, Unjudged)
