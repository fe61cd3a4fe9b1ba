"""TorchSpec: layer outputs in ``eagle_config``; a Kimi K2 draft that is exported for vLLM keeps boundaries there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.drafts import NESTED_IDS
from eagle_parity.engines.engine import EngineOption
from eagle_parity.trainers.default_layers import as_layer_outputs
from eagle_parity.trainers.trainer import IdMeaning, ListOrder, Trainer, TrainerRule
from eagle_parity.wiring import POST_NORM, BoundaryEntry

if TYPE_CHECKING:
    from eagle_parity.drafts import Draft

_COMMITS = ("6dda2bf",)
_SHIFTED_ON_EXPORT = "kimi_k2"


def _exported_for_vllm(draft: Draft) -> IdMeaning | None:
    """tools/convert_to_hf.py:146-152 (6dda2bf) adds one for vLLM where the draft's model_type is kimi_k2 alone."""
    return IdMeaning.BOUNDARY if draft.model_type == _SHIFTED_ON_EXPORT else None


def _one_layer_early(num_layers: int) -> BoundaryEntry:
    return num_layers - 1


TORCHSPEC = Trainer(
    "torchspec",
    "TorchSpec",
    (
        TrainerRule(
            commits=_COMMITS,
            way="hf",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=NESTED_IDS,
            default=as_layer_outputs,
            order=ListOrder.LISTED,
            last_state=lambda _: POST_NORM,
            source="utils/misc.py:88, eagle3_target_model.py:219-253 (6dda2bf)",
        ),
        TrainerRule(
            commits=_COMMITS,
            way="sglang",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=NESTED_IDS,
            default=as_layer_outputs,
            order=ListOrder.ASCENDING,
            last_state=lambda _: POST_NORM,
            source="utils/misc.py:88 (6dda2bf)",
        ),
        TrainerRule(
            commits=_COMMITS,
            way="vllm",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=NESTED_IDS,
            default=as_layer_outputs,
            order=ListOrder.ASCENDING,
            last_state=_one_layer_early,
            exported_meaning=_exported_for_vllm,
            source="vllm_engine.py:157-180, its last state is one layer early; convert_to_hf.py:146-152 (6dda2bf)",
        ),
    ),
    EngineOption("backend", ("hf", "sglang", "vllm"), "the engine that ran the target"),
)
