"""Qwen3-VL, Qwen3.5 and what inherits their setter: one setter in front of two kinds of decoder.

Qwen3-VL's loop asks ``i in layers_to_capture``, Qwen3.5's asks a flag on the layer. Until 0.5.21 the setter wrote the
list alone, so that Qwen3.5's bodies captured nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, Captures, ClassRule, Source
from eagle_parity.engines.sglang.defects import DEEPSTACK_LATE, EMBEDDING_ALIAS, PARTIAL_SUMS_BY_FLAG
from eagle_parity.engines.sglang.patterns import flagged, plus_one

_DENSE = ("Qwen3VLForConditionalGeneration",)
_COSMOS = ("Cosmos3ForConditionalGeneration",)
_MOE = ("Qwen3VLMoeForConditionalGeneration", "InternS1ProForConditionalGeneration")
_QWEN3_5 = ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")
_QWEN3_5_TEXT = ("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM")
_SINCE = {
    "0.5.11": _QWEN3_5,
    "0.5.12": ("InternS2PreviewForConditionalGeneration",),
    "0.5.18": ("InternS2MobiusForConditionalGeneration",),
}
"""Classes with Qwen3.5's kind of body, by the release in which they appeared with the setter."""

_DEEPSTACK = "the vision tower's contribution to a layer belongs to the boundary behind it"


def _vision(
    architectures: tuple[str, ...], versions: tuple[str, str], *, moe: bool, deepstack_late: bool, lines: str
) -> ClassRule:
    delivers = versions[0] == "0.5.21"
    defects = (
        *((DEEPSTACK_LATE,) if deepstack_late else ()),
        *((PARTIAL_SUMS_BY_FLAG,) if moe and not delivers else ()),
        *(() if delivers else (EMBEDDING_ALIAS,)),
    )
    rule = plus_one(
        "qwen3-vl",
        architectures,
        versions,
        AtEmbedding.DELIVERS if delivers else AtEmbedding.ALIAS,
        Source("models/qwen3_vl.py", lines, versions[1]),
        *defects,
    )
    return replace(rule, remark=_DEEPSTACK)


QWEN_VISION_CLASSES: tuple[ClassRule, ...] = (
    _vision(_DENSE, ("0.5.11", "0.5.18"), moe=False, deepstack_late=True, lines="1578, 1164-1182"),
    _vision(_DENSE, ("0.5.19", "0.5.20"), moe=False, deepstack_late=False, lines="1755, 1208-1240"),
    _vision(_DENSE, ("0.5.21", "0.5.23"), moe=False, deepstack_late=False, lines="1777, 1231-1275"),
    _vision(_MOE, ("0.5.11", "0.5.18"), moe=True, deepstack_late=True, lines="1578; qwen3_vl_moe.py:102"),
    _vision(_MOE, ("0.5.19", "0.5.20"), moe=True, deepstack_late=False, lines="1755; qwen3_vl_moe.py:108"),
    _vision(_MOE, ("0.5.21", "0.5.23"), moe=True, deepstack_late=False, lines="1777; qwen3_vl_moe.py:125-136"),
    _vision(_COSMOS, ("0.5.20", "0.5.20"), moe=False, deepstack_late=False, lines="1755, 1208-1240"),
    _vision(_COSMOS, ("0.5.21", "0.5.23"), moe=False, deepstack_late=False, lines="1777, 1231-1275"),
    *(
        replace(
            plus_one(
                "qwen3.5",
                architectures,
                (since, "0.5.21"),
                AtEmbedding.DELIVERS,
                Source("models/qwen3_vl.py", "1766; the loop asks a flag: qwen3_5.py:1826", "0.5.21"),
            ),
            captures=Captures.NOTHING,
        )
        for since, architectures in _SINCE.items()
    ),
    flagged(
        "qwen3.5",
        tuple(name for names in _SINCE.values() for name in names),
        ("0.5.22", "0.5.23"),
        Source("models/qwen3_vl.py", "1777-1795; qwen3_5.py:1894, 1952", "0.5.23"),
    ),
    flagged(
        "qwen3.5",
        _QWEN3_5_TEXT,
        ("0.5.22", "0.5.23"),
        Source("models/qwen3_5_text.py", "150; qwen3_5.py:1894, 1952", "0.5.23"),
    ),
)
