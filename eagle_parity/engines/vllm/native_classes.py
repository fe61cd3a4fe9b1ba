"""Target classes whose layer loop captures behind each layer: an id is a boundary, 0 and N included.

Read in each release: which registered classes have SupportsEagle3 in their bases, and with which index every loop calls
``_maybe_add_hidden_state``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Malformed, Setter, Source
from eagle_parity.engines.vllm.defects import DEFERRED_ALL_REDUCE, FAST_PREFILL
from eagle_parity.engines.vllm.versions import FIRST, LAST
from eagle_parity.versions import in_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SPANS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("0.25.0", "0.32.0"): (
        "AfmoeForCausalLM",
        "ApertusForCausalLM",
        "Cosmos3ForConditionalGeneration",
        "Ernie4_5ForCausalLM",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "GptOssForCausalLM",
        "IQuestCoderForCausalLM",
        "InternLM3ForCausalLM",
        "InternS1ProForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "LLaMAForCausalLM",
        "LagunaForCausalLM",
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
        "LlamaForCausalLM",
        "MiMoForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "MiniCPM3ForCausalLM",
        "MiniCPMForCausalLM",
        "MiniMaxM2ForCausalLM",
        "Ministral3ForCausalLM",
        "MistralForCausalLM",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "OpenCUAForConditionalGeneration",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Step1ForCausalLM",
        "TeleChat2ForCausalLM",
        "TeleChat3ForCausalLM",
        "TeleFLMForCausalLM",
    ),
    ("0.28.0", "0.32.0"): (
        "InternS2MobiusForConditionalGeneration",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
    ),
    ("0.31.0", "0.32.0"): (
        "Cohere2MoeForCausalLM",
        "K2HorizonForCausalLM",
        "MiMoV2OmniForCausalLM",
        "Plamo3ForCausalLM",
        "Qwen3OmniMoeForConditionalGeneration",
        "SarvamMLAForCausalLM",
    ),
    ("0.32.0", "0.32.0"): (
        "Glm5NextForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GraniteForCausalLM",
        "GraniteSWAForCausalLM",
        "MiniCPMV4_6ForConditionalGeneration",
        "MiniCPMV4_7ForConditionalGeneration",
        "Qwen3ASRForConditionalGeneration",
        "Qwen3ASRRealtimeGeneration",
    ),
    ("0.25.0", "0.31.0"): (
        "ArceeForCausalLM",
        "CwmForCausalLM",
        "GlmForCausalLM",
        "MellumForCausalLM",
    ),
    ("0.25.0", "0.28.0"): (
        "Fairseq2LlamaForCausalLM",
        "GritLM",
        "HunYuanDenseV1ForCausalLM",
        "HunYuanMoEV1ForCausalLM",
        "HunYuanVLForConditionalGeneration",
    ),
    ("0.25.0", "0.25.0"): ("TeleChatForCausalLM",),
}
"""Classes whose layers are followed by the capture, by the first and the last release that was read with it."""

_GEMMA_4 = ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration")
_SCALED = (
    *_GEMMA_4,
    "AfmoeForCausalLM",
    "GraniteForCausalLM",
    "GraniteSWAForCausalLM",
    "MiniCPM3ForCausalLM",
    "MiniCPMForCausalLM",
)
"""Classes that scale their embedding before the first layer: gemma4.py:864, granite.py:379, minicpm.py:444 (0.32.0)."""

_RAW_SETTER = (
    ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
    ("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"),
)
_MINIMAX_M3 = ("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration")

UNSORTED = ClassRule(
    family="tap-after-layer",
    architectures=(),
    first=FIRST,
    last="0.28.0",
    setter=Setter.AS_IS,
    embedding=AtEmbedding.DELIVERS,
    reaches_last=True,
    malformed=Malformed.NEVER_MATCHES,
    source=Source("model_executor/models/interfaces.py", "1496-1509; llama.py:420-430", "0.28.0"),
)
SORTED = replace(
    UNSORTED,
    first="0.31.0",
    last=LAST,
    malformed=Malformed.UNSORTABLE,
    source=Source("model_executor/models/interfaces.py", "1577-1620; llama.py:428-441", "0.32.0"),
)
"""From 0.31 on the setter sorts the list, which is an error where its entries can't be compared."""


def _rows() -> Iterator[ClassRule]:
    for (first, last), names in _SPANS.items():
        for pattern in (UNSORTED, SORTED):
            since = first if in_range(first, pattern.first, pattern.last) else pattern.first
            until = last if in_range(last, pattern.first, pattern.last) else pattern.last
            if not (in_range(since, first, last) and in_range(until, first, last)):
                continue
            rule = replace(pattern, first=since, last=until)
            plain = tuple(name for name in names if name not in _SCALED)
            scaled = tuple(name for name in names if name in _SCALED and name not in _GEMMA_4)
            gemma = tuple(name for name in names if name in _GEMMA_4)
            if plain:
                yield replace(rule, architectures=plain)
            if scaled:
                yield replace(rule, architectures=scaled, remark=_REMARK)
            if gemma:
                yield replace(rule, architectures=gemma, remark=_REMARK, defects=(FAST_PREFILL,))


_REMARK = "id 0 is the scaled embedding, as it enters the first layer"

NATIVE_CLASSES: tuple[ClassRule, ...] = (
    *_rows(),
    *(
        replace(
            UNSORTED,
            architectures=names,
            first=since,
            last=LAST,
            source=Source("model_executor/models/qwen3_5.py", "366; interfaces.py:1601", "0.32.0"),
        )
        for names, since in zip(_RAW_SETTER, (FIRST, "0.28.0"), strict=True)
    ),
    replace(
        UNSORTED,
        architectures=_MINIMAX_M3,
        defects=(DEFERRED_ALL_REDUCE,),
        source=Source("models/minimax_m3/nvidia/model.py", "884-889", "0.28.0"),
    ),
    replace(
        SORTED,
        architectures=_MINIMAX_M3,
        defects=(DEFERRED_ALL_REDUCE,),
        source=Source("models/minimax_m3/nvidia/model.py", "899-912", "0.32.0"),
    ),
)
