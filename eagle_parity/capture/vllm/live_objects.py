"""Where the runner, its drafter, the target and the head are in a vLLM worker."""

from __future__ import annotations

from typing import Any

from eagle_parity.capture.vllm.releases import CaptureError, unknown_release

_MAX_WRAPPERS = 4
"""As many as graphs, micro-batches and compilation put around each other, and one."""
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
        return getattr(self.runner, self.drafter_name)

    @property
    def drafter_name(self) -> str:
        """The runner's attribute that holds it.

        Raises:
            CaptureError: there is none.
        """
        for name in ("drafter", "speculator"):
            if hasattr(getattr(self.runner, name, None), "propose"):
                return name
        if getattr(self.config, "speculative_config", None) is None:
            raise CaptureError("this server runs no draft head: start it with --speculative-config")
        raise unknown_release(f"{type(self.runner).__name__} has no draft head: no drafter and no speculator proposes")

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
        model, _ = unwrapped(getattr(self.drafter, "model", None))
        if not hasattr(model, "combine_hidden_states"):
            raise CaptureError(
                f"its draft is a {type(model).__name__}, which combines no hidden states: not an EAGLE-3 head"
            )
        return model

    @property
    def target(self) -> Any:
        """The target's model, as vLLM built it."""
        return unwrapped(self._wrapped_target)[0]

    @property
    def _wrapped_target(self) -> Any:
        return self.runner.get_model() if hasattr(self.runner, "get_model") else self.runner.model

    def variants(self) -> dict[str, str]:
        """Where each of these was found on this release."""
        drafter = self.drafter_name
        ways = {
            "runner": "V1" if self.is_v1 else "V2",
            "drafter": f"model_runner.{drafter}",
            "target": ("get_model()" if hasattr(self.runner, "get_model") else "model")
            + unwrapped(self._wrapped_target)[1],
        }
        if not self.extracts:
            ways["draft_model"] = f"{drafter}.model{unwrapped(self.drafter.model)[1]}"
        return ways


def unwrapped(model: Any) -> tuple[Any, str]:
    """The module inside what vLLM puts around it for graphs, and by which ways (``runnable``, ``unwrap``)."""
    ways = ""
    for _ in range(_MAX_WRAPPERS):
        inside, way = getattr(model, "runnable", None), ".runnable"
        if inside is None and callable(getattr(type(model), "unwrap", None)):
            inside, way = model.unwrap(), ".unwrap()"
        if inside is None:
            break
        model, ways = inside, ways + way
    return model, ways


def layer_list_holder(model: Any) -> tuple[Any, str]:
    """The module that holds ``aux_hidden_state_layers``, and the way to it.

    The walk is that of vLLM's ``SupportsEagle3`` (``interfaces.py``).
    """
    ways = ""
    if hasattr(model, "get_language_model"):
        model, ways = model.get_language_model(), "get_language_model()."
    elif hasattr(model, "language_model"):
        model, ways = model.language_model, "language_model."
    return (model.model, f"{ways}model") if hasattr(model, "model") else (model, ways.rstrip("."))
