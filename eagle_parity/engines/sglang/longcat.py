"""LongCat Flash."""

from __future__ import annotations

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Source
from eagle_parity.engines.sglang.defects import VERIFY_GRAPHS
from eagle_parity.engines.sglang.patterns import GRAPHS_FIRST, plus_one

_LONGCAT = ("LongcatFlashForCausalLM",)

LONGCAT_CLASSES: tuple[ClassRule, ...] = (
    plus_one(
        "longcat-flash",
        _LONGCAT,
        GRAPHS_FIRST,
        AtEmbedding.TYPE_ERROR,
        Source("models/longcat_flash.py", "1057, 566", "0.5.10.post1"),
        VERIFY_GRAPHS,
    ),
    plus_one(
        "longcat-flash",
        _LONGCAT,
        ("0.5.11", "0.5.20"),
        AtEmbedding.TYPE_ERROR,
        Source("models/longcat_flash.py", "1160, 664", "0.5.20"),
    ),
    plus_one(
        "longcat-flash",
        _LONGCAT,
        ("0.5.21", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/longcat_flash.py", "1112, 620", "0.5.23"),
    ),
)
