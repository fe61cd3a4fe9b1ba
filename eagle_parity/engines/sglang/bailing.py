"""Ling (Bailing MoE), and Sarvam MoE, which inherits from it."""

from __future__ import annotations

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Source
from eagle_parity.engines.sglang.defects import EMBEDDING_ALIAS, PARTIAL_SUMS_BY_FLAG, VERIFY_GRAPHS
from eagle_parity.engines.sglang.patterns import plus_one

_BAILING = ("BailingMoEForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM")
_SARVAM = ("SarvamMoEForCausalLM",)


def _bailing(architectures: tuple[str, ...], first: str) -> tuple[ClassRule, ...]:
    return (
        plus_one(
            "bailing-moe",
            architectures,
            (first, "0.5.10.post1"),
            AtEmbedding.ALIAS,
            Source("models/bailing_moe.py", "1038, 774", "0.5.10.post1"),
            VERIFY_GRAPHS,
            PARTIAL_SUMS_BY_FLAG,
            EMBEDDING_ALIAS,
        ),
        plus_one(
            "bailing-moe",
            architectures,
            ("0.5.11", "0.5.20"),
            AtEmbedding.ALIAS,
            Source("models/bailing_moe.py", "1020, 756", "0.5.20"),
            PARTIAL_SUMS_BY_FLAG,
            EMBEDDING_ALIAS,
        ),
        plus_one(
            "bailing-moe",
            architectures,
            ("0.5.21", "0.5.23"),
            AtEmbedding.DELIVERS,
            Source("models/bailing_moe.py", "1098, 840", "0.5.23"),
        ),
    )


BAILING_CLASSES: tuple[ClassRule, ...] = (
    *_bailing(_BAILING, "0.5.9"),
    *_bailing(_SARVAM, "0.5.10"),
)
