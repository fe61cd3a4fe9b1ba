"""EXAONE MoE, which 0.5.22 spells in a second way."""

from __future__ import annotations

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Source
from eagle_parity.engines.sglang.defects import VERIFY_GRAPHS
from eagle_parity.engines.sglang.patterns import plus_one

_EXAONE = ("ExaoneMoEForCausalLM",)
_SPELT_ANEW = ("ExaoneMoeForCausalLM",)

EXAONE_CLASSES: tuple[ClassRule, ...] = (
    plus_one(
        "exaone-moe",
        _EXAONE,
        ("0.5.9", "0.5.10.post1"),
        AtEmbedding.TYPE_ERROR,
        Source("models/exaone_moe.py", "865, 601", "0.5.10.post1"),
        VERIFY_GRAPHS,
    ),
    plus_one(
        "exaone-moe",
        _EXAONE,
        ("0.5.11", "0.5.21"),
        AtEmbedding.TYPE_ERROR,
        Source("models/exaone_moe.py", "851, 587", "0.5.21"),
    ),
    plus_one(
        "exaone-moe",
        _EXAONE + _SPELT_ANEW,
        ("0.5.22", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/exaone_moe.py", "866, 607", "0.5.23"),
    ),
)
