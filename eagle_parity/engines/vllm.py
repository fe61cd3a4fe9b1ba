"""vLLM 0.32.0: paths below ``vllm``.

An id is a boundary, nothing is added. Two model runners look for the list in different places: V1 at top level, then in
``eagle_config``; V2, the default wherever Triton works, at top level and then under other names. Native target classes
concatenate in ascending order, the transformers backend as listed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from eagle_parity.drafts import IDS, NESTED_IDS, SECTION, Dialect
from eagle_parity.engines.engine import EngineOption
from eagle_parity.engines.rules import (
    AtEmbedding,
    ClassRule,
    Defect,
    DefectWhen,
    DraftSeen,
    Engine,
    Failure,
    FailureKind,
    FcSkip,
    KeyRule,
    KeyStep,
    Malformed,
    NoSetter,
    Order,
    Outside,
    Placeholder,
    Setter,
    Source,
    Taken,
    Timing,
    Unread,
    WidthRule,
    in_force,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.drafts import Draft
    from eagle_parity.targets import Target

VERSIONS = ("0.32.0",)
"""The releases that were read. Rules name their last release themselves, so that one more here has none."""

RUNNER = EngineOption(
    "runner",
    ("v1", "v2"),
    "the model runner: v2 unless Triton is missing, VLLM_USE_V2_MODEL_RUNNER=0 is set or a feature needs v1",
)
IMPL = EngineOption(
    "impl",
    ("native", "transformers"),
    "--model-impl; the transformers backend concatenates in the list's order and is only assumed when named, or where"
    " vLLM uses it by itself",
)

KEYS_V1 = KeyRule(
    (
        KeyStep(IDS),
        KeyStep(NESTED_IDS, Taken.SECTION),
        KeyStep("dflash_config.target_layer_ids", shift=1),
    ),
    list_required=True,
    first="0.32.0",
    last="0.32.0",
    source="v1/worker/gpu_model_runner.py:5251-5285",
)
KEYS_V2 = KeyRule(
    (
        KeyStep(IDS),
        KeyStep("dflash_config.target_layer_ids", shift=1),
        KeyStep("dspark_target_layer_ids", shift=1),
        KeyStep("target_layer_ids", shift=1),
        KeyStep("dflash_config.layer_ids"),
        KeyStep(f"{SECTION}.layer_ids"),
    ),
    list_required=True,
    first="0.32.0",
    last="0.32.0",
    source="v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:100-137",
)

V1_TIMING = Timing(
    embedding=True,
    nothing=True,
    shortfall=False,
    remark="the server reports healthy before; on CPU in eager mode every failure of a forward waits for a request",
)
V2_TIMING = Timing(
    embedding=True, nothing=True, shortfall=True, remark="the profiling run at start calls the draft with real states"
)

_ORDINARY = (
    "AfmoeForCausalLM",
    "ApertusForCausalLM",
    "Cohere2MoeForCausalLM",
    "Cosmos3ForConditionalGeneration",
    "Ernie4_5ForCausalLM",
    "Gemma4ForCausalLM",
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
    "GptOssForCausalLM",
    "GraniteForCausalLM",
    "GraniteSWAForCausalLM",
    "IQuestCoderForCausalLM",
    "InternLM3ForCausalLM",
    "InternS1ProForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration",
    "K2HorizonForCausalLM",
    "LLaMAForCausalLM",
    "LagunaForCausalLM",
    "Llama4ForCausalLM",
    "Llama4ForConditionalGeneration",
    "LlamaForCausalLM",
    "MiMoForCausalLM",
    "MiMoV2FlashForCausalLM",
    "MiMoV2ForCausalLM",
    "MiMoV2OmniForCausalLM",
    "MiniCPM3ForCausalLM",
    "MiniCPMForCausalLM",
    "MiniMaxM2ForCausalLM",
    "Ministral3ForCausalLM",
    "MistralForCausalLM",
    "NemotronHForCausalLM",
    "NemotronHPuzzleForCausalLM",
    "OpenCUAForConditionalGeneration",
    "Phi3ForCausalLM",
    "Plamo3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3ASRForConditionalGeneration",
    "Qwen3ASRRealtimeGeneration",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3OmniMoeForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
    "SarvamMLAForCausalLM",
    "Step1ForCausalLM",
    "TeleChat2ForCausalLM",
    "TeleChat3ForCausalLM",
    "TeleFLMForCausalLM",
)
_ORDINARY_RAW_SETTER = (
    "Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
)
_DEEPSEEK = (
    "DeepseekForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "MistralLarge3ForCausalLM",
    "KimiK25ForConditionalGeneration",
)
_TRANSFORMERS = (
    "ArceeForCausalLM",
    "CwmForCausalLM",
    "FlexOlmoForCausalLM",
    "GPTBigCodeForCausalLM",
    "GPTNeoXForCausalLM",
    "GlmForCausalLM",
    "HunYuanDenseV1ForCausalLM",
    "HunYuanMoEV1ForCausalLM",
    "Jais2ForCausalLM",
    "MellumForCausalLM",
    "NanbeigeForCausalLM",
    "Olmo2ForCausalLM",
    "Olmo3ForCausalLM",
    "OlmoForCausalLM",
    "PhiForCausalLM",
    "SeedOssForCausalLM",
    "SmolLM3ForCausalLM",
    "Starcoder2ForCausalLM",
    "VaultGemmaForCausalLM",
)

ORDINARY = ClassRule(
    family="tap-after-layer",
    architectures=_ORDINARY,
    first="0.32.0",
    last="0.32.0",
    setter=Setter.AS_IS,
    embedding=AtEmbedding.DELIVERS,
    reaches_last=True,
    malformed=Malformed.UNSORTABLE,
    source=Source("model_executor/models/interfaces.py", "1577-1620; llama.py:428-441", "0.32.0"),
)
DEEPSEEK = ClassRule(
    family="deepseek",
    architectures=_DEEPSEEK,
    first="0.32.0",
    last="0.32.0",
    setter=Setter.AS_IS,
    embedding=AtEmbedding.TYPE_ERROR,
    reaches_last=True,
    malformed=Malformed.NEVER_MATCHES,
    source=Source("model_executor/models/deepseek_v2.py", "1561-1571, 1586, 1955; kimi_k25.py:470", "0.32.0"),
)
TRANSFORMERS_BACKEND = ClassRule(
    family="transformers-backend",
    architectures=_TRANSFORMERS,
    first="0.32.0",
    last="0.32.0",
    setter=Setter.AS_IS,
    embedding=AtEmbedding.LOOKUP_ERROR,
    reaches_last=True,
    outside=Outside.LOOKUP_ERROR,
    order=Order.LISTED,
    malformed=Malformed.TYPE_ERROR,
    source=Source("model_executor/models/transformers/base.py", "828-848; registry.py:709-743", "0.32.0"),
)
CLASSES = (
    ORDINARY,
    replace(
        ORDINARY,
        architectures=_ORDINARY_RAW_SETTER,
        malformed=Malformed.NEVER_MATCHES,
        source=Source("model_executor/models/qwen3_5.py", "366; interfaces.py:1601", "0.32.0"),
    ),
    DEEPSEEK,
    TRANSFORMERS_BACKEND,
)

NO_SETTER = (
    NoSetter(
        (
            "BailingMoeForCausalLM",
            "BailingMoeV2ForCausalLM",
            "Dots3NoteForCausalLM",
            "Ernie4_5_MoeForCausalLM",
            "Exaone4ForCausalLM",
            "Gemma2ForCausalLM",
            "Gemma3ForCausalLM",
            "Gemma3ForConditionalGeneration",
            "GemmaForCausalLM",
            "Glm4ForCausalLM",
            "Glm4MoeForCausalLM",
            "Glm4MoeLiteForCausalLM",
            "InternLM2ForCausalLM",
            "KimiVLForConditionalGeneration",
            "LongcatFlashForCausalLM",
            "MixtralForCausalLM",
            "NemotronForCausalLM",
            "OlmoeForCausalLM",
            "Phi4MMForCausalLM",
            "Qwen2MoeForCausalLM",
            "Qwen2VLForConditionalGeneration",
            "Qwen4ExpForCausalLM",
            "SarvamMoEForCausalLM",
        ),
        "0.32.0",
        "0.32.0",
        "RuntimeError at load: Model does not support EAGLE3 interface",
        "v1/worker/gpu_model_runner.py:5234; v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:19",
    ),
    NoSetter(
        (
            "CohereCompassForConditionalGeneration",
            "Exaone4_5_ForConditionalGeneration",
            "Qwen4ExpForConditionalGeneration",
        ),
        "0.32.0",
        "0.32.0",
        "AssertionError at load: Model instance must inherit from EagleModelMixin",
        "model_executor/models/interfaces.py:1706-1709",
    ),
)

FC_SKIPPED = Defect(
    "fc-skipped",
    "The V2 runner captures aux states although use_aux_hidden_state is false, and the draft hands the only one on"
    " without fc, in place of the final state (from reading the code)",
    "use the V1 runner for a head without aux states; for one with them, set use_aux_hidden_state to true",
    DefectWhen.ALWAYS,
    "v1/worker/gpu/model_runner.py:300-307, model_executor/models/llama_eagle3.py:401",
)

LLAMA_WIDTH = WidthRule(
    "llama-eagle3",
    ("num_aux_hidden_states", NESTED_IDS),
    3,
    "0.32.0",
    "0.32.0",
    "model_executor/models/llama_eagle3.py:210-216",
    FcSkip.WITHOUT_AUX,
    FC_SKIPPED,
)
QWEN3_WIDTH = WidthRule(
    "qwen3-eagle3",
    ("num_aux_layers", "num_aux_hidden_states", IDS, NESTED_IDS),
    3,
    "0.32.0",
    "0.32.0",
    "model_executor/models/qwen3_eagle3.py:202-209",
    FcSkip.WITHOUT_AUX,
    FC_SKIPPED,
)
DEEPSEEK_WIDTH = WidthRule(
    "deepseek-eagle3",
    ("num_aux_hidden_states", NESTED_IDS),
    3,
    "0.32.0",
    "0.32.0",
    "model_executor/models/deepseek_eagle3.py:189-193, fc in any case: 357-368",
    FcSkip.NEVER,
)

_DRAFT_CLASSES = {
    "Eagle3LlamaForCausalLM": LLAMA_WIDTH,
    "LlamaForCausalLMEagle3": LLAMA_WIDTH,
    "Eagle3MiniMaxM2ForCausalLM": LLAMA_WIDTH,
    "Eagle3Qwen2_5vlForCausalLM": LLAMA_WIDTH,
    "Eagle3Qwen3vlForCausalLM": LLAMA_WIDTH,
    "Eagle3Qwen3ForCausalLM": QWEN3_WIDTH,
    "Eagle3DeepseekV2ForCausalLM": DEEPSEEK_WIDTH,
    "Eagle3DeepseekV3ForCausalLM": DEEPSEEK_WIDTH,
}
"""model_executor/models/registry.py:658-673."""

_SPECULATORS_CLASSES = {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"}
"""transformers_utils/configs/speculators/algos.py:39-46."""

_REWRITTEN_TO_MTP = ("deepseek_v3", "deepseek_v32", "glm_moe_dsa")
"""config/speculative.py:679-694 turns drafts of these types into DeepSeekMTPModel before EAGLE-3 is looked at."""


def see_draft(draft: Draft, version: str, variant: Mapping[str, str]) -> DraftSeen:
    """The draft as vLLM sees it: speculators' form is unfolded, any other is taken key by key."""
    if draft.dialect is Dialect.SPECULATORS and draft.model_type in {"", "speculators"}:
        return _see_speculators(draft, version, variant)
    name, failure = _native_class(draft)
    config = draft.config
    section = config.get(SECTION)
    v1 = variant.get(RUNNER.name) == "v1"
    if section is not None and not isinstance(section, dict) and (v1 or section):
        place = "v1/spec_decode/llm_base_proposer.py:1684" if v1 else "model_executor/models/llama_eagle3.py:185"
        failure = Failure(
            FailureKind.DRAFT,
            at_load=True,
            words=f"AttributeError at start: eagle_config is no object and has no get ({place})",
        )
    return _with_aux(config, _width(name, version), variant, failure, {})


