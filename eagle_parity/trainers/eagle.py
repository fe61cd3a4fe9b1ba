"""EAGLE itself: EAGLE-3 is trained online on three hard-coded layers; the head predicts logits, no state is kept."""

from __future__ import annotations

from eagle_parity.trainers.default_layers import as_boundaries
from eagle_parity.trainers.trainer import IdMeaning, ListOrder, Trainer, TrainerRule

EAGLE = Trainer(
    "eagle",
    "EAGLE",
    (
        TrainerRule(
            commits=("cb7e084",),
            meaning=IdMeaning.BOUNDARY,
            key=None,
            default=as_boundaries,
            order=ListOrder.ASCENDING,
            last_state=lambda _: None,
            source="traineagle3/modeling_llama_kv.py:1139, eagle/model/modeling_llama_kv.py:1138 (cb7e084)",
        ),
    ),
)
