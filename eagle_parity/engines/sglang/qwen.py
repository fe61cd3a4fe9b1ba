"""Qwen 2 and 3, dense and MoE, and Qwen3-Next."""

from __future__ import annotations

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Source
from eagle_parity.engines.sglang.defects import EMBEDDING_ALIAS, UNCLEARED_FLAGS, VERIFY_GRAPHS
from eagle_parity.engines.sglang.patterns import flagged, plus_one

QWEN_CLASSES: tuple[ClassRule, ...] = (
    plus_one(
        "qwen2",
        ("Qwen2ForCausalLM", "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM"),
        ("0.5.8", "0.5.10.post1"),
        AtEmbedding.ALIAS,
        Source("models/qwen2.py", "638, 358; qwen3.py:674; qwen2_5_vl.py:876", "0.5.10.post1"),
        VERIFY_GRAPHS,
        EMBEDDING_ALIAS,
    ),
    plus_one(
        "qwen2",
        ("Qwen2ForCausalLM", "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM"),
        ("0.5.11", "0.5.20"),
        AtEmbedding.ALIAS,
        Source("models/qwen2.py", "752, 417; qwen3.py:688; qwen2_5_vl.py:1000", "0.5.20"),
        EMBEDDING_ALIAS,
    ),
    plus_one(
        "qwen2",
        ("Qwen2ForCausalLM", "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM"),
        ("0.5.21", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/qwen2.py", "781, 462; qwen3.py:778, 530; qwen2_5_vl.py:990", "0.5.23"),
    ),
    flagged(
        "qwen-moe",
        ("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"),
        ("0.5.8", "0.5.10.post1"),
        Source("models/qwen2_moe.py", "928, 688; qwen3_moe.py:1065", "0.5.10.post1"),
        VERIFY_GRAPHS,
        UNCLEARED_FLAGS,
    ),
    flagged(
        "qwen-moe",
        ("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"),
        ("0.5.11", "0.5.23"),
        Source("models/qwen2_moe.py", "1418, 1201; qwen3_moe.py:1128", "0.5.23"),
    ),
    flagged(
        "qwen-moe",
        ("MellumForCausalLM",),
        ("0.5.16", "0.5.23"),
        Source("models/qwen3_moe.py", "1128; qwen2_moe.py:1201", "0.5.23"),
    ),
    flagged(
        "qwen3-next",
        ("Qwen3NextForCausalLM",),
        ("0.5.9", "0.5.10.post1"),
        Source("models/qwen3_next.py", "1113, 846", "0.5.10.post1"),
        VERIFY_GRAPHS,
        UNCLEARED_FLAGS,
    ),
    flagged(
        "qwen3-next",
        ("Qwen3NextForCausalLM",),
        ("0.5.11", "0.5.23"),
        Source("models/qwen3_next.py", "1286, 992", "0.5.23"),
    ),
)
