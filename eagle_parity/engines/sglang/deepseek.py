"""DeepSeek V2, V3 and V3.2, GLM's DSA models, Mistral Large 3, and Kimi's wrapper around DeepSeek."""

from __future__ import annotations

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Defect, Malformed, Setter, Shortfall, Source
from eagle_parity.engines.sglang.defects import EXPERT_GATHER, PARTIAL_SUMS_DEEPSEEK, VERIFY_GRAPHS

_DEEPSEEK = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "MistralLarge3ForCausalLM",
)
GLM_DSA = ("GlmMoeDsaForCausalLM",)
DEEPSEEK_V4 = ("DeepseekV4ForCausalLM",)
KIMI = ("KimiK25ForConditionalGeneration",)


def _deepseek(  # Kimi's wrapper hands everything to the DeepSeek class
    versions: tuple[str, str],
    setter: Setter,
    embedding: AtEmbedding,
    lines: tuple[str, str],
    *defects: Defect,
    shortfall: Shortfall = Shortfall.DRAFT_FC,
    kimi_from: str | None = None,
    glm_dsa_from: str | None = None,
) -> tuple[ClassRule, ...]:
    malformed = Malformed.TYPE_ERROR if setter is Setter.PLUS_ONE else Malformed.NEVER_MATCHES
    rule = ClassRule(
        family="deepseek",
        architectures=_DEEPSEEK,
        first=versions[0],
        last=versions[1],
        setter=setter,
        embedding=embedding,
        reaches_last=False,
        source=Source("models/deepseek_v2.py", lines[0], versions[1]),
        shortfall=shortfall,
        malformed=malformed,
        defects=defects,
    )
    kimi = replace(
        rule,
        family="kimi",
        architectures=KIMI,
        first=kimi_from or versions[0],
        source=Source("models/kimi_k25.py", lines[1], versions[1]),
    )
    glm_dsa = replace(rule, architectures=GLM_DSA, first=glm_dsa_from or versions[0])
    return rule, glm_dsa, kimi


DEEPSEEK_CLASSES: tuple[ClassRule, ...] = (
    *_deepseek(
        ("0.5.8", "0.5.10.post1"),
        Setter.PLUS_ONE,
        AtEmbedding.TYPE_ERROR,
        ("2295, 2052", "841, capture in deepseek_v2.py:2052"),
        VERIFY_GRAPHS,
        PARTIAL_SUMS_DEEPSEEK,
        EXPERT_GATHER,
        kimi_from="0.5.10",
        glm_dsa_from="0.5.9",
    ),
    *_deepseek(
        ("0.5.11", "0.5.12.post1"),
        Setter.PLUS_ONE,
        AtEmbedding.TYPE_ERROR,
        ("2529, 2275", "799, capture in deepseek_v2.py:2275"),
        PARTIAL_SUMS_DEEPSEEK,
        EXPERT_GATHER,
    ),
    *_deepseek(
        ("0.5.13", "0.5.13.post1"),
        Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        AtEmbedding.TYPE_ERROR,
        ("2740, 2446", "834, capture in deepseek_v2.py:2446"),
        PARTIAL_SUMS_DEEPSEEK,
        EXPERT_GATHER,
    ),
    *_deepseek(
        ("0.5.14", "0.5.16"),
        Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        AtEmbedding.DELIVERS,
        ("2915, 2613", "921, capture in deepseek_v2.py:2613"),
    ),
    *_deepseek(
        ("0.5.17", "0.5.19"),
        Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        AtEmbedding.DELIVERS,
        ("3209, 2899", "926, capture in deepseek_v2.py:2899"),
        shortfall=Shortfall.PACKER_ASSERT,
    ),
    *_deepseek(
        ("0.5.20", "0.5.23"),
        Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        AtEmbedding.DELIVERS,
        ("3458, 3194", "928, capture in deepseek_v2.py:3194"),
        shortfall=Shortfall.PACKER_ERROR,
    ),
)
