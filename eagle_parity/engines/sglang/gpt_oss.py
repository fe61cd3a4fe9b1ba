"""gpt-oss: from 0.5.17 on a list that names the last layer is taken as boundaries."""

from __future__ import annotations

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Setter, Source
from eagle_parity.engines.sglang.defects import EMBEDDING_ALIAS, PARTIAL_SUMS_LATER, VERIFY_GRAPHS
from eagle_parity.engines.sglang.patterns import plus_one

GPT_OSS_CLASSES: tuple[ClassRule, ...] = (
    plus_one(
        "gpt-oss",
        ("GptOssForCausalLM",),
        ("0.5.8", "0.5.10.post1"),
        AtEmbedding.TYPE_ERROR,
        Source("models/gpt_oss.py", "1186, 627", "0.5.10.post1"),
        VERIFY_GRAPHS,
        PARTIAL_SUMS_LATER,
    ),
    plus_one(
        "gpt-oss",
        ("GptOssForCausalLM",),
        ("0.5.11", "0.5.16"),
        AtEmbedding.TYPE_ERROR,
        Source("models/gpt_oss.py", "1284, 692", "0.5.16"),
        PARTIAL_SUMS_LATER,
    ),
    ClassRule(
        family="gpt-oss",
        architectures=("GptOssForCausalLM",),
        first="0.5.17",
        last="0.5.20",
        setter=Setter.AS_IS_IF_LAST_LAYER,
        embedding=AtEmbedding.ALIAS,
        reaches_last=True,
        source=Source("models/gpt_oss.py", "1349, 741-751", "0.5.20"),
        defects=(PARTIAL_SUMS_LATER, EMBEDDING_ALIAS),
    ),
    ClassRule(
        family="gpt-oss",
        architectures=("GptOssForCausalLM",),
        first="0.5.21",
        last="0.5.23",
        setter=Setter.AS_IS_IF_LAST_LAYER,
        embedding=AtEmbedding.DELIVERS,
        reaches_last=True,
        source=Source("models/gpt_oss.py", "1337, 719-732", "0.5.23"),
    ),
)
