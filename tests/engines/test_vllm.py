"""vLLM's rules: where each runner looks, and what each kind of target class delivers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from config_cases import draft_of, make_draft, make_target, nested, serve_all, serve_one, target_of
from msgspec.structs import replace

from eagle_parity.drafts import IDS
from eagle_parity.engines import parse_engine
from eagle_parity.engines.serving import Served, Unjudged, serve
from eagle_parity.engines.vllm import CLASSES, NO_RULE, NO_SETTER, VERSIONS, VLLM, WRAPPERS
from eagle_parity.results import Outcome
from eagle_parity.versions import in_range

if TYPE_CHECKING:
    from eagle_parity.targets import Target

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
        (nested("4,5"), DEFAULT, DEFAULT),
        ({"eagle_config": {"layer_ids": LAYER_IDS}}, DEFAULT, (2, 4, 6)),
        ({"eagle_config": {"layer_ids": NESTED, IDS: LAYER_IDS}}, (2, 4, 6), (4, 5, 6)),
        ({IDS: TOP, "eagle_config": {"layer_ids": NESTED}}, (1, 2, 3), (1, 2, 3)),
        ({"target_layer_ids": TOP}, DEFAULT, (2, 3, 4)),
        ({"dspark_target_layer_ids": TOP}, DEFAULT, (2, 3, 4)),
        ({"aux_hidden_state_layer_ids": TOP}, DEFAULT, DEFAULT),
    ],
)
def test_where_each_runner_looks(config: dict[str, Any], v1: tuple[int, ...], v2: tuple[int, ...]) -> None:
    target = target_of(LLAMA)
    first, second = serve_all("vllm@0.32.0", draft_of(target, **config), target)
    assert isinstance(first, Served)
    assert isinstance(second, Served)
    assert (first.boundaries, second.boundaries) == (v1, v2)


@pytest.mark.parametrize("version", ["0.25.0", "0.28.0", "0.31.0"])
@pytest.mark.parametrize(
    ("config", "v1", "v2"),
    [
        ({}, DEFAULT, DEFAULT),
        ({IDS: TOP, **nested(NESTED)}, (1, 2, 3), (1, 2, 3)),
        (nested(NESTED), (4, 5, 6), DEFAULT),
        ({"target_layer_ids": TOP}, DEFAULT, (2, 3, 4)),
        ({"dflash_config": {"target_layer_ids": TOP}}, (2, 3, 4), (2, 3, 4)),
    ],
)
def test_earlier_releases_look_in_the_same_places(
    version: str, config: dict[str, Any], v1: tuple[int, ...], v2: tuple[int, ...]
) -> None:
    target = target_of(LLAMA)
    # A dflash_config beside a list would be another family's draft; the keys are looked for all the same.
    first, second = serve_all(f"vllm@{version}", draft_of(target, **config), target)
    assert isinstance(first, Served)
    assert isinstance(second, Served)
    assert (first.boundaries, second.boundaries) == (v1, v2)


@pytest.mark.parametrize(("version", "read"), [("0.25.0", False), ("0.28.0", True), ("0.31.0", True), ("0.32.0", True)])
def test_v2_looks_into_eagle_config_layer_ids_from_0_28_on(version: str, read: bool) -> None:
    target = target_of(LLAMA)
    draft = draft_of(target, eagle_config={"layer_ids": LAYER_IDS})
    served = serve_one(f"vllm@{version}:runner=v2", draft, target)
    assert served.boundaries == ((2, 4, 6) if read else DEFAULT)


@pytest.mark.parametrize(
    ("engine", "architecture", "ids", "boundaries", "outcome"),
    [
        # From 0.31 on the setter sorts; before, entries that can't be compared just never match.
        ("vllm@0.28.0:runner=v2", LLAMA, ["1", 2, 5], (2, 5), Outcome.FAILS_AT_LOAD),
        ("vllm@0.28.0:runner=v1", LLAMA, ["1", 2, 5], (2, 5), Outcome.FAILS_AT_FIRST_REQUEST),
        ("vllm@0.31.0:runner=v1", LLAMA, ["1", 2, 5], (), Outcome.FAILS_AT_LOAD),
        # Classes come, go, and change sides.
        ("vllm@0.31.0:runner=v1", "GraniteForCausalLM", [1, 4, 8], (), Outcome.UNSUPPORTED),
        ("vllm@0.32.0:runner=v1", "GraniteForCausalLM", [0, 4, 8], (0, 4, 8), Outcome.SERVES),
        ("vllm@0.28.0:runner=v1", "HunYuanDenseV1ForCausalLM", [8, 1, 4], (1, 4, 8), Outcome.SERVES),
        ("vllm@0.31.0:runner=v1", "HunYuanDenseV1ForCausalLM", [8, 1, 4], (8, 1, 4), Outcome.SERVES),
        ("vllm@0.31.0:runner=v1", "GlmForCausalLM", [8, 1, 4], (1, 4, 8), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", "GlmForCausalLM", [8, 1, 4], (8, 1, 4), Outcome.SERVES),
        ("vllm@0.25.0:runner=v1", KIMI, [3, 31, 61], (3, 31, 61), Outcome.SERVES),
        ("vllm@0.25.0:runner=v1", KIMI, [0, 31, 61], (0, 31, 61), Outcome.FAILS_AT_LOAD),
        # DeepSeek V3.2 and GLM's DSA models: a class for each platform.
        ("vllm@0.28.0:runner=v1", "GlmMoeDsaForCausalLM", [3, 31, 61], (3, 31, 61), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", "GlmMoeDsaForCausalLM", [0, 3, 31], (0, 3, 31), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", "GlmMoeDsaForCausalLM", [3, 31, 61], (3, 31), Outcome.FAILS_AT_FIRST_REQUEST),
        (
            "vllm@0.32.0:runner=v1,platform=rocm",
            "DeepseekV32ForCausalLM",
            [0, 3, 31],
            (0, 3, 31),
            Outcome.FAILS_AT_LOAD,
        ),
        ("vllm@0.31.0:runner=v1,platform=cpu", "DeepseekV32ForCausalLM", [3, 31, 61], (3, 31, 61), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", "MiniMaxM3SparseForCausalLM", [0, 3, 61], (0, 3, 61), Outcome.SERVES),
    ],
)
def test_what_changed_between_releases(
    engine: str, architecture: str, ids: list[Any], boundaries: tuple[int, ...], outcome: Outcome
) -> None:
    target = target_of(architecture)
    served = serve_one(engine, draft_of(target, **{IDS: ids}), target)
    assert (served.boundaries, served.outcome) == (boundaries, outcome)


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("Mistral3ForConditionalGeneration", "doesn't name the class of its language model"),
        ("DeepseekV4ForCausalLM", "4 residual streams"),
        ("DeepseekV41ForCausalLM", "the mean over its residual streams"),
        ("HunYuanVLForConditionalGeneration", "multimodal form of the transformers backend"),
    ],
)
def test_what_nobody_followed_is_not_judged(architecture: str, words: str) -> None:
    target = target_of(architecture)
    for served in serve_all("vllm@0.32.0", draft_of(target), target):
        assert isinstance(served, Unjudged)
        assert words in served.reason


def test_pipeline_stages_lose_states_of_classes_that_do_not_relay_them() -> None:
    for version, architecture, told in (
        ("0.32.0", "GptOssForCausalLM", True),
        ("0.32.0", LLAMA, False),
        ("0.28.0", LLAMA, True),
        ("0.32.0", "Qwen3ForCausalLM", False),
        ("0.32.0", "MistralForCausalLM", False),
        ("0.32.0", "MiMoForCausalLM", True),
        ("0.31.0", "MiniMaxM3SparseForCausalLM", True),
        ("0.32.0", "MiniMaxM3SparseForCausalLM", False),
    ):
        target = target_of(architecture)
        for served in serve_all(f"vllm@{version}:pipeline-parallel=yes", draft_of(target), target):
            assert isinstance(served, Served)
            assert ("pipeline-stages" in [defect.name for defect in served.defects]) is told


@pytest.mark.parametrize("version", ["0.26.0", "0.29.0", "0.30.0"])
def test_a_release_between_two_that_were_read_is_not_known(version: str) -> None:
    assert version not in VERSIONS


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
        ("vllm@0.32.0:runner=v2,impl=native", "Qwen2MoeForCausalLM", [1, 4, 8], (), Outcome.UNSUPPORTED),
        # The backend serves by its own rule what has no native one, in the list's order.
        ("vllm@0.32.0:runner=v2,impl=transformers", "Qwen2MoeForCausalLM", [8, 1, 4], (8, 1, 4), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1,impl=transformers", "MixtralForCausalLM", [8, 1, 4], (8, 1, 4), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1,impl=transformers", "Gemma3ForCausalLM", [8, 1, 4], (8, 1, 4), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1,impl=transformers", "SomethingNewForCausalLM", [8, 1, 4], (8, 1, 4), Outcome.SERVES),
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
    assert (second.boundaries, second.outcome) == (DEFAULT, Outcome.FAILS_AT_LOAD)
    assert second.failure is not None
    assert "hands on what it gets without fc" in second.failure.words


@pytest.mark.parametrize("architecture", ["Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"])
def test_the_deepseek_draft_puts_everything_through_fc(architecture: str) -> None:
    target = target_of(KIMI)
    off = {**nested([], use_aux_hidden_state=False), "architectures": [architecture]}
    first, second = serve_all("vllm@0.32.0", draft_of(target, **off), target)
    assert isinstance(first, Served)
    assert isinstance(second, Served)
    assert first.outcome is Outcome.FAILS_AT_FIRST_REQUEST
    assert first.failure is not None
    assert "final state alone" in first.failure.words
    assert "fc is built for 3" in first.failure.words
    # V2 captures whatever the flag says, and this draft's fc takes that.
    assert (second.boundaries, second.outcome, second.defects) == (DEFAULT, Outcome.SERVES, ())
    (one, _) = serve_all("vllm@0.32.0", draft_of(target, **off, num_aux_hidden_states=1), target)
    assert isinstance(one, Served)
    assert (one.boundaries, one.outcome) == (("post_norm",), Outcome.SERVES)


def test_without_aux_states_v2_feeds_the_only_one_that_it_captures() -> None:
    target = target_of(LLAMA)
    draft = draft_of(target, **{IDS: [5], **nested([], use_aux_hidden_state=False)})
    served = serve_one("vllm@0.32.0:runner=v2", draft, target)
    assert (served.boundaries, served.outcome) == ((5,), Outcome.SERVES)
    assert [defect.name for defect in served.defects] == ["fc-skipped"]


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


@pytest.mark.parametrize("architecture", ["Gemma3ForConditionalGeneration", "KimiK25ForConditionalGeneration"])
def test_the_backend_s_multimodal_form_is_not_guessed(architecture: str) -> None:
    target = target_of(architecture)
    for served in serve_all("vllm@0.32.0:impl=transformers", draft_of(target), target):
        assert isinstance(served, Unjudged)
        assert "multimodal form" in served.reason


RELEASES = json.loads((Path(__file__).parent / "vllm_classes.json").read_text())["releases"]
"""By release: the registry's classes that have SupportsEagle3 among their bases, and those that lack it."""

