"""By which ways the values of a step are read on each of vLLM's runners, and whether this release has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.capture.vllm.releases import unknown_release

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

V1_WAYS: Mapping[str, str] = {
    "auxiliary_states": "propose_draft_token_ids(aux_hidden_states)",
    "last_state": "propose_draft_token_ids(hidden_states)",
    "token_ids": "model_runner.input_ids.gpu",
    "positions": "model_runner._get_positions()",
    "request_ids": "model_runner.input_batch.req_ids",
    "prompt_lengths": "model_runner.input_batch.num_prompt_tokens",
    "rows": "common_attn_metadata.query_start_loc_cpu",
}
"""Of the V1 runner (``v1/worker/gpu_model_runner.py``, 0.25.0 to 0.32.0)."""
V2_WAYS: Mapping[str, str] = {
    "auxiliary_states": "propose(aux_hidden_states)",
    "last_state": "propose(last_hidden_states)",
    "token_ids": "input_batch.input_ids",
    "positions": "input_batch.positions",
    "request_ids": "input_batch.req_ids",
    "prompt_lengths": "input_batch.prefill_len_np",
    "rows": "input_batch.query_start_loc_np",
}
"""Of the V2 runner (``v1/worker/gpu/input_batch.py``, ``v1/worker/gpu/spec_decode``, 0.25.0 to 0.32.0)."""
V1_DRAFT_WAY = "drafter.propose(target_token_ids, target_positions)"
V2_DRAFT_WAY = "input_batch"


def refuse_other_v1(runner: Any) -> None:
    """Asks for what a V1 runner holds before anything is wrapped; V2 has all of it in the batches alone.

    Raises:
        CaptureError: the runner has no such attribute.
    """
    for path in ("input_ids.gpu", "_get_positions", "input_batch.req_ids", "input_batch.num_prompt_tokens"):
        found = runner
        for name in path.split("."):
            if not hasattr(found, name):
                raise unknown_release(f"{type(runner).__name__} has no {path}")
            found = getattr(found, name)


def slots_of(aux: object) -> Sequence[torch.Tensor]:
    """The auxiliary states, one ``[n, H]`` a slot; none where the target hands over none.

    Raises:
        CaptureError: they come in another way than as a list: its parts needn't be slots.
    """
    if aux is None:
        return ()
    if not isinstance(aux, list | tuple) or not all(hasattr(slot, "shape") for slot in aux):
        raise unknown_release(f"aux_hidden_states is a {type(aux).__name__}, not a list of states")
    return aux
