"""Known defects of vLLM on the way from a target's layers to a draft."""

from __future__ import annotations

from eagle_parity.engines.class_rules import Defect, DefectWhen

FC_SKIPPED = Defect(
    "fc-skipped",
    "The V2 runner captures aux states although use_aux_hidden_state is false, and the draft hands the only one on"
    " without fc, in place of the final state (from reading the code)",
    "use the V1 runner for a head without aux states; for one with them, set use_aux_hidden_state to true",
    DefectWhen.ALWAYS,
    "v1/worker/gpu/model_runner.py:300-307, model_executor/models/llama_eagle3.py:401",
)
DEFERRED_ALL_REDUCE = Defect(
    "deferred-all-reduce",
    "With tensor parallelism a layer leaves its all-reduce to the next one's norm, and the state between them is"
    " captured with the residual added to what is not reduced yet: each rank feeds its own partial sum (from"
    " reading the code)",
    "compare a capture of every rank (`eagle-parity capture vllm`); a run without tensor parallelism doesn't have it",
    DefectWhen.ALWAYS,
    "models/minimax_m3/nvidia/model.py:736-743, 909; models/deepseek_v32/nvidia/model.py:117-150, 289 (0.32.0);"
    " PR #47270",
)
FAST_PREFILL = Defect(
    "fast-prefill",
    "Where fast prefill for shared KV caches is switched on, no state is handed over at all, and the forward's result"
    " can't be unpacked (from reading the code)",
    "leave --kv-sharing-fast-prefill off",
    DefectWhen.ALWAYS,
    "model_executor/models/gemma4.py:1323-1332 (0.32.0)",
)
PIPELINE_LOST = Defect(
    "pipeline-stages",
    "With pipeline parallelism this target class doesn't hand on the states of earlier stages: the V2 runner refuses it"
    " from 0.31 on (not Qwen3-VL, which inherits Qwen 3's claim), V1 loses them without a word",
    "serve this head without pipeline parallelism",
    DefectWhen.PIPELINE,
    "v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:44 (0.32.0), supports_aux_hidden_states_over_pp in each model",
)
