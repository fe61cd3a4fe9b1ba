"""Target classes of vLLM that capture something which no rule covers: what, as far as it was read."""

from __future__ import annotations

from eagle_parity.engines.class_rules import NoRule
from eagle_parity.engines.vllm.versions import FIRST, LAST

_MEAN = "what is captured behind a layer is the mean over its residual streams, N included; id 0 never matches"
_MULTIMODAL = "it runs through the multimodal form of the transformers backend, of which what it captures wasn't read"
_REGISTRY = "model_executor/models/registry.py:731-742 (0.32.0)"

NO_RULE: tuple[NoRule, ...] = (
    NoRule(
        ("DeepseekV4ForCausalLM",),
        "0.25.0",
        "0.25.0",
        f"{_MEAN}; on ROCm and XPU the class has no EAGLE-3 interface and is refused at load",
        "models/deepseek_v4/nvidia/model.py:1096-1105, models/deepseek_v4/amd/model.py:754",
    ),
    NoRule(
        ("DeepseekV4ForCausalLM",),
        "0.28.0",
        LAST,
        _MEAN,
        "models/deepseek_v4/nvidia/model.py:1482-1494, models/deepseek_v4/amd/model.py:1201-1212,"
        " models/deepseek_v4/cpu/model.py:604-614",
    ),
    NoRule(
        ("DeepseekV4ForConditionalGeneration",),
        "0.31.0",
        LAST,
        f"{_MEAN}; on CPU and XPU the class is a stub that raises NotImplementedError at load",
        "models/deepseek_v4/common/vl_model.py:87, models/deepseek_v4/vl_stub.py:8",
    ),
    NoRule(
        ("DeepseekV41ForCausalLM",),
        "0.31.0",
        LAST,
        f"{_MEAN} (on CUDA the next layer takes it, on ROCm the loop)",
        "models/deepseek_v41/nvidia/model.py:1046, 1125, 1153; models/deepseek_v41/amd/model.py:667-677",
    ),
    NoRule(("Emu3ForConditionalGeneration",), FIRST, LAST, _MULTIMODAL, _REGISTRY),
    NoRule(("HunYuanVLForConditionalGeneration",), "0.31.0", LAST, _MULTIMODAL, _REGISTRY),
    NoRule(("VibeVoiceAsrForConditionalGeneration",), "0.28.0", LAST, _MULTIMODAL, _REGISTRY),
)
