"""speculators: layer outputs up to 0.4, boundaries from 0.5 on; the last state is the last layer's, before the norm.

The change of meaning came without a change of key (commit 2a1443c8, 2026-03-26), and drafts up to 0.4 were exported
without any list.
"""

from __future__ import annotations

from eagle_parity.drafts import IDS
from eagle_parity.trainers.default_layers import as_boundaries
from eagle_parity.trainers.trainer import IdMeaning, ListOrder, Trainer, TrainerRule
from eagle_parity.wiring import POST_NORM, Boundary


def _before_norm(num_layers: int) -> Boundary:
    return num_layers


def _after_norm(num_layers: int) -> Boundary:  # noqa: ARG001  a TrainerRule's form
    return POST_NORM


_NOT_IN_CONFIG = (
    "drafts of these versions keep no list, so a custom --layer-ids of the data generation isn't seen here: --shards"
    " reads it from data_config.json"
)

SPECULATORS = Trainer(
    "speculators",
    "speculators",
    (
        TrainerRule(
            first="0.1.0",
            last="0.2.0",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=None,
            default=as_boundaries,
            order=ListOrder.LISTED,
            last_state=_after_norm,
            source="research/eagle3/ge_data/llamaultrachat.py:121-126 (0.2.0)",
            remark=_NOT_IN_CONFIG,
        ),
        TrainerRule(
            first="0.3.0",
            last="0.4.0",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=None,
            default=as_boundaries,
            order=ListOrder.ASCENDING,
            last_state=_before_norm,
            source="data_generation/vllm_hidden_states_generator.py:97 (0.3.0), :103 (0.4.0)",
            remark=_NOT_IN_CONFIG,
        ),
        TrainerRule(
            first="0.5.0",
            last="0.9.0",
            meaning=IdMeaning.BOUNDARY,
            key=IDS,
            default=as_boundaries,
            order=ListOrder.ASCENDING,
            last_state=_before_norm,
            source="models/utils.py:99-133 (0.9.0)",
        ),
    ),
)
