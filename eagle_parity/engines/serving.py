"""What an engine makes of a draft: the rules of one engine, version and variant followed from config key to fc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.drafts import Draft, IdList
from eagle_parity.engines.class_rules import (
    ClassRule,
    Defect,
    DefectWhen,
    NoSetter,
    default_indices,
)
from eagle_parity.engines.delivery import Delivery, Fit, deliver, judge_delivery, judge_width
from eagle_parity.engines.engine import PIPELINE_PARALLEL, EngineName
from eagle_parity.engines.failures import Failure, FailureKind
from eagle_parity.engines.ranges import in_force
from eagle_parity.engines.reading import ask, read_ids
from eagle_parity.engines.rules import Engine, Instead, Unread
from eagle_parity.engines.vocab_map import judge_vocab_map
from eagle_parity.quoting import plain
from eagle_parity.results import Outcome, ServedWiring
from eagle_parity.versions import in_range
from eagle_parity.wiring import EMBEDDING, POST_NORM, BoundaryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.engines.class_rules import Wrapper
    from eagle_parity.targets import Target


class Unjudged(msgspec.Struct, frozen=True):
    """No rule covers this: a value with its reason, never a guess."""

    reason: str


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What one variant of one engine makes of a draft on a target.

    Attributes:
        name: the engine as the user named it.
        title: engine and version for messages, ``SGLang 0.5.12``.
        variant: the option values of this variant.
        ids: the list that was read; None where a default was taken or what stands there is no list of integers.
        raw: what stands under the key.
        key: where it was read; None for a default.
        default: whether the engine's default was taken.
        asked: the indices that the target class asks for, in the list's order; None for an entry that never matches.
        boundaries: what the forward delivers, in concatenation order; for a failure, as far as it knows.
        failure: why it doesn't serve.
        outcome: whether, and when it fails.
        ignored: lists that stand where this engine doesn't read them.
        wrapped: asked indices that wrap around, with the boundary that is served for them.
        defects: known faults that this draft meets.
        source: where the rule was read.
    """

    name: EngineName
    title: str
    variant: Mapping[str, str]
    ids: tuple[int, ...] | None
    raw: Any
    key: str | None
    default: bool
    asked: tuple[int | None, ...]
    boundaries: tuple[BoundaryEntry, ...]
    failure: Failure | None
    outcome: Outcome
    ignored: tuple[IdList, ...]
    wrapped: tuple[tuple[int, int], ...]
    defects: tuple[Defect, ...]
    source: str

    @property
    def serves(self) -> bool:
        """Whether requests are answered."""
        return self.outcome is Outcome.SERVES

    @property
    def list_serves(self) -> bool:
        """Whether requests are answered, or would be if the draft's weights were: its list has no part in that."""
        return self.serves or (self.failure is not None and self.failure.kind is FailureKind.VOCAB_MAP)

    def summary(self) -> ServedWiring:
        """This as the result document has it."""
        return ServedWiring(
            engine=self.name.label,
            options=dict(self.variant),
            boundaries=list(self.boundaries),
            key=self.key,
            default=self.default,
            outcome=self.outcome,
            ids=None if self.ids is None else list(self.ids),
            reason=self.failure.words if self.failure else None,
            source=self.source,
        )


def variants_of(engine: Engine, name: EngineName, version: str) -> tuple[Mapping[str, str], ...]:
    """Every variant that a launch can be, narrowed and extended by the options that were named.

    Where nobody has read what a launch of this version can be, the named options alone: no rule covers them either.
    """
    named = dict(name.options)
    rule = in_force(engine.variants, version)
    variants: tuple[Mapping[str, str], ...] = ({},) if rule is None else rule.variants
    fitting = [v for v in variants if all(v[k] == named[k] for k in v if k in named)]
    return tuple({**variant, **named} for variant in fitting)


