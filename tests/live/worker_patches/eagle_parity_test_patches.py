"""What the live tests need inside an engine's worker: faults to be found, and a look at its live objects.

The engines load it as a plugin of theirs: this folder is on the servers' PYTHONPATH, its metadata beside it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

MLA_ENV = "EAGLE_PARITY_TEST_MLA"
"""Set for a server whose target has latent attention."""
FIRST_DIVERGED = 10
"""The position from which on the fault ``diverged`` changes the last rank's rows."""


def register_sglang() -> None:
    """Latent attention without Intel's matrix extensions: SGLang's choice for Triton, which these kernels take, too."""
    if os.environ.get(MLA_ENV):
        from sglang.srt.models.deepseek_common import attention_backend_handler as handlers

        handlers.AttentionBackendRegistry.register("intel_amx", handlers._dispatch_mla_subtype)


def register_vllm() -> None:
    """Gives every worker the methods of ``TestMethods``, which ``/collective_rpc`` reaches in development mode."""
    from vllm.v1.worker.worker_base import WorkerBase

    for name, method in vars(TestMethods).items():
        if name.startswith("eagle_parity_test_"):
            setattr(WorkerBase, name, method)


class TestMethods:
    """Called on every rank."""

    model_runner: Any

    def eagle_parity_test_wrapped(self) -> list[str]:
        """Names of the instance attributes that hide a method of the class, on every object that a capture touches."""
        runner = self.model_runner
        objects = {"runner": runner, "drafter": runner.drafter, "draft": runner.drafter.model}
        return [
            f"{where}.{name}"
            for where, found in objects.items()
            for name, value in vars(found).items()
            if callable(value) and callable(getattr(type(found), name, None))
        ]

    def eagle_parity_test_fault(self, fault: str = "") -> str:
        """Makes a fault in what the target hands over, or mends it again.

        Args:
            fault: ``partial``, ``sharded``, ``diverged``, or nothing.
        """
        while _undo:
            _undo.pop()()
        if fault:
            {"partial": _partial, "sharded": _sharded, "diverged": _diverged}[fault](self.model_runner)
        return fault


_undo: list[Callable[[], None]] = []


def _replace(owner: Any, name: str, value: Any) -> None:
    before = vars(owner)[name]
    setattr(owner, name, value)
    _undo.append(lambda: setattr(owner, name, before))


def _tap(value_of: Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]) -> None:
    """Replaces the tap of all native classes: hidden states and residual in, the slot out."""
    from vllm.model_executor.models.interfaces import EagleModelMixin

    def add(
        self: Any, states: list[torch.Tensor], index: int, hidden: torch.Tensor, residual: torch.Tensor | None
    ) -> list[torch.Tensor]:
        if index in self.aux_hidden_state_layers:
            states.append(value_of(hidden, residual))
        return states

    _replace(EagleModelMixin, "_maybe_add_hidden_state", add)


def _whole(hidden: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
    return hidden if residual is None else hidden + residual


def _partial(_runner: Any) -> None:
    """The tap comes before the all-reduce of the layer's MLP, as in classes that leave it to the next norm."""
    from vllm.model_executor.layers import linear

    reduce = linear.tensor_model_parallel_all_reduce
    last: list[torch.Tensor] = []

    def keep(value: torch.Tensor) -> torch.Tensor:
        last[:] = [value.clone()]
        reduced: torch.Tensor = reduce(value)
        return reduced

    _replace(linear, "tensor_model_parallel_all_reduce", keep)
    _tap(lambda hidden, residual: _whole(last[0] if residual is not None else hidden, residual))


def _sharded(runner: Any) -> None:
    """Each rank holds its part of the hidden dimension; what the head gets is gathered behind the tap."""
    import torch
    from vllm.distributed import (
        get_tensor_model_parallel_rank,
        get_tensor_model_parallel_world_size,
        tensor_model_parallel_all_gather,
    )

    rank, ranks = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
    _tap(lambda hidden, residual: _whole(hidden, residual).chunk(ranks, dim=-1)[rank].contiguous())
    draft = type(runner.drafter.model)
    combine = draft.combine_hidden_states

    def gather(self: Any, packed: torch.Tensor) -> torch.Tensor:
        slots = packed.chunk(self.model.num_aux_hidden_states, dim=-1)
        gathered = [tensor_model_parallel_all_gather(slot.contiguous(), dim=-1) for slot in slots]
        combined: torch.Tensor = combine(self, torch.cat(gathered, dim=-1))
        return combined

    _replace(draft, "combine_hidden_states", gather)


def _diverged(runner: Any) -> None:
    """The last rank's rows are others from a position on, as when ranks sample different tokens."""
    from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size

    last = get_tensor_model_parallel_rank() == get_tensor_model_parallel_world_size() - 1

    def value(hidden: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
        state = _whole(hidden, residual).clone()
        if last:
            late = runner._get_positions(len(state)) >= FIRST_DIVERGED
            state[late] = state[late].roll(1, dims=-1)
        return state

    _tap(value)
