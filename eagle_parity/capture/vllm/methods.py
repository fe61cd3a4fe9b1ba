"""The methods that every worker gets, for ``collective_rpc`` to call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.capture.hook_log import logger
from eagle_parity.capture.vllm.recorder import Recorder
from eagle_parity.capture.vllm.releases import KNOWN_RELEASES, CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable


def register() -> None:
    """The entry point of ``vllm.general_plugins``: adds the methods to vLLM's worker class; idempotent."""
    try:
        from vllm.v1.worker.worker_base import WorkerBase

        for name, method in vars(CaptureMethods).items():
            if name.startswith("eagle_parity_") and not hasattr(WorkerBase, name):
                setattr(WorkerBase, name, method)
    except Exception as error:  # noqa: BLE001  vLLM calls this in every process of its own and catches nothing
        logger.warning("eagle-parity: nothing can be captured, the hook knows vLLM %s: %s", KNOWN_RELEASES, error)


class CaptureMethods:
    """What ``collective_rpc`` can call on every rank. Each gives a JSON object; a failure is one with ``error``."""

    # What is called with other arguments than a verb has is a failure like any other, so these take whatever comes.

    def eagle_parity_info(self, *given: Any, **named: Any) -> dict[str, Any]:
        """What the live objects say: layer set, classes, parallel sizes."""
        return _answer(lambda: _recorder(self).facts(*given, **named))

    def eagle_parity_start(self, *given: Any, **named: Any) -> dict[str, Any]:
        """Installs the wrappers, once; ``generated`` records rows of generated tokens as well."""
        return _answer(lambda: _recorder(self).start(*given, **named))

    def eagle_parity_stop(self, *given: Any, **named: Any) -> dict[str, Any]:
        """Removes them where no other ``session``'s capture goes on; without a session, whatever goes on."""
        return _answer(lambda: _recorder(self).stop(*given, **named))

    def eagle_parity_files(self, *given: Any, **named: Any) -> dict[str, Any]:
        """Names and sizes of the files that this rank left for a ``session``."""
        return _answer(lambda: _recorder(self).spooled.files(*given, **named))

    def eagle_parity_read(self, *given: Any, **named: Any) -> dict[str, Any]:
        """A piece of one of them (``session``, ``name``, ``offset``), base64; empty where another rank has it."""
        return _answer(lambda: _recorder(self).spooled.read(*given, **named))

    def eagle_parity_discard(self, *given: Any, **named: Any) -> dict[str, Any]:
        """Removes a ``session``'s files, once they are in a capture on another host."""
        return _answer(lambda: _recorder(self).spooled.discard(*given, **named))


def _answer(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return call()
    except Exception as error:  # noqa: BLE001  an exception in a worker's method ends vLLM's engine
        return {"error": str(error) if isinstance(error, CaptureError) else f"{type(error).__name__}: {error}"}


def _recorder(worker: Any) -> Recorder:
    recorder: Recorder | None = worker.__dict__.get("_eagle_parity")
    if recorder is None:
        recorder = worker.__dict__["_eagle_parity"] = Recorder(worker)
    return recorder
