"""Apertus."""

from __future__ import annotations

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Source
from eagle_parity.engines.sglang.defects import VERIFY_GRAPHS
from eagle_parity.engines.sglang.patterns import GRAPHS_FIRST, plus_one

_APERTUS = ("ApertusForCausalLM",)

APERTUS_CLASSES: tuple[ClassRule, ...] = (
    plus_one(
        "apertus",
        _APERTUS,
        GRAPHS_FIRST,
        AtEmbedding.TYPE_ERROR,
        Source("models/apertus.py", "670, 355", "0.5.10.post1"),
        VERIFY_GRAPHS,
    ),
    plus_one(
        "apertus",
        _APERTUS,
        ("0.5.11", "0.5.21"),
        AtEmbedding.TYPE_ERROR,
        Source("models/apertus.py", "663, 348", "0.5.21"),
    ),
    plus_one(
        "apertus",
        _APERTUS,
        ("0.5.22", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/apertus.py", "675, 372", "0.5.23"),
    ),
)
