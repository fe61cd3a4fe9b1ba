"""SpecForge: ids are layer outputs, kept in ``eagle_config``; the last state is post-norm."""

from __future__ import annotations

from eagle_parity.drafts import NESTED_IDS
from eagle_parity.trainers.default_layers import as_layer_outputs
from eagle_parity.trainers.trainer import IdMeaning, ListOrder, Trainer, TrainerRule
from eagle_parity.wiring import POST_NORM

_REMARK = "a draft without a list was trained with the default unless its config was edited"

SPECFORGE = Trainer(
    "specforge",
    "SpecForge",
    (
        TrainerRule(
            first="0.1.0",
            last="0.1.0",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=NESTED_IDS,
            default=as_layer_outputs,
            order=ListOrder.BACKEND,
            last_state=lambda _: POST_NORM,
            smallest=-1,
            source="scripts/prepare_hidden_states.py (0.1.0)",
            remark=_REMARK,
        ),
        TrainerRule(
            first="0.2.0",
            last="0.2.0",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=NESTED_IDS,
            default=as_layer_outputs,
            order=ListOrder.BACKEND,
            last_state=lambda _: POST_NORM,
            exactly=3,
            source="algorithms/model_providers.py:188-215 (0.2.0)",
            remark=_REMARK,
        ),
    ),
)
