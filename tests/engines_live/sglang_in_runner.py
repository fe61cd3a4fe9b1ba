"""SGLang where the model runner reads the draft's config, and sets up the process, while it is built: before 0.5.22.

For a reading the runner is built as far as its ``initialize``, which would load the target.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if importlib.util.find_spec("sglang.benchmark.one_batch"):
    import sglang.benchmark.one_batch as runner_of_one_batch
else:
    import sglang.bench_one_batch as runner_of_one_batch
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.srt.speculative import eagle_info, eagle_utils, eagle_worker_v2
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

try:
    from sglang.srt.model_executor.model_runner_components.attention_backend_setup import (
        configure_aux_hidden_state_capture,
    )
except ImportError:
    configure_aux_hidden_state_capture = None

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "arguments in the model runner"

_ARGUMENTS = {field.name for field in dataclasses.fields(ServerArgs)}
WITHOUT_GRAPHS = (
    {"cuda_graph_backend_decode": "disabled", "cuda_graph_backend_prefill": "disabled"}
    if "cuda_graph_backend_decode" in _ARGUMENTS
    else {"disable_cuda_graph": True, "disable_piecewise_cuda_graph": True}
)
_DRAFT_WORKER = eagle_worker_v2.EagleDraftWorker
_WORKER_READS = "eagle_use_aux_hidden_state" in _DRAFT_WORKER.__init__.__code__.co_names
NOT_RUN: tuple[str, ...] = (
    ("of the draft's worker, all that stands behind its own look at eagle_config",) if _WORKER_READS else ()
)


class _ReadError(BaseException):
    """Leaves the runner's constructor; no error of the engine's."""


def start(settings: Mapping[str, Any]) -> Any:
    """Server arguments, which resolve themselves, and what the benchmark sets up before it loads a target."""
    arguments = ServerArgs(**settings)
    for name in ("initialize_moe_config", "initialize_fp8_gemm_config", "initialize_fp4_gemm_config"):
        getattr(runner_of_one_batch, name)(arguments)
    return arguments


def read(arguments: Any) -> Any:
    """What the runner's constructor makes of the draft's config, under the release's own names."""
    built: list[Any] = []

    def leave(runner: Any, *_args: object) -> None:
        built.append(runner)
        raise _ReadError

    ModelRunner.initialize = leave
    try:
        runner_of_one_batch.load_model(arguments, PortArgs.init_new(arguments), 0, 0)
    except _ReadError:
        (runner,) = built
    return getattr(runner, "spec_aux_config", runner)


def ready_for_a_draft(arguments: Any, found: Any) -> tuple[Any, int]:  # noqa: ARG001  the form of every release's module
    """The draft's config, and the width of the CUDA graphs' buffer; the runner's constructor has set up the process."""
    config = ModelConfig.from_server_args(
        arguments, model_path=arguments.speculative_draft_model_path, is_draft_model=True
    )
    if _WORKER_READS:
        return config, eagle_info.EagleDraftExtendInput.hidden_size_for(_built_worker(arguments, config))
    runner = SimpleNamespace(model_config=config, spec_algorithm=SpeculativeAlgorithm.from_string("EAGLE3"))
    return config, eagle_utils.get_draft_input_from_target_hidden_dim(runner)


def _built_worker(arguments: Any, config: Any) -> Any:
    """The draft's worker, by its own constructor, around a runner that is no more than its config."""
    runner = SimpleNamespace(model_config=config, server_args=arguments, tp_group=None, canary_manager=None)
    eagle_worker_v2.TpModelWorker = lambda **_settings: SimpleNamespace(model_runner=runner)
    for name in ("init_token_map", "init_lm_head", "init_attention_backend", "init_cuda_graphs"):
        setattr(_DRAFT_WORKER, name, lambda _worker: None)
    ranks = dict.fromkeys(("gpu_id", "tp_rank", "moe_ep_rank", "attn_cp_rank", "moe_dp_rank", "nccl_port"), 0)
    target = SimpleNamespace(model_config=ModelConfig.from_server_args(arguments), memory_pool_config=None)
    worker = SimpleNamespace(get_memory_pool=lambda: (None, None), model_runner=target)
    return _DRAFT_WORKER(server_args=arguments, dp_rank=None, target_worker=worker, **ranks)


def set_layers(target: Any, ids: Any) -> None:
    """The runner's call of the target's setter."""
    wanted = {
        "model": target,
        "eagle_use_aux_hidden_state": True,
        "eagle_aux_hidden_state_layer_ids": ids,
        "dflash_use_aux_hidden_state": False,
        "dflash_target_layer_ids": None,
    }
    if configure_aux_hidden_state_capture is None:
        ModelRunner.init_aux_hidden_state_capture(SimpleNamespace(**wanted))
    else:
        configure_aux_hidden_state_capture(**wanted, is_dspark=False)
