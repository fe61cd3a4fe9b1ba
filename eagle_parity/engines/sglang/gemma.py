"""Gemma 3 and 4: both reach the last layer, and boundary 0 is the embedding after its scaling."""

from __future__ import annotations

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, Captures, ClassRule, Source
from eagle_parity.engines.sglang.defects import BRANCH_ONLY, STATE_ALIAS
from eagle_parity.engines.sglang.patterns import plus_one

_GEMMA_3 = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
_GEMMA_4 = ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration")
_GEMMA_4_UNIFIED = ("Gemma4UnifiedForConditionalGeneration",)
_SCALED = "index 0 is the scaled embedding, as it enters the first layer"


def _gemma_4(architectures: tuple[str, ...], first: str) -> tuple[ClassRule, ...]:
    early = plus_one(
        "gemma4",
        architectures,
        (first, "0.5.21"),
        AtEmbedding.DELIVERS,
        Source("models/gemma4_causal.py", "1425, 996, 1033; gemma4_mm.py:1120", "0.5.21"),
        STATE_ALIAS,
    )
    later = plus_one(
        "gemma4",
        architectures,
        ("0.5.22", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/gemma4_causal.py", "1495, 1073, 1093; gemma4_mm.py:1155", "0.5.23"),
    )
    return tuple(replace(rule, reaches_last=True, remark=_SCALED) for rule in (early, later))


GEMMA_CLASSES: tuple[ClassRule, ...] = (
    replace(
        plus_one(
            "gemma3",
            _GEMMA_3,
            ("0.5.12", "0.5.16"),
            AtEmbedding.DELIVERS,
            Source("models/gemma3_causal.py", "897, 629-662, the layer: 376-399; gemma3_mm.py", "0.5.12"),
        ),
        reaches_last=True,
        remark=_SCALED,
    ),
    replace(
        plus_one(
            "gemma3",
            _GEMMA_3,
            ("0.5.17", "0.5.23"),
            AtEmbedding.DELIVERS,
            Source("models/gemma3_causal.py", "917, 638-672; gemma3_mm.py:543", "0.5.23"),
            BRANCH_ONLY,
        ),
        reaches_last=True,
        captures=Captures.BRANCH,
        remark=_SCALED,
    ),
    *_gemma_4(_GEMMA_4, "0.5.12"),
    *_gemma_4(_GEMMA_4_UNIFIED, "0.5.13"),
)