CANNOT = {
    "CohereCompassForConditionalGeneration",
    "Exaone4_5_ForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration",
}
"""They claim support, and their inner model has no taps."""

NO_CHECKPOINT = {
    f"Transformers{form}"
    for form in (
        "EmbeddingModel",
        "ForCausalLM",
        "ForSequenceClassification",
        "MoEEmbeddingModel",
        "MoEForCausalLM",
        "MoEForSequenceClassification",
        "MultiModalEmbeddingModel",
        "MultiModalForCausalLM",
        "MultiModalForSequenceClassification",
        "MultiModalMoEForCausalLM",
    )
}
"""Names of the backend's own classes, which no checkpoint carries."""

ON_ANOTHER_PLATFORM = {"KimiLinearForCausalLM", "KimiK3ForConditionalGeneration"}
"""Ruled on one platform, refused on another."""


@pytest.mark.parametrize("version", VERSIONS)
def test_every_class_and_version_was_read_and_has_the_rule_that_was_found(version: str) -> None:
    read = RELEASES[version]
    ruled = [a for r in CLASSES if in_range(version, r.first, r.last) for a in r.architectures]
    refused = [a for r in NO_SETTER if in_range(version, r.first, r.last) for a in r.architectures]
    assert len(ruled) == len(set(ruled))
    assert len(refused) == len(set(refused))
    unruled = [a for r in NO_RULE if in_range(version, r.first, r.last) for a in r.architectures]
    wrapped = [a for r in WRAPPERS if in_range(version, r.first, r.last) for a in r.architectures]
    others = [*unruled, *wrapped]
    assert set(ruled).isdisjoint(others)
    assert set(ruled) | set(others) == set(read["supports"]) - CANNOT - NO_CHECKPOINT
    assert set(refused) - ON_ANOTHER_PLATFORM == (set(read["lacks"]) | (CANNOT & set(read["supports"]))) - (
        ON_ANOTHER_PLATFORM
    )
    assert {r.first for r in CLASSES} | {r.first for r in NO_SETTER} <= set(VERSIONS)


