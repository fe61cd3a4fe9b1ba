"""Whose form a draft's config has, and what that says about the list of layers in it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTION = "eagle_config"
ANGELSLIM_IDS = "aux_hidden_states_layer_ids"


class Dialect(StrEnum):
    """Whose config it is, as far as its keys and its weights' metadata tell."""

    SPECFORGE = "specforge"
    """The flat form with ``eagle_config`` that SpecForge and TorchSpec write and SGLang reads."""
    MODELOPT = "modelopt"
    """The same, with ModelOpt's own switches in ``eagle_config``."""
    TORCHSPEC = "torchspec"
    """The same, with TorchSpec's version in the weights' metadata."""
    SPECULATORS = "speculators"
    """``speculators_model_type`` with the layer under ``transformer_layer_config``."""
    NEMO = "nemo-automodel"
    """NeMo's own class, which no engine has."""
    ANGELSLIM = "angelslim"
    """The flat form with ``target_model_type``, and a key of its own for ids."""
    FLAT = "flat"
    """Everything at top level, as vLLM reads it."""


IDS_MEAN: Mapping[Dialect, str] = {
    Dialect.SPECFORGE: "layer outputs, counted from 0, in eagle_config",
    Dialect.MODELOPT: "layer outputs, counted from 0, in eagle_config; states that were dumped with vLLM are one layer"
    " earlier than they say",
    Dialect.TORCHSPEC: "layer outputs, counted from 0, in eagle_config; boundaries in a Kimi K2 draft for vLLM",
    Dialect.SPECULATORS: "boundaries at top level from 0.5 on; older versions trained on the outputs of layers 2, n/2"
    " and n-3, counted from 0, and wrote no list",
    Dialect.NEMO: "nothing: NeMo writes no list into a draft, custom layers stand in its cache's manifest.json alone",
    Dialect.ANGELSLIM: f"layer outputs, counted from 0, in {ANGELSLIM_IDS}, which no engine reads",
}
"""What the trainer that writes so means by the list; a flat config has no trainer's name."""

_MODELOPT_SWITCHES = (
    "use_input_layernorm_in_first_layer",
    "use_last_layernorm",
    "use_mtp_layernorm",
    "next_layer_regular",
    "parallel_draft_step",
    "parallel_draft_heads_num_layers",
)
_NEMO_CLASS = "LlamaEagle3DraftModel"
_TORCHSPEC_METADATA = "torchspec_version"


def find_dialect(config: Mapping[str, Any], metadata: Mapping[str, str]) -> Dialect:
    """The dialect of a config, with the metadata of the safetensors beside it."""
    if "speculators_model_type" in config or "speculators_config" in config:
        return Dialect.SPECULATORS
    architectures = config.get("architectures")
    if isinstance(architectures, list) and _NEMO_CLASS in architectures:
        return Dialect.NEMO
    if _TORCHSPEC_METADATA in metadata:
        return Dialect.TORCHSPEC
    section = config.get(SECTION)
    if isinstance(section, dict) and any(key in section for key in _MODELOPT_SWITCHES):
        return Dialect.MODELOPT
    if ANGELSLIM_IDS in config or "target_model_type" in config:
        return Dialect.ANGELSLIM
    return Dialect.SPECFORGE if SECTION in config else Dialect.FLAT
