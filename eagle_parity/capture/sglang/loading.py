"""How the hook comes into a worker: by ``--forward-hooks``, or as a plugin.

On a server without a draft that captures by a list of ids (0.5.23: ``--enable-return-aux-hidden-states``; before it
``EAGLE_PARITY_LAYER_IDS`` with the plugin, which calls the target's own setter before graphs are captured) the same
hooks record a reference.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.hook_log import log_exception, logger
from eagle_parity.capture.sglang.modules import FINAL_NORMS, TARGET_MODULES
from eagle_parity.capture.sglang.tap import Tap
from eagle_parity.capture.spool.folder import SPOOL_ENV, make_spool
from eagle_parity.capture.spool.limits import stated_max_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

LAYER_IDS_ENV = "EAGLE_PARITY_LAYER_IDS"
"""The list, ``0,1,2``, that the plugin gives to the setter of a target without a draft."""
BESIDE_ENV = "EAGLE_PARITY_BESIDE"
"""``beside`` of the plugin, ``0,32``."""


def factory(config: Mapping[str, Any] | None = None) -> Callable[..., None]:
    """The hook factory of ``--forward-hooks``; called once for the target's model and once for the draft's.

    Args:
        config: ``{"spool": folder, "max_tokens": rows, "beside": [0, N]}``, as the launch flag has it.
    """
    try:
        config = config or {}
        folder = str(config.get("spool") or os.environ.get(SPOOL_ENV, ""))
        limit = stated_max_tokens(config.get("max_tokens"))
        beside = config.get("beside") or _numbers(os.environ.get(BESIDE_ENV, ""))
        if not folder:
            logger.warning("eagle-parity: no spool folder in the hook's config; nothing will be captured")
            return _do_nothing
        make_spool(folder)  # whoever captures needs the token before the first request of theirs
        return Tap(folder, limit, beside).on_forward
    except Exception as error:  # noqa: BLE001  nothing may reach the engine
        logger.warning("eagle-parity: nothing will be captured: %s: %s", type(error).__name__, error)
        return _do_nothing


def register() -> None:
    """The entry point of SGLang's plugins: hooks every model that is loaded, if a spool folder is named."""
    if not os.environ.get(SPOOL_ENV):
        return

    def after_load(result: Any, runner: Any, *_: Any, **__: Any) -> Any:
        try:
            _ask_for_layers(runner)
            _attach(runner.model)
        except Exception:  # noqa: BLE001  nothing may reach the engine
            log_exception("the capture hook could not be attached; the server goes on")
        return result

    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        loading = "sglang.srt.model_executor.model_runner.ModelRunner.load_model"
        HookRegistry.register(loading, after_load, HookType.AFTER)
    except Exception as error:  # noqa: BLE001  nothing may reach the engine
        logger.warning("eagle-parity: nothing will be captured, this release takes no such hook: %s", error)


def _attach(model: nn.Module) -> None:
    hook = factory()
    hooked = (*TARGET_MODULES, *FINAL_NORMS) if os.environ.get(BESIDE_ENV) else TARGET_MODULES
    for name, module in model.named_modules():
        if name in hooked:
            module.register_forward_hook(hook)


def _ask_for_layers(runner: Any) -> None:
    """Gives the list of the environment to the target's setter: just where there is no draft that its states feed."""
    listed = os.environ.get(LAYER_IDS_ENV)
    if not listed:
        return
    if getattr(runner, "is_draft_worker", False) or not runner.spec_algorithm.is_none():
        logger.warning("eagle-parity: %s is for a server without speculation; it is left alone", LAYER_IDS_ENV)
        return
    setter = getattr(runner.model, "set_eagle3_layers_to_capture", None)
    if setter is None:
        logger.warning("eagle-parity: %s has no way to capture states", type(runner.model).__name__)
        return
    setter(_numbers(listed))
    logger.info("eagle-parity: %s captures by the ids %s", type(runner.model).__name__, listed)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number.strip()]


def _do_nothing(*_: object) -> None:
    """The hook of a configuration that can't be used."""
