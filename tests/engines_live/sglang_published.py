"""SGLang where the server's arguments are published before anything reads them, 0.5.22 and 0.5.23."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import sglang.benchmark.one_batch as runner_of_one_batch
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor.model_runner_components.attention_backend_setup import configure_aux_hidden_state_capture
from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import resolve_spec_aux_hidden_state_config
from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.srt.speculative.eagle_utils import get_draft_input_from_target_hidden_dim
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

if TYPE_CHECKING:
    from collections.abc import Mapping

EAGLE_3 = SpeculativeAlgorithm.from_string("EAGLE3")
NAME = "published arguments"
NOT_RUN: tuple[str, ...] = ()
WITHOUT_GRAPHS = {"cuda_graph_backend_decode": "disabled", "cuda_graph_backend_prefill": "disabled"}


def start(settings: Mapping[str, Any]) -> Any:
    """Server arguments, resolved and published as a scheduler process has them."""
    arguments = ServerArgs(**settings)
    arguments.resolve_once()
    ranks = runner_of_one_batch.SpawnRanks(world_rank=0, gpu_id=0)
    runner_of_one_batch.publish(arguments, role="scheduler", ranks=ranks)
    runner_of_one_batch._init_process_global_configs()
    return arguments


def read(arguments: Any) -> Any:
    """What the reader of the draft's config makes of it, under the release's own names."""
    return resolve_spec_aux_hidden_state_config(
        server_args=arguments,
        model_config=ModelConfig.from_server_args(arguments),
        spec_algorithm=EAGLE_3,
        is_draft_worker=False,
    )


def ready_for_a_draft(arguments: Any, found: Any) -> tuple[Any, int]:
    """The draft's config, and the width of the CUDA graphs' buffer; what a draft class needs is set up."""
    bootstrap = runner_of_one_batch.bootstrap
    port = PortArgs.init_new(arguments).nccl_port
    config = found.draft_model_config
    bootstrap.init_parallel_runtime(server_args=arguments, device="cpu", dist_port=port)
    bootstrap.init_layer_runtime(model_config=config)
    runner = SimpleNamespace(model_config=config, spec_algorithm=EAGLE_3)
    return config, get_draft_input_from_target_hidden_dim(runner)


def set_layers(target: Any, ids: Any) -> None:
    """The runner's call of the target's setter."""
    configure_aux_hidden_state_capture(
        model=target,
        eagle_use_aux_hidden_state=True,
        eagle_aux_hidden_state_layer_ids=ids,
        dflash_use_aux_hidden_state=False,
        dflash_target_layer_ids=None,
        is_dspark=False,
    )
