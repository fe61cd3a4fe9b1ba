"""SGLang's other families: what each delivers by release, where a class captures nothing or no boundary at all."""

from __future__ import annotations

from typing import Any

import pytest
from config_cases import check, draft_of, named, nested, only, serve_all, serve_one, target_of

from eagle_parity.engines.serving import Served, Unjudged
from eagle_parity.results import Outcome, Verdict

SERVES, LOAD, REQUEST = Outcome.SERVES, Outcome.FAILS_AT_LOAD, Outcome.FAILS_AT_FIRST_REQUEST
GEMMA_3, GEMMA_4 = "Gemma3ForCausalLM", "Gemma4ForConditionalGeneration"
QWEN_3_VL, QWEN_3_5 = "Qwen3VLForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"
M3, M3_VISION = "MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"


@pytest.mark.parametrize(
    ("version", "architecture", "ids", "boundaries", "outcome"),
    [
        # Index 0 is a TypeError wherever a loop adds a residual that isn't there yet.
        ("0.5.21", "ApertusForCausalLM", [-1, 2, 5], (0, 3, 6), REQUEST),
        ("0.5.22", "ApertusForCausalLM", [-1, 2, 5], (0, 3, 6), SERVES),
        ("0.5.21", "ExaoneMoEForCausalLM", [-1, 2, 5], (0, 3, 6), REQUEST),
        ("0.5.22", "ExaoneMoeForCausalLM", [-1, 2, 5], (0, 3, 6), SERVES),
        ("0.5.20", "LongcatFlashForCausalLM", [-1, 2, 5], (0, 3, 6), REQUEST),
        ("0.5.21", "LongcatFlashForCausalLM", [-1, 2, 5], (0, 3, 6), SERVES),
        ("0.5.20", "Glm4MoeForCausalLM", [-1, 2, 5], (0, 3, 6), REQUEST),
        ("0.5.21", "Glm4MoeForCausalLM", [-1, 2, 5], (0, 3, 6), SERVES),
        ("0.5.10.post1", "MiniMaxM2ForCausalLM", [-1, 2, 5], (0, 3, 6), REQUEST),
        ("0.5.11", "MiniMaxM2ForCausalLM", [-1, 2, 5], (0, 3, 6), SERVES),
        ("0.5.9", "BailingMoeV2ForCausalLM", [-1, 2, 5], (0, 3, 6), SERVES),
        ("0.5.23", "SarvamMoEForCausalLM", [-1, 2, 5], (0, 3, 6), SERVES),
        ("0.5.20", "Glm5NextForConditionalGeneration", [-1, 2, 5], (0, 3, 6), SERVES),
        # The last layer is reached by few.
        ("0.5.23", "ApertusForCausalLM", [2, 5, 60], (3, 6), REQUEST),
        ("0.5.22", M3, [2, 5, 60], (3, 6), REQUEST),
        ("0.5.23", M3, [2, 5, 60], (3, 6, 61), SERVES),
        ("0.5.23", M3_VISION, [2, 5, 60], (3, 6, 61), SERVES),
        ("0.5.23", GEMMA_4, [2, 5, 60], (3, 6, 61), SERVES),
        ("0.5.16", GEMMA_3, [2, 5, 60], (3, 6, 61), SERVES),
        # Flags that are set where an index is a layer: no wrapping, unlike Qwen's.
        ("0.5.23", M3, [-2, 2, 5], (3, 6), REQUEST),
        ("0.5.23", QWEN_3_5, [-2, 2, 5], (3, 6, 60), SERVES),
        ("0.5.23", "Qwen3_5ForCausalLM", [2, 5, 60], (3, 6), LOAD),
        ("0.5.23", QWEN_3_VL, [-2, 2, 5], (3, 6), REQUEST),
        # The setter and the loop don't speak of the same thing: nothing is captured.
        ("0.5.11", QWEN_3_5, [2, 5, 9], (), REQUEST),
        ("0.5.21", "InternS2PreviewForConditionalGeneration", [2, 5, 9], (), REQUEST),
        ("0.5.21", "InternS2MobiusForConditionalGeneration", [2, 5, 9], (), REQUEST),
        ("0.5.22", "InternS2PreviewForConditionalGeneration", [2, 5, 9], (3, 6, 10), SERVES),
        ("0.5.17", M3, [2, 5, 9], (), REQUEST),
        ("0.5.18", M3, [2, 5, 9], (3, 6, 10), SERVES),
    ],
)
def test_what_the_forward_delivers(
    version: str, architecture: str, ids: list[int], boundaries: tuple[int, ...], outcome: Outcome
) -> None:
    target = target_of(architecture)
    served = serve_one(f"sglang@{version}", draft_of(target, **nested(ids)), target)
    assert (served.boundaries, served.outcome) == (boundaries, outcome)


@pytest.mark.parametrize(
    ("version", "architecture", "default"),
    [
        ("0.5.23", M3_VISION, (3, 31, 59)),
        ("0.5.18", M3_VISION, (3, 31, 59)),
        ("0.5.23", M3, (2, 30, 58)),
        ("0.5.23", GEMMA_4, (2, 30, 58)),
        ("0.5.23", QWEN_3_5, (2, 30, 58)),
    ],
)
def test_defaults_are_a_class_s_own(version: str, architecture: str, default: tuple[int, ...]) -> None:
    target = target_of(architecture)
    assert serve_one(f"sglang@{version}", draft_of(target), target).boundaries == default


