"""NVIDIA's ModelOpt: the exported draft keeps layer outputs; what the states were depends on how they were dumped.

The HF dump takes the output of each layer; the offline vLLM dump hands the same numbers to vLLM, which takes them as
boundaries: one layer early, and with a last state before the final norm. Nothing in the files tells the two apart.
The scripts stand in the repository and in no wheel; those of a2fbac7 are taken for those of 0.47.0, so that a release
alone never hides that there are several.
"""

from __future__ import annotations

from eagle_parity.drafts import NESTED_IDS
from eagle_parity.engines.engine import EngineOption
from eagle_parity.trainers.default_layers import as_boundaries, as_layer_outputs
from eagle_parity.trainers.trainer import IdMeaning, ListOrder, Trainer, TrainerRule
from eagle_parity.wiring import POST_NORM

_HEAD = ("a2fbac7",)
_STREAMED = "EAGLE_CAPTURE_IDS of the launch is kept nowhere"
_NUMBERS_BY_HAND = "--aux-layers of the dump is kept nowhere, and its default fails"

MODELOPT = Trainer(
    "modelopt",
    "ModelOpt",
    (
        TrainerRule(
            first="0.39.0",
            last="0.39.0",
            way="hf",
            meaning=IdMeaning.BOUNDARY,
            key=None,
            default=as_boundaries,
            order=ListOrder.ASCENDING,
            last_state=lambda _: POST_NORM,
            source="collect_hidden_states/compute_hidden_states_hf.py (0.39.0; until commit 1ec931c2c, 2026-04-25)",
            remark="the script's layers are fixed, whatever list the draft has",
        ),
        TrainerRule(
            first="0.47.0",
            last="0.47.0",
            commits=_HEAD,
            way="hf",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=NESTED_IDS,
            default=as_layer_outputs,
            order=ListOrder.ASCENDING,
            last_state=lambda _: POST_NORM,
            source="plugins/hf_eagle.py:58-63, 405 (0.47.0); collect_hidden_states/compute_hidden_states_hf.py:153-197"
            " (a2fbac7)",
        ),
        TrainerRule(
            first="0.47.0",
            last="0.47.0",
            commits=_HEAD,
            way="megatron",
            meaning=IdMeaning.LAYER_OUTPUT,
            key=NESTED_IDS,
            default=None,
            order=ListOrder.ASCENDING,
            last_state=lambda _: POST_NORM,
            source="plugins/megatron_eagle.py:652-666 (0.47.0)",
            remark="its default wasn't read",
        ),
        TrainerRule(
            first="0.47.0",
            last="0.47.0",
            commits=(*_HEAD, "a7b0a92"),
            way="vllm",
            meaning=IdMeaning.BOUNDARY,
            key=None,
            default=None,
            order=ListOrder.ASCENDING,
            last_state=lambda num_layers: num_layers,
            source="collect_hidden_states/compute_hidden_states_vllm.py:178, 262, 295-325 (a2fbac7)",
            remark=_NUMBERS_BY_HAND,
        ),
        TrainerRule(
            first="0.47.0",
            last="0.47.0",
            commits=_HEAD,
            way="streaming",
            meaning=IdMeaning.BOUNDARY,
            key=None,
            default=None,
            order=ListOrder.ASCENDING,
            last_state=lambda num_layers: num_layers,
            final_id_is_last_state=True,
            source="train_eagle_streaming.sh:39-40, hf_streaming_dataset.py:372, 596 (a2fbac7)",
            remark=_STREAMED,
        ),
    ),
    EngineOption(
        "dump",
        ("hf", "vllm", "streaming", "megatron"),
        "how the hidden states were made: by transformers, by the offline vLLM script, streamed from vLLM, in Megatron",
    ),
)
