"""TensorRT-LLM's dump for ModelOpt: layer outputs, and -1 is the state after the final norm, moved to the end."""

from __future__ import annotations

from eagle_parity.trainers.default_layers import as_layer_outputs
from eagle_parity.trainers.trainer import IdMeaning, ListOrder, Trainer, TrainerRule
from eagle_parity.wiring import POST_NORM

TENSORRT_LLM = Trainer(
    "tensorrt-llm",
    "TensorRT-LLM",
    (
        TrainerRule(
            commits=("17c59c3",),
            meaning=IdMeaning.LAYER_OUTPUT,
            key=None,
            default=as_layer_outputs,
            order=ListOrder.ASCENDING,
            last_state=lambda _: POST_NORM,
            source="tensorrt_llm/_torch/speculative/save_hidden_state.py (17c59c3)",
            remark="the ids of the dump are kept nowhere, so custom ones aren't seen here",
        ),
    ),
)
