"""On what vLLM's reading of a draft depends beside its version."""

from __future__ import annotations

from eagle_parity.engines.engine import EngineOption

RUNNER = EngineOption(
    "runner",
    ("v1", "v2"),
    "the model runner: v2 unless Triton is missing, VLLM_USE_V2_MODEL_RUNNER=0 is set or a feature needs v1; in 0.25"
    " and 0.28 v1 for most MoE and hybrid targets, too",
)
IMPL = EngineOption(
    "impl",
    ("native", "transformers"),
    "--model-impl; the transformers backend concatenates in the list's order and is only assumed when named, or where"
    " vLLM uses it by itself",
)
CUDA, ROCM, CPU = "cuda", "rocm", "cpu"
PLATFORM = EngineOption(
    "platform",
    (CUDA, ROCM, CPU),
    "for which the build is: DeepSeek V3.2, GLM's DSA models and Kimi Linear have a class of their own for each; cuda"
    " unless named (cpu stands for XPU, too)",
)
