"""Kimi Linear, and Kimi K3 around it: captured behind each layer, with a class for each platform.

With attention residuals, which Kimi K3 has and Kimi Linear hasn't, there is no stream that layers add to, and the
target has no boundaries; these rules are for a config without them.
"""

from __future__ import annotations

from msgspec.structs import replace

from eagle_parity.engines.class_rules import ClassRule, NoSetter, Source
from eagle_parity.engines.vllm.native_classes import SORTED, UNSORTED
from eagle_parity.engines.vllm.options import CUDA, ROCM
from eagle_parity.engines.vllm.versions import LAST

KIMI = "kimi-linear"
_LINEAR = "KimiLinearForCausalLM"
_K3 = "KimiK3ForConditionalGeneration"

_ON_CPU = "on CPU, RuntimeError at load: torch.cuda.Stream requires CUDA support"
_ON_ROCM = "on ROCm, RuntimeError at load: Model does not support EAGLE3 interface"
_SOURCE = "models/kimi_k3/__init__.py, models/kimi_k3/amd/linear.py:1059, models/kimi_k3/nvidia/model.py:1155 (0.32.0)"

OTHER_PLATFORMS: tuple[NoSetter, ...] = (
    NoSetter((_LINEAR,), "0.28.0", LAST, f"{_ON_ROCM}; {_ON_CPU}", _SOURCE),
    NoSetter((_K3,), "0.28.0", LAST, _ON_CPU, _SOURCE),
)
"""What happens where there is no rule for the platform that was named."""

_REMARK = (
    "the final norm is applied with the logits; with attn_res_block_size set, what is captured is the mixture that the"
    " next layer reads (or the sum of the block so far, with VLLM_KIMI_K3_AUX_ATTN_RES_STREAM=0), which is no boundary"
)

KIMI_CLASSES: tuple[ClassRule, ...] = (
    replace(
        UNSORTED,
        family=KIMI,
        architectures=(_LINEAR, _K3),
        first="0.28.0",
        source=Source("models/kimi_k3/nvidia/model.py", "1314-1355; amd/linear.py:779-794", "0.28.0"),
        remark=_REMARK,
        norm_in_logits=True,
    ),
    replace(
        SORTED,
        family=KIMI,
        architectures=(_LINEAR, _K3),
        source=Source("models/kimi_k3/nvidia/model.py", "1318-1363; amd/linear.py:844-859", "0.32.0"),
        remark=_REMARK,
        norm_in_logits=True,
    ),
)


def kimi_platforms(architecture: str) -> tuple[str, ...]:
    """On which platforms one of these classes takes an EAGLE-3 draft."""
    return (CUDA,) if architecture == _LINEAR else (CUDA, ROCM)
