"""What an SGLang worker's live objects say: sizes and ranks, options, and the layers that are captured.

What moved between releases is read in each of its ways (the rank's record has under ``variants`` which it was):

- ranks and sizes: ``runtime_context.get_parallel()`` from 0.5.14, before it ``distributed.parallel_state`` with
  ``layers.dp_attention``; the replica of ``--dp-size`` is there from 0.5.21, before it in the process' title alone
  (``managers/scheduler.py``, ``sglang::scheduler_DP0_TP1``).
- options: ``runtime_context.get_server_args()`` from 0.5.15, before it ``server_args.get_global_server_args()``, which
  raises from 0.5.20.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import re
from typing import Any

from eagle_parity.capture.sglang.forward import UnknownReleaseError
from eagle_parity.capture.worker_facts import class_of, config_of

_LAYER_LIST = "layers_to_capture"
_LAYER_FLAG = "_is_layer_to_capture"
"""How the classes without a list mark a decoder layer (``models/qwen3_moe.py`` and its kin); some have both."""

_REPLICA = re.compile(r"_DP(\d+)")


def layer_set(inner: Any) -> dict[str, list[int]] | None:
    """What the live module captures, in its own indices: the list it holds, and the layers that bear a mark.

    Args:
        inner: the module that holds the decoder layers.
    """
    found = {}
    if getattr(inner, _LAYER_LIST, None) is not None:
        found["list"] = [int(index) for index in getattr(inner, _LAYER_LIST)]
    layers = list(getattr(inner, "layers", ()))
    if any(hasattr(layer, _LAYER_FLAG) for layer in layers):
        found["flags"] = [index for index, layer in enumerate(layers) if getattr(layer, _LAYER_FLAG, False)]
    return found or None


def target_facts(inner: Any, hidden_size: int, dtype: str) -> dict[str, Any]:
    """What the target's live module says.

    Args:
        inner: the module that holds the decoder layers.
        hidden_size: of its states.
        dtype: of its states.
    """
    return {
        "model_class": class_of(inner),
        "config": config_of(getattr(inner, "config", None)),
        "num_layers": len(inner.layers) if inner is not None else None,
        "hidden_size": hidden_size,
        "dtype": dtype,
        "layer_set": layer_set(inner),
    }


def draft_facts(inner: Any, fc: Any) -> dict[str, Any]:
    """What the draft's live module says.

    Args:
        inner: the module that holds the decoder layers.
        fc: the projection of the concatenated states, where the head has one.
    """
    return {
        "model_class": class_of(inner),
        "fc_class": class_of(fc),
        "fc_weight": list(fc.weight.shape) if getattr(fc, "weight", None) is not None else None,
        "normed_before_fc": getattr(inner, "input_norm", None) is not None
        or getattr(inner, "fc_norm", None) is not None,
        "config": config_of(getattr(inner, "config", None)),
    }


_CONTEXT = "sglang.srt.runtime_context"
_PARALLEL_NAMES = (
    "tp_size",
    "tp_rank",
    "pp_size",
    "pp_rank",
    "attn_tp_size",
    "attn_tp_rank",
    "attn_dp_size",
    "attn_dp_rank",
)


def parallel_context() -> tuple[Any, str]:
    """What this release keeps sizes and ranks in, if anything, and which way that is."""
    try:
        return importlib.import_module(_CONTEXT).get_parallel(), "runtime_context"
    except ImportError:
        return None, "distributed.parallel_state"


def parallel_facts() -> dict[str, int]:
    """Sizes and ranks of this worker, by whichever of SGLang's ways this release has.

    Raises:
        RuntimeError: one of several replicas, and nothing says which: their files would have the same names.
    """
    parallel, _ = parallel_context()
    if parallel is not None:
        found = {name: int(getattr(parallel, name)) for name in _PARALLEL_NAMES}
    else:
        state = importlib.import_module("sglang.srt.distributed.parallel_state")
        attention = importlib.import_module("sglang.srt.layers.dp_attention")
        found = {
            "tp_size": state.get_tensor_model_parallel_world_size(),
            "tp_rank": state.get_tensor_model_parallel_rank(),
            "pp_size": state.get_pp_group().world_size,
            "pp_rank": state.get_pp_group().rank_in_group,
            "attn_tp_size": attention.get_attention_tp_size(),
            "attn_tp_rank": attention.get_attention_tp_rank(),
            "attn_dp_size": attention.get_attention_dp_size(),
            "attn_dp_rank": attention.get_attention_dp_rank(),
        }
    # Up to 0.5.22 --dp-size is also the size of attention data parallelism, which is no replication.
    replicas = int(getattr(_server_arguments()[0], "dp_size", 1) or 1) // max(1, found["attn_dp_size"])
    if replicas > 1:
        replica = getattr(parallel, "dp_rank", None)
        replica = _replica_of_title() if replica is None else replica
        if replica is None:
            raise UnknownReleaseError("the server runs several replicas, and which one this is can't be read")
        found |= {"dp_size": replicas, "dp_rank": int(replica)}
    return found


def _replica_of_title() -> int | None:
    """The replica by the title that the scheduler gives its process."""
    try:
        title = importlib.import_module("setproctitle").getproctitle()
    except Exception:  # noqa: BLE001  a package of SGLang's, not ours
        return None
    match = _REPLICA.search(title)
    return int(match[1]) if match else None


def _server_arguments() -> tuple[Any, str]:
    for module, name in ((_CONTEXT, "get_server_args"), ("sglang.srt.server_args", "get_global_server_args")):
        try:
            return getattr(importlib.import_module(module), name)(), name
        except Exception:  # noqa: BLE001, S112  each release has its own way
            continue
    return None, "none"


def server_facts() -> tuple[dict[str, Any], str]:
    """Options of the running server that decide what a capture can see, and by which way they were read."""
    names = (
        "chunked_prefill_size",
        "disable_radix_cache",
        "disable_cuda_graph",
        "attention_backend",
        "quantization",
        "kv_cache_dtype",
        "speculative_algorithm",
        "speculative_draft_model_path",
        "model_path",
        "enable_mixed_chunk",
    )
    arguments, source = _server_arguments()
    return {name: value for name in names if _is_plain(value := getattr(arguments, name, None))}, source


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


@functools.cache
def engine_version() -> str | None:
    """SGLang's own version."""
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return None
