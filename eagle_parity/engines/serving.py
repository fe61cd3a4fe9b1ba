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
    default_indices,
)
from eagle_parity.engines.delivery import Delivery, Fit, deliver, judge_delivery, judge_width
from eagle_parity.engines.engine import PIPELINE_PARALLEL, EngineName
from eagle_parity.engines.failures import Failure, FailureKind
from eagle_parity.engines.ranges import in_force
from eagle_parity.engines.reading import ask, read_ids
from eagle_parity.engines.rules import Engine, Unread
from eagle_parity.quoting import plain
from eagle_parity.results import Outcome, ServedWiring
from eagle_parity.versions import in_range
from eagle_parity.wiring import EMBEDDING, POST_NORM, BoundaryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.engines.class_rules import NoSetter
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
        return served(judge_width(fit, 1, 1), delivery=Delivery((POST_NORM,)))
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
        defects=_defects(found, delivery.boundaries, target.num_layers)
        + _launch_defects(engine, target, version, variant)
        + fit.defects(len(delivery.boundaries)),
    )


def find_class(
    engine: Engine, target: Target, version: str, variant: Mapping[str, str]
) -> ClassRule | NoSetter | Unjudged:
    """The rule for the first of the target's architectures that the tables know."""
    if not target.architectures:
        return Unjudged(f"{target.path} names no architecture, so the class that {engine.title} loads isn't known")
    if target.residual_streams > 1:
        return Unjudged("the target has several residual streams (hyper-connections): it has no boundaries")
    for architecture in target.architectures:
        rule = in_force((r for r in engine.classes if architecture in r.architectures), version)
        # An option can take a class off the way on which it is refused.
        adapted = engine.adapt(rule, variant, target)
        if isinstance(adapted, Unread):
            return Unjudged(f"{engine.title} {version}: {adapted.reason}")
        if adapted is not None and in_range(version, adapted.first, adapted.last):
            return adapted
        refused = in_force((r for r in engine.no_setter if architecture in r.architectures), version)
        if adapted is None and refused is not None:
            return refused
    named = plain(target.architectures[0])
    return Unjudged(f"the tables have no rule for the target class {named} in {engine.title} {version}")


def _outcome(failure: Failure | None, *, unsupported: bool) -> Outcome:
    if unsupported:
        return Outcome.UNSUPPORTED
    if failure is None:
        return Outcome.SERVES
    return Outcome.FAILS_AT_LOAD if failure.at_load else Outcome.FAILS_AT_FIRST_REQUEST


DEEPSTACK_BOUNDARIES = range(1, 4)
"""The boundaries to which Qwen3-VL's vision tower adds: it has three levels, behind the first three layers."""


def _defects(rule: ClassRule, boundaries: Sequence[BoundaryEntry], num_layers: int) -> tuple[Defect, ...]:
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
    return tuple(
        entry.defect
        for entry in engine.launch_defects
        if in_range(version, entry.first, entry.last) and target.architectures[0] not in entry.except_for
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
