"""Target classes of vLLM around a language model that the target's own config names.

Most have the interface's own setter, which asks the language model's decoder for its taps; Pixtral calls the setter of
the language model's class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.engines.class_rules import Wrapper
from eagle_parity.engines.vllm.deepseek import DEEPSEEK_CLASSES
from eagle_parity.engines.vllm.refused import NEVER, NO_MIXIN
from eagle_parity.engines.vllm.transformers_backend import BACKEND_CLASSES
from eagle_parity.engines.vllm.versions import FIRST, LAST

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWN_SETTERS = tuple(name for rule in (*DEEPSEEK_CLASSES, *BACKEND_CLASSES) for name in rule.architectures)
"""Classes with a setter of their own, around decoders that don't have the interface's."""

_TAPS_WITHOUT_SETTER = ("Glm4ForCausalLM",)
"""Refused on its own, with a decoder that has taps: what a wrapper makes of it was not followed."""

_WITHOUT_TAPS = (*_OWN_SETTERS, *(name for name in NEVER if name not in _TAPS_WITHOUT_SETTER))

_LANGUAGE_MODEL = "config/vllm.py:934-951, model_executor/models/interfaces.py:1692-1711 (0.32.0)"

WRAPPERS: tuple[Wrapper, ...] = (
    Wrapper(
        (
            "LightOnOCRForConditionalGeneration",
            "LlavaForConditionalGeneration",
            "Mistral3ForConditionalGeneration",
        ),
        FIRST,
        LAST,
        _WITHOUT_TAPS,
        NO_MIXIN,
        f"model_executor/models/llava.py:498, 569; mistral3.py:411, 485; lightonocr.py:171; {_LANGUAGE_MODEL}",
    ),
    Wrapper(
        (
            "NemotronH_Nano_Omni_Reasoning_V3",
            "NemotronH_Nano_VL_V2",
            "NemotronH_Omni_Reasoning_V3",
            "NemotronH_Super_Omni_Reasoning_V3",
        ),
        "0.31.0",
        LAST,
        _WITHOUT_TAPS,
        NO_MIXIN,
        f"model_executor/models/nano_nemotron_vl.py:932, 986; {_LANGUAGE_MODEL}",
    ),
    Wrapper(
        ("PixtralForConditionalGeneration",),
        FIRST,
        LAST,
        NEVER,
        "RuntimeError at load: EAGLE-3 speculative decoding requires the language model to support EAGLE-3",
        "model_executor/models/pixtral.py:394, 498-511 (0.32.0)",
    ),
)

TEXT_CLASSES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
"""What a language model's config is taken for that names no class: transformers' MODEL_FOR_CAUSAL_LM_MAPPING_NAMES."""
