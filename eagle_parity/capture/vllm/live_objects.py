"""Where the runner, its drafter, the target and the head are in a vLLM worker."""

from __future__ import annotations

from typing import Any

from eagle_parity.capture.vllm.releases import CaptureError

EXTRACT = "extract_hidden_states"
"""The speculative method that captures without a draft (``v1/spec_decode/extract_hidden_states.py``)."""


class LiveObjects:
    """What a worker holds, as it is at the moment.

    Args:
        worker: vLLM's.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    @property
    def config(self) -> Any:
        """The server's options."""
        return self._worker.vllm_config

    @property
    def runner(self) -> Any:
        """V1's or V2's."""
        return self._worker.model_runner

    @property
    def drafter(self) -> Any:
        """What proposes tokens: V1 calls it drafter, V2 speculator.

        Raises:
            CaptureError: there is none.
        """
        found = getattr(self.runner, "drafter", None) or getattr(self.runner, "speculator", None)
        if found is None or not hasattr(found, "propose"):
            raise CaptureError("this server runs no draft head: start it with --speculative-config")
        return found

    @property
    def extracts(self) -> bool:
        """Whether the server captures without a draft."""
        return getattr(self.config.speculative_config, "method", None) == EXTRACT

    @property
    def is_v1(self) -> bool:
        """Whether the runner is V1's."""
        return hasattr(self.runner, "propose_draft_token_ids")

    @property
    def draft_model(self) -> Any:
        """The head.

        Raises:
            CaptureError: it is no EAGLE-3 head.
        """
        model = _unwrapped(getattr(self.drafter, "model", None))
        if not hasattr(model, "combine_hidden_states"):
            raise CaptureError(
                f"its draft is a {type(model).__name__}, which combines no hidden states: not an EAGLE-3 head"
            )
        return model

    @property
    def target(self) -> Any:
        """The target's model, as vLLM built it."""
        runner = self.runner
        return _unwrapped(runner.get_model() if hasattr(runner, "get_model") else runner.model)


def _unwrapped(model: Any) -> Any:
    """The module inside what vLLM puts around it for graphs (``runnable``, ``unwrap``)."""
    for _ in range(4):
        inside = getattr(model, "runnable", None)
        if inside is None and callable(getattr(type(model), "unwrap", None)):
            inside = model.unwrap()
        if inside is None:
            break
        model = inside
    return model


def layer_list_holder(model: Any) -> Any:
    """The module that holds ``aux_hidden_state_layers``: the walk of vLLM's ``SupportsEagle3`` (``interfaces.py``)."""
    if hasattr(model, "get_language_model"):
        model = model.get_language_model()
    elif hasattr(model, "language_model"):
        model = model.language_model
    return getattr(model, "model", model)
