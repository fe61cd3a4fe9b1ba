"""Target classes without ``set_eagle3_layers_to_capture``: SGLang dies while it starts.

Read from every release's syntax trees, base classes followed: every class of the registry that generates text and is no
draft. A class that isn't named here and has no rule either is not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.engines.class_rules import NoSetter
from eagle_parity.engines.sglang.deepseek import DEEPSEEK_V4, GLM_DSA, KIMI
from eagle_parity.engines.sglang.unruled import MINDSPORE

if TYPE_CHECKING:
    from collections.abc import Mapping

TRANSFORMERS = "TransformersForCausalLM"
"""What ``--model-impl transformers`` loads, with forms for experts and for images that lack the setter, too."""

_NO_CLASS = "the class does not exist in this release"
_NO_ATTRIBUTE = "AttributeError at load: the class has no set_eagle3_layers_to_capture"
_NOT_IMPLEMENTED = "ValueError at load: the model does not implement set_eagle3_layers_to_capture"
_CALLED_AT = "model_executor/model_runner.py:588 (0.5.8), attention_backend_setup.py:55 (0.5.20) call it unasked"
_REFUSED_AT = "model_executor/model_runner_components/attention_backend_setup.py:55-60 (0.5.23)"

_WITHOUT_SETTER: Mapping[str, tuple[str, ...]] = {
    "0.5.8": (
        "AfmoeForCausalLM",
        "ArceeForCausalLM",
        "BaichuanForCausalLM",
        "ChatGLMModel",
        "Cohere2ForCausalLM",
        "CohereForCausalLM",
        "DbrxForCausalLM",
        "DeciLMForCausalLM",
        "DeepseekForCausalLM",
        "DeepseekOCRForCausalLM",
        "DeepseekVL2ForCausalLM",
        "DotsOCRForCausalLM",
        "DotsVLMForCausalLM",
        "Ernie4_5_ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "ExaoneForCausalLM",
        "FalconH1ForCausalLM",
        "GPT2LMHeadModel",
        "GPTBigCodeForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3nForCausalLM",
        "Gemma3nForConditionalGeneration",
        "GemmaForCausalLM",
        "Glm4ForCausalLM",
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "GlmAsrForConditionalGeneration",
        "GraniteForCausalLM",
        "GraniteMoeForCausalLM",
        "Grok1ForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "HunYuanMoEV1ForCausalLM",
        "IQuestLoopCoderForCausalLM",
        "InternLM2ForCausalLM",
        "InternS1ForConditionalGeneration",
        "InternVLChatModel",
        "JetNemotronForCausalLM",
        "JetVLMForConditionalGeneration",
        "KimiLinearForCausalLM",
        "KimiVLForConditionalGeneration",
        "LlavaForConditionalGeneration",
        "LlavaLlamaForCausalLM",
        "LlavaMistralForCausalLM",
        "LlavaQwenForCausalLM",
        "LlavaVidForCausalLM",
        "MiDashengLMModel",
        "MiMoForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiniCPM3ForCausalLM",
        "MiniCPMForCausalLM",
        "MiniCPMO",
        "MiniCPMV",
        "Mistral3ForConditionalGeneration",
        "MixtralForCausalLM",
        "MllamaForConditionalGeneration",
        "NVILAForConditionalGeneration",
        "NVILALiteForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronH_Nano_VL_V2",
        "OPTForCausalLM",
        "Olmo2ForCausalLM",
        "OlmoForCausalLM",
        "OlmoeForCausalLM",
        "OrionForCausalLM",
        "POINTSV15ChatModel",
        "PaddleOCRVLForConditionalGeneration",
        "PersimmonForCausalLM",
        "Phi3SmallForCausalLM",
        "Phi4MMForCausalLM",
        "PhiForCausalLM",
        "PhiMoEForCausalLM",
        "PixtralForConditionalGeneration",
        "QWenLMHeadModel",
        "Qwen2AudioForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
        "Sarashina2VisionForCausalLM",
        "SolarForCausalLM",
        "StableLmForCausalLM",
        "Starcoder2ForCausalLM",
        "Step3VLForConditionalGeneration",
        "TransformersForCausalLM",
        "XverseForCausalLM",
        "XverseMoeForCausalLM",
        "YiVLForCausalLM",
    ),
    "0.5.9": (
        "BailingMoeV2_5ForCausalLM",
        "Ernie4_5_VLMoeForConditionalGeneration",
        "Exaone4ForCausalLM",
        "GPTJForCausalLM",
        "GlmOcrForConditionalGeneration",
        "GraniteMoeHybridForCausalLM",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "LightOnOCRForConditionalGeneration",
        "Step3p5ForCausalLM",
        "StepVLForConditionalGeneration",
    ),
    "0.5.10": (
        "Lfm2VlForConditionalGeneration",
        "SarvamMLAForCausalLM",
        "TransformersMoEForCausalLM",
        "TransformersMultiModalForCausalLM",
        "TransformersMultiModalMoEForCausalLM",
    ),
    "0.5.11": (
        "HYV3ForCausalLM",
        "MiMoV2ForCausalLM",
        "MossVLForConditionalGeneration",
        "NemotronH_Nano_Omni_Reasoning_V3",
        "Qwen3ASRForConditionalGeneration",
        "VoxtralForConditionalGeneration",
    ),
    "0.5.12": (
        "DeepseekV4ForCausalLM",
        "LagunaForCausalLM",
        "MiniCPMV4_6ForConditionalGeneration",
    ),
    "0.5.13": (
        "Cohere2MoeForCausalLM",
        "Cohere2VisionForConditionalGeneration",
        "NemotronHPuzzleForCausalLM",
        "Step3p7ForConditionalGeneration",
    ),
    "0.5.14": (
        "MiMoV2ASRForCausalLM",
        "ZayaForCausalLM",
    ),
    "0.5.15": (
        "HrmTextForCausalLM",
        "LocateAnythingForConditionalGeneration",
        "UnlimitedOCRForCausalLM",
    ),
    "0.5.16": (
        "GlmImageForConditionalGeneration",
        "InklingForConditionalGeneration",
    ),
    "0.5.17": ("KimiK3ForConditionalGeneration",),
    "0.5.18": (
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
    ),
    "0.5.19": (
        "BailingMoeV3ForCausalLM",
        "Dots3NoteForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "GraniteMoeSharedForCausalLM",
        "GraniteSWAForCausalLM",
        "KimiK3LinearForCausalLM",
        "MiniCPMSALAForCausalLM",
        "Spark2_5ForCausalLM",
    ),
    "0.5.20": (
        "Cosmos3EdgeForConditionalGeneration",
        "FalconMambaForCausalLM",
        "HYV4ForCausalLM",
        "K2HorizonForCausalLM",
        "Mamba2ForCausalLM",
        "MambaForCausalLM",
        "NanbeigeForCausalLM",
        "NemotronH_Omni_Reasoning_V3",
        "XllmForCausalLM",
    ),
    "0.5.21": (
        "BailingMM2NativeForConditionalGeneration",
        "BailingMMNativeForConditionalGeneration",
        "BailingMoeV3VLForConditionalGeneration",
        "GigaChat35ForCausalLM",
        "IQuestQ1ForCausalLM",
    ),
    "0.5.23": (
        "MiniCPMV4_7ForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
    ),
}
"""Classes that never had the setter, by the first release in which they exist; all are still there in 0.5.23."""

_LATER: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (KIMI, "0.5.9", "0.5.9", "models/kimi_k25.py (0.5.9)"),
    (("Qwen3NextForCausalLM",), "0.5.8", "0.5.8.post1", "models/qwen3_next.py (0.5.8)"),
    (
        ("BailingMoEForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM"),
        "0.5.8",
        "0.5.8.post1",
        "models/bailing_moe.py (0.5.8)",
    ),
    (
        ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"),
        "0.5.8",
        "0.5.10.post1",
        "models/qwen3_vl.py (0.5.10.post1)",
    ),
    (
        (
            "InternS1ProForConditionalGeneration",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        ),
        "0.5.9",
        "0.5.10.post1",
        "models/interns1pro.py, models/qwen3_5.py (0.5.10.post1)",
    ),
    (("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"), "0.5.17", "0.5.21", "models/qwen3_5_text.py (0.5.21)"),
    (
        ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        "0.5.8",
        "0.5.11",
        "models/gemma3_causal.py, models/gemma3_mm.py (0.5.11)",
    ),
    (
        ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
        "0.5.11",
        "0.5.11",
        "models/gemma4_causal.py, models/gemma4_mm.py (0.5.11)",
    ),
    (("MiniMaxM3SparseForConditionalGeneration",), "0.5.16", "0.5.17", "models/minimax_m3_vl.py (0.5.17)"),
    ((MINDSPORE,), "0.5.8", "0.5.9", "models/mindspore.py (0.5.9)"),
)
"""Classes that got the setter in a later release than their own first one."""

NO_SETTER: tuple[NoSetter, ...] = (
    NoSetter(KIMI, "0.5.8", "0.5.8.post1", _NO_CLASS, "models/ (0.5.8) has no kimi_k25.py"),
    NoSetter(GLM_DSA, "0.5.8", "0.5.8.post1", _NO_CLASS, "models/glm4_moe.py (0.5.8)"),
    NoSetter(DEEPSEEK_V4, "0.5.8", "0.5.11", _NO_CLASS, "models/ (0.5.11) has no deepseek_v4.py"),
    *(NoSetter(names, first, last, _NO_ATTRIBUTE, source) for names, first, last, source in _LATER),
    *(NoSetter(names, since, "0.5.22", _NO_ATTRIBUTE, _CALLED_AT) for since, names in _WITHOUT_SETTER.items()),
    NoSetter(
        tuple(name for names in _WITHOUT_SETTER.values() for name in names),
        "0.5.23",
        "0.5.23",
        _NOT_IMPLEMENTED,
        _REFUSED_AT,
    ),
)
