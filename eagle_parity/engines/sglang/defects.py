"""Known defects of SGLang on the way from a target's layers to a draft."""

from __future__ import annotations

from eagle_parity.engines.class_rules import Defect, DefectWhen

VERIFY_GRAPHS = Defect(
    "verify-graphs-use-default-layers",
    "With CUDA graphs on, target-verify graphs are captured with the default layers before the draft's ids are set:"
    " prefill feeds the right states, every later round the default ones",
    "upgrade SGLang to 0.5.11 or newer, or run with --disable-cuda-graph",
    DefectWhen.NOT_THE_DEFAULT,
    "model_executor/cuda_graph_runner.py:648 before model_runner.py:668 (0.5.10.post1); fixed in 0.5.11 by PR #22836",
)
UNCLEARED_FLAGS = Defect(
    "layer-flags-never-cleared",
    "The flags of the default layers stay set when the draft's ids are set after them, so that eager passes capture the"
    " union of both and fc meets too many states (from reading the code)",
    "upgrade SGLang to 0.5.11 or newer",
    DefectWhen.NOT_THE_DEFAULT,
    "models/qwen2_moe.py:928 (0.5.10.post1)",
)
PARTIAL_SUMS_DEEPSEEK = Defect(
    "partial-sums",
    "With tensor parallelism and fused all-reduce (switched on by itself for this class on SM90 and SM100), states are"
    " captured before the all-reduce: each rank feeds its own partial sum",
    "upgrade SGLang to 0.5.14 or newer, or switch the all-reduce fusion off",
    DefectWhen.ALWAYS,
    "models/deepseek_v2.py:2275 (0.5.12); fixed in 0.5.14 by PR #28343",
)
PARTIAL_SUMS_LATER = Defect(
    "partial-sums",
    "With tensor parallelism and fused all-reduce (switched on by itself for this class on SM90 and SM100), states are"
    " captured before the all-reduce: each rank feeds its own partial sum",
    "upgrade SGLang to 0.5.21 or newer, or switch the all-reduce fusion off",
    DefectWhen.ALWAYS,
    "models/gpt_oss.py:741, models/glm4_moe_lite.py:836 (0.5.20) read hidden_states + residual of a layer that left"
    " its all-reduce to the next one; fixed in 0.5.21",
)
EMBEDDING_ALIAS = Defect(
    "embedding-alias",
    "The embedding's slot is the very tensor that the fused norms overwrite in place: on CUDA it should end as the last"
    " layer's output (from reading the code)",
    "upgrade SGLang to 0.5.21 or newer",
    DefectWhen.EMBEDDING,
    "models/qwen2.py:358 (0.5.10.post1), layers/layernorm.py:266 (0.5.12); fixed in 0.5.21 by a copy",
)
EXPERT_GATHER = Defect(
    "expert-parallel-gather",
    "With DeepEP or Mooncake, states of layers behind the dense ones are gathered before they are handed over: across"
    " all tensor-parallel ranks until 0.5.9, across those of the attention from 0.5.10 on (from reading the code)",
    "upgrade SGLang to 0.5.14 or newer, or compare a capture of every rank",
    DefectWhen.ALWAYS,
    "models/deepseek_v2.py:2702 (0.5.8), :2053 (0.5.10), :2447 (0.5.13); gone in 0.5.14",
)
FC_SKIPPED = Defect(
    "fc-skipped",
    "States that are together as wide as the draft's embedding go past fc into the head's layer without a word; where"
    " draft-extend CUDA graphs of another width are in use, their buffer isn't filled and keeps what it held (from"
    " reading the code)",
    "serve as many layers as the head was trained on; a head that was trained on so few can't be served here",
    DefectWhen.ALWAYS,
    "models/llama_eagle3.py:162 (0.5.8), :218 (0.5.12), :238 (0.5.23); speculative/"
    "eagle_draft_extend_cuda_graph_runner.py:471-477 (0.5.12)",
)

DEEPSTACK_LATE = Defect(
    "deepstack-late",
    "States are captured before the vision tower's contribution to that layer is added, which transformers, and so a"
    " trainer, counts to the same boundary: at image tokens they lack it (from reading the code)",
    "upgrade SGLang to 0.5.19 or newer, or serve text alone",
    DefectWhen.DEEPSTACK,
    "models/qwen3_vl.py:1164-1182 (0.5.18); from 0.5.19 on it is added at the end of the layer (qwen3_vl.py:1228)",
)
BRANCH_ONLY = Defect(
    "branch-without-residual",
    "The layers hand their residual on apart, and what is captured is the output of the FFN branch alone: no boundary"
    " of any target, whatever the id list says",
    "use SGLang 0.5.16 or older for this target, or another engine that supports it",
    DefectWhen.ALWAYS,
    "models/gemma3_causal.py:638-672 (0.5.23), the layer: 378-394; measured against transformers: cosine 0.24 to 0.40;"
    " PR #39286",
    feeds_no_boundary=True,
)
STATE_ALIAS = Defect(
    "state-alias",
    "Each captured state is the very tensor to which the next layer's fused norm adds its attention branch in place: on"
    " CUDA it should end as the stream in the middle of that layer (from reading the code)",
    "upgrade SGLang to 0.5.22 or newer",
    DefectWhen.ALWAYS,
    "models/gemma4_causal.py:996 (0.5.21), the layer's pre_feedforward_layernorm, layers/layernorm.py; from 0.5.22 on"
    " states are copied",
)
PARTIAL_SUMS_BY_FLAG = Defect(
    "partial-sums",
    "With tensor parallelism and fused all-reduce, where that is switched on, states are captured before the"
    " all-reduce: each rank feeds its own partial sum",
    "upgrade SGLang to 0.5.21 or newer, or switch the all-reduce fusion off",
    DefectWhen.ALWAYS,
    "models/bailing_moe.py:756, models/glm5_next.py:1027, models/qwen3_vl_moe.py:108 (0.5.20) read hidden_states +"
    " residual of a layer that left its all-reduce to the next one; fixed in 0.5.21",
)
PIPELINE_LAST_STAGE = Defect(
    "pipeline-last-stage-only",
    "With pipeline parallelism only the last stage captures, and nothing hands on the states of earlier stages: every"
    " layer outside of the last stage is missing",
    "serve this head without pipeline parallelism",
    DefectWhen.PIPELINE,
    "models/llama.py:930 (0.5.23): the setter returns on every other stage",
)
