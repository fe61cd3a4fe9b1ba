"""Tencent's AngelSlim: layer outputs under a key of its own, which no engine reads."""

from __future__ import annotations

from eagle_parity.dialects import ANGELSLIM_IDS
from eagle_parity.trainers.default_layers import as_layer_outputs
from eagle_parity.trainers.trainer import IdMeaning, ListOrder, Trainer, TrainerRule
from eagle_parity.wiring import POST_NORM


def _counting_the_embedding(num_layers: int) -> tuple[int, ...]:
    return as_layer_outputs(num_layers + 1)


ANGELSLIM = Trainer(
    "angelslim",
    "AngelSlim",
    (
        TrainerRule(
            first="0.2.0",
            last="0.2.0",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=ANGELSLIM_IDS,
            default=_counting_the_embedding,
            order=ListOrder.LISTED,
            last_state=lambda _: POST_NORM,
            source="train/models/target/target_model_wrapper.py:80-104 (0.2.0)",
            remark="its default counts the embedding as a layer, so that the last slot is one layer later",
        ),
        TrainerRule(
            first="0.3.0",
            last="0.3.0",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=ANGELSLIM_IDS,
            default=as_layer_outputs,
            order=ListOrder.LISTED,
            last_state=lambda _: POST_NORM,
            source="train/models/target/target_model_wrapper.py:104-156 (0.3.0)",
        ),
        TrainerRule(
            first="0.5.0",
            last="0.5.0",
            commits=("67394ce",),
            meaning=IdMeaning.LAYER_OUTPUT,
            key=ANGELSLIM_IDS,
            default=as_layer_outputs,
            order=ListOrder.LISTED,
            last_state=lambda _: POST_NORM,
            source="train/models/target/target_model_wrapper.py:578-627, trainer/online_eagle3_trainer.py:54 (0.5.0)",
        ),
    ),
)