def _width(name: str, version: str) -> WidthRule | None:
    return in_force((_DRAFT_CLASSES.get(name, LLAMA_WIDTH),), version)


def _native_class(draft: Draft) -> tuple[str, Failure | None]:
    """The draft class after EAGLEConfig's prefixing (transformers_utils/configs/eagle.py:59-64)."""
    if draft.model_type in _REWRITTEN_TO_MTP:
        words = (
            f"ValueError at start: a draft of model_type {draft.model_type} is taken for an MTP model and renamed to a"
            " class that vLLM doesn't have (config/speculative.py:679-694, from reading the code)"
        )
        return "", Failure(FailureKind.DRAFT, at_load=True, words=words)
    if not draft.architectures:
        return "", None
    name = draft.architectures[0][:100]
    if not name.startswith("Eagle3") and not name.endswith("Eagle3"):
        name = f"Eagle3{name}"
    if name in _DRAFT_CLASSES:
        return name, None
    told = re.sub(r"[^\w.]", "?", name)
    words = f"ValueError at start: model architecture {told} is not supported (model_executor/models/registry.py:658)"
    return name, Failure(FailureKind.DRAFT, at_load=True, words=words)


def _see_speculators(draft: Draft, version: str, variant: Mapping[str, str]) -> DraftSeen:
    """transformers_utils/configs/speculators/base.py:59, algos.py:30-50: the layer's config plus a few keys.

    A top-level ``eagle_config`` is dropped; keys inside ``transformer_layer_config`` survive.
    """
    layer = draft.config.get("transformer_layer_config")
    config: dict[str, Any] = dict(layer) if isinstance(layer, dict) else {}
    renamed = {IDS: f"transformer_layer_config.{IDS}"} if config.get(IDS) else {}
    if draft.config.get(IDS):
        config[IDS] = draft.config[IDS]
        renamed = {}
    failure = None
    model_type = config.get("model_type")
    name = _SPECULATORS_CLASSES.get(model_type, "") if isinstance(model_type, str) else ""
    if not name and model_type is not None:
        failure = Failure(
            FailureKind.DRAFT,
            at_load=True,
            words="ValueError at start: Unsupported model_type in transformer_layer_config; llama and qwen3 are"
            " supported (transformers_utils/configs/speculators/algos.py:39-46)",
        )
    return _with_aux(config, _width(name, version), variant, failure, renamed)


