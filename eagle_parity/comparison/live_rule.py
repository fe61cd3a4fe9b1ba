"""The layer set of the running target against what the rule tables make of the running draft."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.comparison.recording import RuleCheck, RuleVariant
from eagle_parity.config_check import evaluate
from eagle_parity.config_files import ConfigFile
from eagle_parity.drafts import Family, draft_from_config
from eagle_parity.engines import parse_engine
from eagle_parity.engines.engine import EngineName
from eagle_parity.engines.live_layers import asked_boundaries, live_indices, live_rule, options_of, recorded_target
from eagle_parity.engines.resolved import resolve_engine
from eagle_parity.engines.serving import Unjudged
from eagle_parity.errors import InputError, UsageError
from eagle_parity.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.drafts import Draft
    from eagle_parity.engines.class_rules import ClassRule
    from eagle_parity.engines.serving import Served
    from eagle_parity.readers.live_capture import LiveCapture
    from eagle_parity.targets import Target

_DRAFT = "the running draft's config"


class _NotComparedError(Exception):
    """Why the layer set can't be held against a rule; control flow of this module."""


def check_rule(live: LiveCapture, target: Target | None) -> RuleCheck:
    """Follows the draft that the engine has loaded through the tables, and compares what the live module asks for.

    Args:
        live: the capture.
        target: the target's config, where it was given; else what the manifest says of it.
    """
    manifest, recording = live.manifest, live.live
    if target is None:
        target = recorded_target(
            manifest.target.architectures, manifest.target.num_layers, hidden_size=manifest.target.hidden_size
        )
    try:
        name, layer_set, draft = _read(live)
        served = _follow(name, draft, target)
        rule = _rule(name, target, served)
    except (_NotComparedError, UsageError, InputError) as error:
        return RuleCheck(engine=manifest.producer.engine, layer_set=recording.layer_set, not_compared=one_line(error))
    layers = target.num_layers
    return RuleCheck(
        engine=manifest.producer.engine,
        layer_set=recording.layer_set,
        live=list(asked_boundaries(rule, live_indices(layer_set, layers), layers)),
        variants=[
            RuleVariant(
                options=dict(each.variant),
                asked=list(asked_boundaries(rule, each.asked, layers)),
                outcome=each.outcome.value,
                reason=each.failure.words if each.failure else None,
                source=each.source,
            )
            for each in served
        ],
    )


def _read(live: LiveCapture) -> tuple[EngineName, dict[str, list[int]], Draft]:
    """The engine with the options that the worker recorded, what the module captures, and the draft that it runs."""
    layer_set, config = live.live.layer_set, live.live.draft_config
    if not layer_set:
        raise _NotComparedError("the capture holds no layer set of the live module")
    if not config:
        raise _NotComparedError("the capture doesn't hold the running draft's config")
    name = parse_engine(live.manifest.producer.engine)
    options = {**options_of(name.engine, live.live.settings), **dict(name.options)}
    draft = draft_from_config(ConfigFile(_DRAFT, Path(_DRAFT), None, config))
    if draft.family is not Family.EAGLE3:
        raise _NotComparedError(f"the draft's family is {draft.family.value}, for which there are no rules")
    return EngineName(name.engine, name.version, tuple(sorted(options.items()))), layer_set, draft


def _follow(name: EngineName, draft: Draft, target: Target) -> list[Served]:
    """What every variant that this launch can be makes of the draft."""
    resolved = resolve_engine(name, assume_nearest=False)
    if resolved.version is None:
        raise _NotComparedError(f"the tables don't know {name.label}")
    judged = evaluate(resolved, draft, target).served
    reason = next((served.reason for served in judged if isinstance(served, Unjudged)), None)
    if reason is not None:
        raise _NotComparedError(reason)
    return [served for served in judged if not isinstance(served, Unjudged)]


def _rule(name: EngineName, target: Target, served: Sequence[Served]) -> ClassRule:
    rule = live_rule(name.engine, name.version, target, dict(name.options))
    if rule is None:
        raise _NotComparedError(next((s.failure.words for s in served if s.failure), "the class has no rule"))
    return rule
