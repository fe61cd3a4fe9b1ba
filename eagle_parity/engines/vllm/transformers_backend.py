"""vLLM's transformers backend: a hook behind each named layer, concatenated in the order of the list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Malformed, Order, Outside, Setter, Source
from eagle_parity.engines.vllm.versions import FIRST, LAST

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPANS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("0.25.0", "0.32.0"): (
        "GPTBigCodeForCausalLM",
        "SmolLM3ForCausalLM",
        "Starcoder2ForCausalLM",
    ),
    ("0.28.0", "0.32.0"): (
        "Olmo2ForCausalLM",
        "OlmoForCausalLM",
        "VaultGemmaForCausalLM",
    ),
    ("0.31.0", "0.32.0"): (
        "FlexOlmoForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "HunYuanMoEV1ForCausalLM",
        "NanbeigeForCausalLM",
        "Olmo3ForCausalLM",
    ),
    ("0.32.0", "0.32.0"): (
        "ArceeForCausalLM",
        "CwmForCausalLM",
        "GPTNeoXForCausalLM",
        "GlmForCausalLM",
        "Jais2ForCausalLM",
        "MellumForCausalLM",
        "PhiForCausalLM",
        "SeedOssForCausalLM",
    ),
}
"""Classes that vLLM has no implementation of its own for, by the first and the last release that was read so."""

BACKEND = ClassRule(
    family="transformers-backend",
    architectures=(),
    first=FIRST,
    last=LAST,
    setter=Setter.AS_IS,
    embedding=AtEmbedding.LOOKUP_ERROR,
    reaches_last=True,
    outside=Outside.LOOKUP_ERROR,
    order=Order.LISTED,
    malformed=Malformed.TYPE_ERROR,
    source=Source("model_executor/models/transformers/base.py", "828-848; registry.py:709-743", "0.32.0"),
)
"""What ``--model-impl transformers`` makes of any class."""

BACKEND_CLASSES: tuple[ClassRule, ...] = tuple(
    replace(BACKEND, architectures=names, first=first, last=last) for (first, last), names in _SPANS.items()
)
