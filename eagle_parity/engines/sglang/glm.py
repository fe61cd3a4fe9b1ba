"""GLM 4 MoE, its lite form, which follows DeepSeek's rule for ids, and GLM 5."""

from __future__ import annotations

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, Captures, ClassRule, Malformed, Setter, Source
from eagle_parity.engines.sglang.defects import (
    EMBEDDING_ALIAS,
    PARTIAL_SUMS_BY_FLAG,
    PARTIAL_SUMS_LATER,
    VERIFY_GRAPHS,
)
from eagle_parity.engines.sglang.patterns import GRAPHS_FIRST, plus_one

_GLM_LITE = ("Glm4MoeLiteForCausalLM",)
_GLM_MOE = ("Glm4MoeForCausalLM",)
_GLM_5 = ("Glm5NextForConditionalGeneration",)

GLM_CLASSES: tuple[ClassRule, ...] = (
    replace(
        plus_one(
            "glm4-moe-lite",
            _GLM_LITE,
            ("0.5.8", "0.5.12.post1"),
            AtEmbedding.TYPE_ERROR,
            Source(
                "models/deepseek_v2.py",
                "2529, the loop reads enable_a2a_moe: 2276; glm4_moe_lite.py:429 never sets it",
                "0.5.12.post1",
            ),
        ),
        captures=Captures.ATTRIBUTE_ERROR,
    ),
    ClassRule(
        family="glm4-moe-lite",
        architectures=_GLM_LITE,
        first="0.5.13",
        last="0.5.20",
        setter=Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        embedding=AtEmbedding.TYPE_ERROR,
        reaches_last=False,
        source=Source("models/glm4_moe_lite.py", "1001, 836", "0.5.20"),
        malformed=Malformed.NEVER_MATCHES,
        defects=(PARTIAL_SUMS_LATER,),
    ),
    ClassRule(
        family="glm4-moe-lite",
        architectures=_GLM_LITE,
        first="0.5.21",
        last="0.5.23",
        setter=Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        embedding=AtEmbedding.DELIVERS,
        reaches_last=False,
        source=Source("models/glm4_moe_lite.py", "805, 657", "0.5.23"),
        malformed=Malformed.NEVER_MATCHES,
    ),
    plus_one(
        "glm4-moe",
        _GLM_MOE,
        GRAPHS_FIRST,
        AtEmbedding.TYPE_ERROR,
        Source("models/glm4_moe.py", "1402, 1066", "0.5.10.post1"),
        VERIFY_GRAPHS,
        PARTIAL_SUMS_LATER,
    ),
    plus_one(
        "glm4-moe",
        _GLM_MOE,
        ("0.5.11", "0.5.20"),
        AtEmbedding.TYPE_ERROR,
        Source("models/glm4_moe.py", "1430, 1101", "0.5.20"),
        PARTIAL_SUMS_LATER,
    ),
    plus_one(
        "glm4-moe",
        _GLM_MOE,
        ("0.5.21", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/glm4_moe.py", "1269, 957", "0.5.23"),
    ),
    plus_one(
        "glm5-next",
        _GLM_5,
        ("0.5.20", "0.5.20"),
        AtEmbedding.ALIAS,
        Source("models/glm5_next.py", "1249, 954-964, 1027", "0.5.20"),
        PARTIAL_SUMS_BY_FLAG,
        EMBEDDING_ALIAS,
    ),
    plus_one(
        "glm5-next",
        _GLM_5,
        ("0.5.21", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/glm5_next.py", "1533, 1184-1203", "0.5.23"),
    ),
)
