"""Target classes that vLLM refuses for EAGLE-3, after the target's weights are loaded."""

from __future__ import annotations

from eagle_parity.engines.class_rules import NoSetter
from eagle_parity.engines.vllm.versions import FIRST, LAST

_REASON = "RuntimeError at load: Model does not support EAGLE3 interface"
_SOURCE = "v1/worker/gpu_model_runner.py:5234; v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:19 (0.32.0)"
_NO_MIXIN = "AssertionError at load: Model instance must inherit from EagleModelMixin"
_MIXIN_SOURCE = "model_executor/models/interfaces.py:1706-1709 (0.32.0)"

_NEVER = (
    "BailingMoeForCausalLM",
    "BailingMoeV2ForCausalLM",
    "CohereForCausalLM",
    "Ernie4_5_MoeForCausalLM",
    "Exaone4ForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
    "GemmaForCausalLM",
    "Glm4ForCausalLM",
    "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "GraniteMoeForCausalLM",
    "InternLM2ForCausalLM",
    "InternVLChatModel",
    "KimiVLForConditionalGeneration",
    "LongcatFlashForCausalLM",
    "MixtralForCausalLM",
    "NemotronForCausalLM",
    "OlmoeForCausalLM",
    "Phi4MMForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen2VLForConditionalGeneration",
    "SarvamMoEForCausalLM",
    "Step3p5ForCausalLM",
)
_UNTIL: tuple[tuple[tuple[str, ...], str], ...] = (
    (("Olmo2ForCausalLM",), "0.25.0"),
    (
        (
            "Cohere2MoeForCausalLM",
            "Olmo3ForCausalLM",
            "Plamo3ForCausalLM",
            "Qwen3OmniMoeForConditionalGeneration",
            "SarvamMLAForCausalLM",
        ),
        "0.28.0",
    ),
    (
        (
            "GPTNeoXForCausalLM",
            "GraniteForCausalLM",
            "PhiForCausalLM",
            "Qwen3ASRForConditionalGeneration",
            "SeedOssForCausalLM",
        ),
        "0.31.0",
    ),
)
"""Classes without the interface up to a release, and with it in the next one that was read."""

NO_SETTER: tuple[NoSetter, ...] = (
    NoSetter(_NEVER, FIRST, LAST, _REASON, _SOURCE),
    *(NoSetter(names, FIRST, last, _REASON, _SOURCE) for names, last in _UNTIL),
    NoSetter(("Dots3NoteForCausalLM", "Qwen4ExpForCausalLM"), "0.32.0", LAST, _REASON, _SOURCE),
    NoSetter(("Exaone4_5_ForConditionalGeneration",), FIRST, LAST, _NO_MIXIN, _MIXIN_SOURCE),
    NoSetter(("CohereCompassForConditionalGeneration",), "0.31.0", LAST, _NO_MIXIN, _MIXIN_SOURCE),
    NoSetter(("Qwen4ExpForConditionalGeneration",), "0.32.0", LAST, _NO_MIXIN, _MIXIN_SOURCE),
)