@pytest.mark.parametrize("options", ["", ",impl=transformers", ",impl=native"])
@pytest.mark.parametrize("architecture", [LLAMA, KIMI, "SmolLM3ForCausalLM", "Qwen2MoeForCausalLM"])
def test_a_version_that_is_listed_but_not_read_gets_no_answer(architecture: str, options: str) -> None:
    listed = replace(VLLM, versions=(*VERSIONS, "0.33.0"))
    target = target_of(architecture)
    for runner in ("v1", "v2"):
        name = parse_engine(f"vllm@0.33.0:runner={runner}{options}")
        variant = dict(name.options)
        served = serve(listed, draft_of(target), target, name=name, variant=variant, version="0.33.0")
        assert isinstance(served, Unjudged)


def wrapped(architecture: str, **text: Any) -> Target:
    return make_target(
        {
            "architectures": [architecture],
            "text_config": {"num_hidden_layers": 61, "hidden_size": 64, "vocab_size": 99, **text},
        }
    )


MIXIN, DELEGATES, NEMOTRON = (
    "Mistral3ForConditionalGeneration",
    "PixtralForConditionalGeneration",
    "NemotronH_Nano_VL_V2",
)


@pytest.mark.parametrize(
    ("engine", "target", "ids", "boundaries", "outcome"),
    [
        ("vllm@0.32.0:runner=v1", wrapped(MIXIN, model_type="mistral"), [8, 1, 4], (1, 4, 8), Outcome.SERVES),
        ("vllm@0.25.0:runner=v1", wrapped(MIXIN, model_type="mistral"), [0, 4, 61], (0, 4, 61), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", wrapped(MIXIN, architectures=[LLAMA]), [8, 1, 4], (1, 4, 8), Outcome.SERVES),
        # DeepSeek captures on its own, not inside of a wrapper that asks its decoder; Pixtral asks its class.
        (
            "vllm@0.32.0:runner=v1",
            wrapped(MIXIN, architectures=["MistralLarge3ForCausalLM"]),
            [3, 31, 61],
            (),
            Outcome.UNSUPPORTED,
        ),
        (
            "vllm@0.32.0:runner=v1",
            wrapped(DELEGATES, architectures=["MistralLarge3ForCausalLM"]),
            [3, 31, 61],
            (3, 31, 61),
            Outcome.SERVES,
        ),
        (
            "vllm@0.32.0:runner=v1",
            wrapped(DELEGATES, architectures=["SmolLM3ForCausalLM"]),
            [8, 1, 4],
            (8, 1, 4),
            Outcome.SERVES,
        ),
        (
            "vllm@0.32.0:runner=v1",
            wrapped(MIXIN, architectures=["SmolLM3ForCausalLM"]),
            [1, 4, 8],
            (),
            Outcome.UNSUPPORTED,
        ),
        (
            "vllm@0.32.0:runner=v1",
            wrapped(DELEGATES, architectures=["MixtralForCausalLM"]),
            [1, 4, 8],
            (),
            Outcome.UNSUPPORTED,
        ),
        ("vllm@0.28.0:runner=v1", wrapped(NEMOTRON, model_type="nemotron_h"), [1, 4, 8], (), Outcome.UNSUPPORTED),
        ("vllm@0.31.0:runner=v1", wrapped(NEMOTRON, model_type="nemotron_h"), [1, 4, 8], (1, 4, 8), Outcome.SERVES),
    ],
)
def test_a_wrapper_captures_as_its_language_model_does(
    engine: str, target: Target, ids: list[int], boundaries: tuple[int, ...], outcome: Outcome
) -> None:
    served = serve_one(engine, draft_of(target, **{IDS: ids}), target)
    assert (served.boundaries, served.outcome) == (boundaries, outcome)


@pytest.mark.parametrize("text", [{}, {"model_type": "new"}, {"architectures": ["Glm4ForCausalLM"]}])
def test_a_wrapper_around_an_unknown_language_model_is_not_judged(text: dict[str, Any]) -> None:
    target = wrapped(MIXIN, **text)
    for served in serve_all("vllm@0.32.0", draft_of(target, **{IDS: TOP}), target):
        assert isinstance(served, Unjudged)


def test_a_wrapper_relays_pipeline_stages_as_its_language_model_does() -> None:
    for inner, lost in ((LLAMA, False), ("GptOssForCausalLM", True)):
        target = wrapped(MIXIN, architectures=[inner])
        served = serve_one("vllm@0.32.0:runner=v1,pipeline-parallel=yes", draft_of(target, **{IDS: TOP}), target)
        assert ("pipeline-stages" in [defect.name for defect in served.defects]) is lost


@pytest.mark.parametrize(
    ("engine", "architecture", "boundaries", "outcome"),
    [
        ("vllm@0.28.0:runner=v1", "KimiLinearForCausalLM", (0, 4, 61), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", "KimiLinearForCausalLM", (0, 4, 61), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1", "KimiK3ForConditionalGeneration", (0, 4, 61), Outcome.SERVES),
        ("vllm@0.25.0:runner=v1", "KimiLinearForCausalLM", (), Outcome.UNSUPPORTED),
        ("vllm@0.32.0:runner=v1,platform=rocm", "KimiLinearForCausalLM", (), Outcome.UNSUPPORTED),
        ("vllm@0.32.0:runner=v1,platform=cpu", "KimiLinearForCausalLM", (), Outcome.UNSUPPORTED),
        ("vllm@0.32.0:runner=v1,platform=rocm", "KimiK3ForConditionalGeneration", (0, 4, 61), Outcome.SERVES),
        ("vllm@0.32.0:runner=v1,platform=cpu", "KimiK3ForConditionalGeneration", (), Outcome.UNSUPPORTED),
    ],
)
def test_kimi_linear_has_a_class_for_each_platform(
    engine: str, architecture: str, boundaries: tuple[int, ...], outcome: Outcome
) -> None:
    target = target_of(architecture)
    served = serve_one(engine, draft_of(target, **{IDS: [4, 0, 61]}), target)
    assert (served.boundaries, served.outcome) == (boundaries, outcome)


def test_kimi_leaves_the_final_norm_to_the_logits() -> None:
    target = target_of("KimiLinearForCausalLM")
    draft = draft_of(target, **nested([], use_aux_hidden_state=False))
    assert serve_one("vllm@0.32.0:runner=v1", draft, target).boundaries == (61,)


def test_attention_residuals_have_no_boundaries() -> None:
    target = wrapped("KimiK3ForConditionalGeneration", attn_res_block_size=12)
    for served in serve_all("vllm@0.32.0", draft_of(target, **{IDS: TOP}), target):
        assert isinstance(served, Unjudged)
        assert "attention residuals" in served.reason
