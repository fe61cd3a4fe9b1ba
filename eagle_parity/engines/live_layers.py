"""What the layer set of a running target means: the engine's own counting into boundaries.

A live module holds what it captures after the setter has run, so no id is shifted here. Where that was read:

- SGLang (0.5.8 to 0.5.23): ``layers_to_capture`` holds index i for the state before layer i, in every loop that asks
  ``i in layers_to_capture`` (``models/llama.py:492``). Classes whose loop asks each layer for ``_is_layer_to_capture``
  (``models/qwen2_moe.py:1201``, ``minimax_m3.py:1949``, ``qwen3_5.py:1952``) look at the list for nothing but index N,
  the last layer's output (``minimax_m3.py:1962``): the flags count where a layer bears one, with N from the list.
- vLLM (0.25.0 to 0.32.0): what ``aux_hidden_state_layers`` of a native class holds is boundaries, and so is the number
  in the transformers backend's ``output_aux_hidden_state_<id>`` (``models/transformers/base.py:838-847``).

Which of them a forward delivers, and in which order, is its class's rule in this version: ascending but for vLLM's
transformers backend, which keeps the list's order; no boundary at all from SGLang's Gemma 3 (0.5.17 to 0.5.23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from eagle_parity.engines.class_rules import Captures, ClassRule
from eagle_parity.engines.delivery import deliver
from eagle_parity.engines.engine import EngineName
from eagle_parity.engines.resolved import resolve_engine
from eagle_parity.engines.serving import find_class
from eagle_parity.errors import UsageError
from eagle_parity.targets import Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eagle_parity.wiring import BoundaryEntry

LIST, FLAGS = "list", "flags"
"""The names in a recorded layer set."""

_SETTINGS: Mapping[str, Mapping[str, str]] = {"vllm": {"runner": "runner", "implementation": "impl"}, "sglang": {}}
"""Under which names a worker records what is an option of ``--engine``."""


def live_boundaries(  # noqa: PLR0917  a manifest has the parts of an engine's name apart
    engine: str,
    version: str,
    architectures: Sequence[str],
    layer_set: Mapping[str, Sequence[int]] | None,
    num_layers: int,
    options: Mapping[str, str],
    *,
    target_config: Mapping[str, Any] | None = None,
) -> tuple[BoundaryEntry, ...] | None:
    """The live wiring, as the running target's layer set and its class's rule say.

    Args:
        engine: ``sglang`` or ``vllm``.
        version: as the engine states it.
        architectures: of the target's config.
        layer_set: as the worker recorded it, ``{"list": [2, 5, 8], "flags": [...]}``.
        num_layers: N.
        options: those of the engine that are known, by their own names or by those of ``options_of``.
        target_config: the target's whole config, where there is one: it names the language model of a wrapper.

    Returns:
        A boundary a slot in concatenation order, None for a state that is no boundary; or None where there is no layer
        set, or no rule for the engine, its version or the class.
    """
    if not layer_set:
        return None
    target = recorded_target(architectures, num_layers, target_config=target_config)
    rule = live_rule(engine, version, target, {**options, **options_of(engine, options)})
    if rule is None:
        return None
    return deliver(rule, live_indices(layer_set, num_layers), num_layers).boundaries


def asked_boundaries(rule: ClassRule, indices: Sequence[int | None], num_layers: int) -> tuple[BoundaryEntry, ...]:
    """What a target class asks for, whatever its forward hands over for it: the coordinate of a layer set.

    Args:
        rule: of the class.
        indices: after its setter; None for an entry that never matches.
        num_layers: N.
    """
    return deliver(replace(rule, captures=Captures.STREAM), indices, num_layers).boundaries


def live_rule(engine: str, version: str, target: Target, options: Mapping[str, str]) -> ClassRule | None:
    """The rule of a running target's class; None where the tables have none for engine, version or class."""
    try:
        resolved = resolve_engine(EngineName(engine, version), assume_nearest=False)
    except UsageError:
        return None
    if resolved.version is None:
        return None
    found = find_class(resolved.engine, target, resolved.version, options)
    return found if isinstance(found, ClassRule) else None


def live_indices(layer_set: Mapping[str, Sequence[int]], num_layers: int) -> tuple[int, ...]:
    """The indices at which a running target captures: the layers that bear a flag where any can, else the list."""
    listed = tuple(layer_set.get(LIST, ()))
    if FLAGS not in layer_set:
        return listed
    # No layer stands behind the last one to bear a flag for its output.
    return (*layer_set[FLAGS], *(index for index in listed if index == num_layers))


def recorded_target(
    architectures: Sequence[str],
    num_layers: int,
    *,
    hidden_size: int = 1,
    target_config: Mapping[str, Any] | None = None,
) -> Target:
    """The target of a capture, as far as a capture says; ``hidden_size`` counts only where a draft is fitted to it."""
    config = target_config or {}
    text = config.get("text_config")
    text = text if isinstance(text, dict) else None
    named = text.get("architectures") if text is not None else None
    return Target(
        path="the capture's target",
        folder=None,
        architectures=tuple(architectures),
        text_architectures=tuple(name for name in named if isinstance(name, str)) if isinstance(named, list) else (),
        model_type="",
        num_layers=num_layers,
        hidden_size=hidden_size,
        vocab_size=None,
        config=config if text is None else text,
    )


def options_of(engine: str, settings: Mapping[str, object]) -> dict[str, str]:
    """Options of ``--engine``, from the settings that a worker recorded.

    Args:
        engine: ``sglang`` or ``vllm``.
        settings: as in a live capture's manifest.
    """
    names = _SETTINGS.get(engine, {})
    return {option: value for name, option in names.items() if isinstance(value := settings.get(name), str)}