def serve(
    engine: Engine, draft: Draft, target: Target, *, name: EngineName, variant: Mapping[str, str], version: str
) -> Served | Unjudged:
    """Follows a draft through one variant of an engine.

    Args:
        engine: its tables.
        draft: the draft's config.
        target: the target's config.
        name: the engine as named, for labels.
        variant: option values, one of ``variants_of``.
        version: the version whose rules apply; the named one, or the nearest known.
    """
    found = find_class(engine, target, version, variant)
    if isinstance(found, Unjudged):
        return found
    seen = engine.see_draft(draft, version, variant)
    key_rule, timing = engine.key_rule(version, variant), engine.timing(version, variant)
    if key_rule is None or timing is None or (seen.width is None and seen.failure is None):
        return Unjudged(f"the tables have no rule for how {engine.title} {version} reads a draft")
    reading = read_ids(seen, key_rule)
    ignored = tuple(
        entry for entry in draft.id_lists if entry.key != reading.key and not (entry.ids is not None and not entry.ids)
    )
    title = f"{engine.title} {name.version}"
    if version != name.version:
        title += f" (by the rules of {version})"

    def served(
        failure: Failure | None,
        *,
        asked: Sequence[int | None] = (),
        delivery: Delivery | None = None,
        unsupported: bool = False,
        source: object = key_rule.source,
        defects: tuple[Defect, ...] = (),
    ) -> Served:
        delivery = delivery or Delivery(())
        failure = failure or judge_vocab_map(engine.vocab_map(version), draft, target)
        return Served(
            name=name,
            title=title,
            variant=variant,
            ids=reading.ids,
            raw=reading.raw,
            key=reading.key,
            default=reading.default and seen.uses_aux,
            asked=tuple(asked),
            boundaries=delivery.boundaries,
            failure=failure,
            outcome=_outcome(failure, unsupported=unsupported),
            ignored=ignored if seen.uses_aux else (),
            wrapped=delivery.wrapped,
            defects=defects,
            source=f"{engine.title} {version}, {source}",
        )

    if seen.failure is not None or seen.width is None:
        return served(seen.failure)
    fit = Fit(seen, seen.width, draft, target, timing)
    if not seen.uses_aux:
        before_norm = isinstance(found, ClassRule) and found.norm_in_logits
        final: BoundaryEntry = target.num_layers if before_norm else POST_NORM
        return served(judge_width(fit, 1, 1), delivery=Delivery((final,)))
    if not isinstance(found, ClassRule):
        return served(
            Failure(FailureKind.NO_SETTER, at_load=True, words=found.reason), unsupported=True, source=found.source
        )
    asked = ask(found, reading, target.num_layers)
    if isinstance(asked, Failure):
        return served(asked, source=found.source)
    delivery = deliver(found, asked, target.num_layers)
    failure = judge_delivery(found, asked, delivery, fit)
    return served(
        failure,
        asked=asked,
        delivery=delivery,
        source=found.source,
        defects=defects_of(found, delivery.boundaries, target.num_layers)
        + _launch_defects(engine, target, version, variant)
        + fit.defects(len(delivery.boundaries)),
    )


def find_class(
    engine: Engine, target: Target, version: str, variant: Mapping[str, str]
) -> ClassRule | NoSetter | Unjudged:
    """The rule for the first of the target's architectures that the tables know."""
    if not target.architectures:
        return Unjudged(f"{target.path} names no architecture, so the class that {engine.title} loads isn't known")
    for architecture in target.architectures:
        found = _look_up(engine, architecture, target, version, variant)
        if found is None:
            continue
        # A class that is refused is refused whatever its states are.
        if target.no_boundaries is None or isinstance(found, NoSetter):
            return found
        known = f"; {found.reason}" if isinstance(found, Unjudged) else ""
        return Unjudged(f"boundaries are not defined where {target.no_boundaries}{known}")
    if target.no_boundaries is not None:
        return Unjudged(f"boundaries are not defined where {target.no_boundaries}")
    named = plain(target.architectures[0])
    return Unjudged(f"the tables have no rule for the target class {named} in {engine.title} {version}")


def _look_up(
    engine: Engine, architecture: str, target: Target, version: str, variant: Mapping[str, str]
) -> ClassRule | NoSetter | Unjudged | None:
    rule = in_force((r for r in engine.classes if architecture in r.architectures), version)
    # An option can take a class off the way on which it is refused.
    adapted = engine.adapt(rule, variant, target)
    if isinstance(adapted, Unread):
        return Unjudged(f"{engine.title} {version}: {adapted.reason}")
    if isinstance(adapted, Instead):
        return _without_rule(engine, adapted.architecture, version)
    if adapted is not None:
        return adapted if in_range(version, adapted.first, adapted.last) else None
    wrapper = _wrapper(engine, architecture, version)
    if wrapper is not None:
        return _wrapped(engine, wrapper, target, version, variant)
    return _without_rule(engine, architecture, version)


