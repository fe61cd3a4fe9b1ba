"""DeepSeek and what shares its loop: the capture stands before each layer, and the last layer is asked for behind it.

DeepSeek V3.2 and GLM's DSA models have a class for each platform from 0.31 on.
"""

from __future__ import annotations

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Malformed, Setter, Source
from eagle_parity.engines.vllm.defects import DEFERRED_ALL_REDUCE
from eagle_parity.engines.vllm.versions import FIRST, LAST

_DEEPSEEK = (
    "DeepseekForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "MistralLarge3ForCausalLM",
    "KimiK25ForConditionalGeneration",
)
_SPARSE = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")

DEEPSEEK = ClassRule(
    family="deepseek",
    architectures=_DEEPSEEK,
    first=FIRST,
    last=LAST,
    setter=Setter.AS_IS,
    embedding=AtEmbedding.TYPE_ERROR,
    reaches_last=True,
    malformed=Malformed.NEVER_MATCHES,
    source=Source("model_executor/models/deepseek_v2.py", "1561-1571, 1586, 1955; kimi_k25.py:470", "0.32.0"),
)
SPARSE_CUDA = replace(
    DEEPSEEK,
    family="deepseek-sparse",
    architectures=_SPARSE,
    first="0.31.0",
    embedding=AtEmbedding.DELIVERS,
    reaches_last=False,
    defects=(DEFERRED_ALL_REDUCE,),
    source=Source("models/deepseek_v32/nvidia/model.py", "117-150, 289", "0.32.0"),
    remark="on CUDA; platform=rocm and platform=cpu have other classes",
)
SPARSE_ROCM = replace(
    SPARSE_CUDA,
    embedding=AtEmbedding.TYPE_ERROR,
    source=Source("models/deepseek_v32/amd/model.py", "210", "0.32.0"),
    remark="on ROCm",
)
SPARSE_CPU = replace(
    DEEPSEEK,
    family="deepseek-sparse",
    architectures=_SPARSE,
    first="0.31.0",
    remark="on CPU and XPU: DeepSeek V3's class",
)

DEEPSEEK_CLASSES: tuple[ClassRule, ...] = (
    DEEPSEEK,
    replace(
        DEEPSEEK,
        architectures=_SPARSE,
        last="0.28.0",
        source=Source("model_executor/models/deepseek_v2.py", "1480-1505, 1877", "0.28.0"),
    ),
    SPARSE_CUDA,
)