def _with_aux(
    config: Mapping[str, Any],
    width: WidthRule | None,
    variant: Mapping[str, str],
    failure: Failure | None,
    renamed: Mapping[str, str],
) -> DraftSeen:
    """V1 heeds the flag (llm_base_proposer.py:1672-1685), V2 asks for aux states always (gpu/model_runner.py:300)."""
    section = config.get(SECTION)
    uses_aux = bool(section.get("use_aux_hidden_state", True)) if isinstance(section, dict) else True
    return DraftSeen(
        config,
        width,
        uses_aux=uses_aux or variant.get(RUNNER.name) == "v2",
        declines_aux=not uses_aux,
        renamed=renamed,
        failure=failure,
    )


def adapt(rule: ClassRule | None, variant: Mapping[str, str], target: Target) -> ClassRule | Unread | None:
    """``--model-impl transformers`` serves any class by the backend's rule; ``native`` only what is native.

    The backend's multimodal form hooks a submodel with a registry of its own, which wasn't followed.
    """
    impl = variant.get(IMPL.name)
    if impl == "transformers":
        if target.text_architectures or any(a.endswith(_MULTIMODAL) for a in target.architectures[:1]):
            return Unread("what the multimodal form of the transformers backend captures wasn't read")
        return TRANSFORMERS_BACKEND
    if impl == "native" and rule is TRANSFORMERS_BACKEND:
        return None
    return rule


_MULTIMODAL = "ForConditionalGeneration"
_USE_AUX = f"{SECTION}.use_aux_hidden_state"

VLLM = Engine(
    name="vllm",
    title="vLLM",
    versions=VERSIONS,
    options=(RUNNER, IMPL),
    variants=({RUNNER.name: "v1"}, {RUNNER.name: "v2"}),
    runner_option=RUNNER.name,
    key_rules={"v1": KEYS_V1, "v2": KEYS_V2},
    timings={"v1": V1_TIMING, "v2": V2_TIMING},
    classes=CLASSES,
    no_setter=NO_SETTER,
    width_rules=(LLAMA_WIDTH, QWEN3_WIDTH, DEEPSEEK_WIDTH),
    see_draft=see_draft,
    adapt=adapt,
    spellings=(
        {IDS: Placeholder.IDS},
        {IDS: Placeholder.IDS, NESTED_IDS: Placeholder.IDS},
        {IDS: Placeholder.IDS, "num_aux_hidden_states": Placeholder.COUNT},
        {IDS: Placeholder.IDS, _USE_AUX: True},
        {IDS: Placeholder.IDS, NESTED_IDS: Placeholder.IDS, _USE_AUX: True},
        {_USE_AUX: False},
    ),
)