@pytest.mark.parametrize(
    ("version", "architecture"),
    [
        ("0.5.10.post1", QWEN_3_VL),
        ("0.5.11", GEMMA_3),
        ("0.5.11", GEMMA_4),
        ("0.5.17", M3_VISION),
        ("0.5.21", "Qwen3_5ForCausalLM"),
        ("0.5.8", "BailingMoeForCausalLM"),
        ("0.5.23", "MixtralForCausalLM"),
        ("0.5.23", "Qwen3OmniMoeForConditionalGeneration"),
    ],
)
def test_classes_without_a_setter_are_refused(version: str, architecture: str) -> None:
    target = target_of(architecture)
    served = serve_one(f"sglang@{version}", draft_of(target), target)
    assert served.outcome is Outcome.UNSUPPORTED
    assert served.failure is not None
    assert served.failure.words.startswith("ValueError" if version == "0.5.23" else "AttributeError")


@pytest.mark.parametrize(
    ("version", "architecture"), [("0.5.8", "SarvamMoEForCausalLM"), ("0.5.15", M3), ("0.5.19", "Glm5NextForCausalLM")]
)
def test_a_class_that_a_release_does_not_have_is_not_judged(version: str, architecture: str) -> None:
    target = target_of(architecture)
    (served,) = serve_all(f"sglang@{version}", draft_of(target), target)
    assert isinstance(served, Unjudged)


@pytest.mark.parametrize(
    ("version", "architecture", "ids", "defects"),
    [
        ("0.5.16", GEMMA_3, [2, 5, 9], []),
        ("0.5.17", GEMMA_3, [2, 5, 9], ["branch-without-residual"]),
        ("0.5.21", GEMMA_4, [2, 5, 9], ["state-alias"]),
        ("0.5.22", GEMMA_4, [2, 5, 9], []),
        ("0.5.18", QWEN_3_VL, [1, 5, 9], ["deepstack-late"]),
        ("0.5.18", QWEN_3_VL, [4, 5, 9], []),
        ("0.5.19", QWEN_3_VL, [1, 5, 9], []),
        ("0.5.18", "Qwen3VLMoeForConditionalGeneration", [4, 5, 9], ["partial-sums"]),
        ("0.5.21", "Qwen3VLMoeForConditionalGeneration", [1, 5, 9], []),
        ("0.5.20", "BailingMoeV2ForCausalLM", [-1, 5, 9], ["partial-sums", "embedding-alias"]),
        ("0.5.21", "BailingMoeV2ForCausalLM", [-1, 5, 9], []),
        ("0.5.20", "Glm4MoeForCausalLM", [2, 5, 9], ["partial-sums"]),
        ("0.5.10", "MiniMaxM2ForCausalLM", [2, 5, 9], ["verify-graphs-use-default-layers"]),
    ],
)
def test_known_defects_by_version(version: str, architecture: str, ids: list[int], defects: list[str]) -> None:
    target = target_of(architecture)
    served = serve_one(f"sglang@{version}", draft_of(target, **nested(ids)), target)
    assert [defect.name for defect in served.defects] == defects


def test_pipeline_stages_are_told_only_where_they_are_named() -> None:
    target = target_of("LlamaForCausalLM")
    draft = draft_of(target, **nested([2, 5, 9]))
    for engine, defects in (
        ("sglang@0.5.23", []),
        ("sglang@0.5.23:pipeline-parallel=no", []),
        ("sglang@0.5.23:pipeline-parallel=yes", ["pipeline-last-stage-only"]),
    ):
        assert [defect.name for defect in serve_one(engine, draft, target).defects] == defects


@pytest.mark.parametrize("values", [{}, nested([2, 30, 58])])
def test_a_class_that_feeds_no_boundary_is_an_error_and_no_list_mends_it(values: dict[str, Any]) -> None:
    target = target_of(GEMMA_3)
    draft = draft_of(target, **values)
    (served,) = serve_all("sglang@0.5.23", draft, target)
    assert isinstance(served, Served)
    assert (served.boundaries, served.outcome) == ((None, None, None), SERVES)
    for trained in ((2, 30, 58), (3, 31, 59), None):
        result = check(draft, target, "sglang@0.5.23", trained=trained)
        finding = only(result, "known-engine-defect")
        assert named(result) == ["known-engine-defect"]
        assert "no boundary" in finding.message
        assert "0.5.16 or older" in finding.remedy
        assert result.verdict is Verdict.FAIL
    assert check(draft, target, "sglang@0.5.16", trained=served_by_0_5_16(values)).verdict is Verdict.PASS


def served_by_0_5_16(values: dict[str, Any]) -> tuple[int, ...]:
    return (3, 31, 59) if values else (2, 30, 58)


def test_the_embedding_is_the_one_state_that_gemma_3_does_deliver() -> None:
    target = target_of(GEMMA_3)
    served = serve_one("sglang@0.5.23", draft_of(target, **nested([-1, 5, 9])), target)
    assert served.boundaries == (0, None, None)
