"""MiniMax M2 and M3; the multimodal M3 shifts its default like a list."""

from __future__ import annotations

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, Captures, ClassRule, Default, Source
from eagle_parity.engines.sglang.defects import VERIFY_GRAPHS
from eagle_parity.engines.sglang.patterns import GRAPHS_FIRST, plus_one

_M2 = ("MiniMaxM2ForCausalLM",)
_M3 = ("MiniMaxM3SparseForCausalLM",)
_M3_VISION = ("MiniMaxM3SparseForConditionalGeneration",)


def _m3(architectures: tuple[str, ...], versions: tuple[str, str], source: Source) -> ClassRule:
    return plus_one("minimax-m3", architectures, versions, AtEmbedding.DELIVERS, source)


def _shifted(rule: ClassRule) -> ClassRule:
    return replace(rule, default=Default.ONE_LATER)


_LAST_REACHED = Source("models/minimax_m3.py", "2056-2075, 1949-1962", "0.5.23")

MINIMAX_CLASSES: tuple[ClassRule, ...] = (
    plus_one(
        "minimax-m2",
        _M2,
        GRAPHS_FIRST,
        AtEmbedding.TYPE_ERROR,
        Source("models/minimax_m2.py", "994, 920", "0.5.10.post1"),
        VERIFY_GRAPHS,
    ),
    plus_one(
        "minimax-m2",
        _M2,
        ("0.5.11", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/minimax_m2.py", "1067, 1003", "0.5.23"),
    ),
    replace(
        _m3(_M3, ("0.5.16", "0.5.17"), Source("models/minimax_m3.py", "1511, the loop asks a flag: 1401", "0.5.17")),
        captures=Captures.NOTHING,
    ),
    _m3(_M3, ("0.5.18", "0.5.22"), Source("models/minimax_m3.py", "1824, 1728", "0.5.22")),
    replace(_m3(_M3, ("0.5.23", "0.5.23"), _LAST_REACHED), reaches_last=True),
    _shifted(
        _m3(_M3_VISION, ("0.5.18", "0.5.22"), Source("models/minimax_m3_vl.py", "217; minimax_m3.py:1728", "0.5.22"))
    ),
    _shifted(
        replace(
            _m3(
                _M3_VISION,
                ("0.5.23", "0.5.23"),
                Source("models/minimax_m3_vl.py", "246-270; minimax_m3.py:1949-1962", "0.5.23"),
            ),
            reaches_last=True,
        )
    ),
)
