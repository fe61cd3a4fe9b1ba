"""Llama and the classes that inherit its setter: Mistral, Phi3, InternLM3, Llama 4 and others."""

from __future__ import annotations

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Source
from eagle_parity.engines.sglang.defects import VERIFY_GRAPHS
from eagle_parity.engines.sglang.patterns import plus_one

_LLAMA = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Phi3ForCausalLM",
    "InternLM3ForCausalLM",
    "Ministral3ForCausalLM",
    "TeleFLMForCausalLM",
    "IQuestCoderForCausalLM",
)

LLAMA_CLASSES: tuple[ClassRule, ...] = (
    plus_one(
        "llama",
        _LLAMA,
        ("0.5.8", "0.5.10.post1"),
        AtEmbedding.TYPE_ERROR,
        Source("models/llama.py", "783, 387", "0.5.10.post1"),
        VERIFY_GRAPHS,
    ),
    plus_one(
        "llama",
        _LLAMA,
        ("0.5.11", "0.5.21"),
        AtEmbedding.TYPE_ERROR,
        Source("models/llama.py", "889, 440", "0.5.21"),
    ),
    plus_one(
        "llama", _LLAMA, ("0.5.22", "0.5.23"), AtEmbedding.DELIVERS, Source("models/llama.py", "929, 492", "0.5.23")
    ),
    plus_one(
        "llama4",
        ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        ("0.5.8", "0.5.10.post1"),
        AtEmbedding.TYPE_ERROR,
        Source("models/llama4.py", "522, setter in llama.py:783", "0.5.10.post1"),
        VERIFY_GRAPHS,
    ),
    plus_one(
        "llama4",
        ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        ("0.5.11", "0.5.20"),
        AtEmbedding.TYPE_ERROR,
        Source("models/llama4.py", "536, setter in llama.py:890", "0.5.20"),
    ),
    plus_one(
        "llama4",
        ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        ("0.5.21", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/llama4.py", "530, setter in llama.py:929", "0.5.23"),
    ),
)
