"""NeMo Automodel: layer outputs; the exported draft never keeps them, the cache's manifest does."""

from __future__ import annotations

from eagle_parity.engines.engine import EngineOption
from eagle_parity.trainers.default_layers import as_layer_outputs
from eagle_parity.trainers.trainer import IdMeaning, ListOrder, Trainer, TrainerRule

_COMMITS = ("36044ad",)
_NOT_KEPT = "a draft keeps no list, so custom ids aren't seen here: --shards reads them from the cache's manifest.json"

NEMO = Trainer(
    "nemo-automodel",
    "NeMo Automodel",
    (
        TrainerRule(
            commits=_COMMITS,
            way="hf",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=None,
            default=as_layer_outputs,
            order=ListOrder.LISTED,
            last_state=lambda _: None,
            source="eagle/target.py:53 (36044ad)",
            remark=_NOT_KEPT,
        ),
        TrainerRule(
            commits=_COMMITS,
            way="vllm",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=None,
            default=as_layer_outputs,
            order=ListOrder.ASCENDING,
            last_state=lambda num_layers: num_layers,
            source="vllm_runner.py:235-256 (36044ad)",
            remark=_NOT_KEPT,
        ),
    ),
    EngineOption(
        "backend",
        ("hf", "vllm"),
        "the engine that ran the target; its SGLang runner hands ids on as they are, and what they mean there depends"
        " on SGLang's release and the target's class",
    ),
)