def _without_rule(engine: Engine, architecture: str, version: str) -> NoSetter | Unjudged | None:
    refused = in_force((r for r in engine.no_setter if architecture in r.architectures), version)
    if refused is not None:
        return refused
    unruled = in_force((r for r in engine.no_rule if architecture in r.architectures), version)
    return None if unruled is None else Unjudged(f"{engine.title} {version}: {unruled.reason} ({unruled.source})")


def _wrapper(engine: Engine, architecture: str, version: str) -> Wrapper | None:
    return in_force((w for w in engine.wrappers if architecture in w.architectures), version)


def _language_model(engine: Engine, target: Target) -> str | None:
    """The class of a wrapped language model: as its own config names it, else by that config's ``model_type``."""
    if target.text_architectures:
        return target.text_architectures[0]
    model_type = target.config.get("model_type")
    return engine.text_classes.get(model_type) if isinstance(model_type, str) else None


def _wrapped(
    engine: Engine, wrapper: Wrapper, target: Target, version: str, variant: Mapping[str, str]
) -> ClassRule | NoSetter | Unjudged:
    """What a class around a language model of the config's choice makes of that model's own rule."""
    inner = _language_model(engine, target)
    if inner is None:
        return Unjudged(
            f"{engine.title} {version}: the config of the target doesn't name the class of its language model"
        )
    if inner in wrapper.without:
        return NoSetter((inner,), version, version, wrapper.reason, wrapper.source)
    rule = in_force((r for r in engine.classes if inner in r.architectures), version)
    adapted = engine.adapt(rule, variant, target)
    if isinstance(adapted, ClassRule) and in_range(version, adapted.first, adapted.last):
        return adapted
    return Unjudged(
        f"{engine.title} {version}: the tables have no rule for the target's language model {plain(inner)} inside of"
        f" {plain(target.architectures[0])}"
    )


def _outcome(failure: Failure | None, *, unsupported: bool) -> Outcome:
    if unsupported:
        return Outcome.UNSUPPORTED
    if failure is None:
        return Outcome.SERVES
    return Outcome.FAILS_AT_LOAD if failure.at_load else Outcome.FAILS_AT_FIRST_REQUEST


DEEPSTACK_BOUNDARIES = range(1, 4)
"""The boundaries to which Qwen3-VL's vision tower adds: it has three levels, behind the first three layers."""


def defects_of(rule: ClassRule, boundaries: Sequence[BoundaryEntry], num_layers: int) -> tuple[Defect, ...]:
    """The known faults that a class shows when it hands over these boundaries."""
    default = tuple(sorted(set(default_indices(rule.default, num_layers))))
    shows = {
        DefectWhen.ALWAYS: True,
        DefectWhen.NOT_THE_DEFAULT: tuple(boundaries) != default,
        DefectWhen.EMBEDDING: EMBEDDING in boundaries,
        DefectWhen.DEEPSTACK: any(boundary in DEEPSTACK_BOUNDARIES for boundary in boundaries),
        DefectWhen.PIPELINE: False,
    }
    return tuple(defect for defect in rule.defects if shows[defect.when])


def _launch_defects(engine: Engine, target: Target, version: str, variant: Mapping[str, str]) -> tuple[Defect, ...]:
    if variant.get(PIPELINE_PARALLEL.name) != "yes":
        return ()
    architecture = target.architectures[0]
    if _wrapper(engine, architecture, version) is not None:
        architecture = _language_model(engine, target) or architecture
    return tuple(
        entry.defect
        for entry in engine.launch_defects
        if in_range(version, entry.first, entry.last) and architecture not in entry.except_for
    )


def id_of(served: Served, slot: int) -> tuple[int, int] | None:
    """The id and the index behind a served slot; None for a default or where no id gave it."""
    if served.ids is None or not 0 <= slot < len(served.boundaries):
        return None
    wrapped = dict(served.wrapped)
    for number, index in zip(served.ids, served.asked, strict=False):
        if index is not None and wrapped.get(index, index) == served.boundaries[slot]:
            return number, index
    return None
