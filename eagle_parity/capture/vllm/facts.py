"""What a vLLM worker's live objects say: sizes and ranks, options, and the layers that are captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.capture.vllm.live_objects import layer_list_holder
from eagle_parity.capture.vllm.releases import vllm_version
from eagle_parity.capture.worker_facts import class_of, config_of

if TYPE_CHECKING:
    from eagle_parity.capture.vllm.live_objects import LiveObjects


_LAYER_LIST = "aux_hidden_state_layers"
_OUTPUTS = "_output_aux_hidden_states_kwargs"


def worker_facts(live: LiveObjects) -> dict[str, Any]:
    """What the rank's record says of this worker, but for its rank.

    Raises:
        CaptureError: the server runs no EAGLE-3 head.
    """
    config = live.config
    layers, layers_from = layer_set(live.target)
    facts = {
        "engine": {"name": "vllm", "version": vllm_version()},
        "server": _server_facts(live),
        "tap": f"{'V1' if live.is_v1 else 'V2'} runner, auxiliary states as a list",
        "variants": {**live.variants(), "layer_set": layers_from},
        "target": {
            "model_class": class_of(live.target),
            "config": config_of(config.model_config.hf_config),
            "num_layers": config.model_config.get_total_num_hidden_layers(),
            "hidden_size": config.model_config.get_hidden_size(),
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "layer_set": layers,
        },
    }
    if not live.extracts:
        facts["draft"] = _draft_facts(live)
    return facts


def _draft_facts(live: LiveObjects) -> dict[str, Any]:
    draft, config = live.draft_model, live.config
    inside = getattr(draft, "model", draft)
    weight = getattr(getattr(inside, "fc", None), "weight", None)
    return {
        "model_class": class_of(draft),
        # Prepacking on CPU leaves an empty weight behind.
        "fc_weight": list(weight.shape) if weight is not None and weight.numel() else None,
        "normed_before_fc": bool(getattr(inside, "norm_before_fc", False))
        or getattr(inside, "fc_norm", None) is not None,
        "config": config_of(config.speculative_config.draft_model_config.hf_config),
    }


def _server_facts(live: LiveObjects) -> dict[str, Any]:
    config = live.config
    found = {
        "enforce_eager": config.model_config.enforce_eager,
        "compilation_mode": getattr(config.compilation_config, "mode", None),
        "cudagraph_mode": getattr(config.compilation_config, "cudagraph_mode", None),
        "enable_prefix_caching": config.cache_config.enable_prefix_caching,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "runner": "v1" if live.is_v1 else "v2",
        "implementation": "transformers" if ".transformers" in type(live.target).__module__ else "native",
        "method": config.speculative_config.method,
        "model_path": config.model_config.model,
        "speculative_draft_model_path": config.speculative_config.model,
        "quantization": config.model_config.quantization,
    }
    return {name: value if isinstance(value, str | int | bool) else str(value) for name, value in found.items()}


def layer_set(target: Any) -> tuple[dict[str, list[int]] | None, str]:
    """What the live target captures, in vLLM's own ids and in the order in which it hands them over; and where that is.

    Args:
        target: the model's class as vLLM built it.
    """
    holder, way = layer_list_holder(target)
    value = getattr(holder, _LAYER_LIST, None)
    way = f"{way}.{_LAYER_LIST}".lstrip(".")
    if value is None:
        # The transformers backend keeps an output's name for each (0.32.0, models/transformers/base.py:838).
        value, way = [name.rpartition("_")[2] for name in getattr(target, _OUTPUTS, None) or {}], _OUTPUTS
    return ({"list": [int(index) for index in value]}, way) if value else (None, "none")


def parallel_facts(worker: Any) -> dict[str, int]:
    """Sizes and ranks of this worker."""
    from vllm.distributed import parallel_state

    config = worker.vllm_config.parallel_config
    pipeline = parallel_state.get_pp_group()
    return {
        "tp_size": parallel_state.get_tensor_model_parallel_world_size(),
        "tp_rank": parallel_state.get_tensor_model_parallel_rank(),
        "pp_size": pipeline.world_size,
        "pp_rank": pipeline.rank_in_group,
        "dp_size": config.data_parallel_size,
        "dp_rank": config.data_parallel_rank,
    }
