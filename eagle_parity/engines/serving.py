"""What an engine makes of a draft: the rules of one engine, version and variant followed from config key to fc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.drafts import IdList, id_list, look_up
from eagle_parity.engines.engine import EngineName, in_range
from eagle_parity.engines.rules import (
    AtEmbedding,
    ClassRule,
    Defect,
    DefectWhen,
    DraftSeen,
    Engine,
    Failure,
    FailureKind,
    KeyRule,
    Malformed,
    Order,
    Outside,
    Setter,
    Shortfall,
    Taken,
    Timing,
    WidthRule,
)
from eagle_parity.quoting import quoted
from eagle_parity.results import Outcome, ServedWiring
from eagle_parity.wiring import EMBEDDING, POST_NORM, BoundaryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.drafts import Draft
    from eagle_parity.engines.rules import NoSetter
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


def variants_of(engine: Engine, name: EngineName) -> tuple[Mapping[str, str], ...]:
    """Every variant that a launch can be, narrowed and extended by the options that were named."""
    named = dict(name.options)
    fitting = [v for v in engine.variants if all(v[k] == named[k] for k in v if k in named)]
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
    key_rule = engine.key_rules[engine.runner(variant)]
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

    if seen.failure is not None:
        return served(seen.failure)
    if not seen.uses_aux:
        return served(None, delivery=Delivery((POST_NORM,)))
    if not isinstance(found, ClassRule):
        return served(
            Failure(FailureKind.NO_SETTER, at_load=True, words=found.reason), unsupported=True, source=found.source
        )
    asked = ask(found, reading, target.num_layers)
    if isinstance(asked, Failure):
        return served(asked, source=found.source)
    delivery = deliver(found, asked, target.num_layers)
    failure = judge_delivery(
        found, asked, delivery, timing=engine.timings[engine.runner(variant)], seen=seen, draft=draft, target=target
    )
    return served(
        failure,
        asked=asked,
        delivery=delivery,
        source=found.source,
        defects=_defects(found, delivery.boundaries, target.num_layers),
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
        for refused in engine.no_setter:
            if architecture in refused.architectures and in_range(version, refused.first, refused.last):
                return refused
        rule = next(
            (r for r in engine.classes if architecture in r.architectures and in_range(version, r.first, r.last)), None
        )
        adapted = engine.adapt(rule, variant)
        if adapted is not None:
            return adapted
    named = quoted(target.architectures[0]).strip('"')
    return Unjudged(f"the tables have no rule for the target class {named} in {engine.title} {version}")


class IdReading(msgspec.Struct, frozen=True):
    """What an engine found where it looks for the id list.

    Attributes:
        key: where, as the file has it; None where nothing was taken.
        raw: what goes to the setter; None for the default.
        ids: the list as integers, where it is one.
        shift: added by the key's own rule.
    """

    key: str | None
    raw: Any
    ids: tuple[int, ...] | None
    shift: int = 0

    @property
    def default(self) -> bool:
        """Whether the default is taken."""
        return self.key is None


def read_ids(seen: DraftSeen, rule: KeyRule) -> IdReading:
    """Looks for the id list in the order in which the engine does."""
    for step in rule.steps:
        value = look_up(seen.config, step.key)
        if step.taken is Taken.SECTION:
            section = seen.config.get(step.key.partition(".")[0])
            ends = isinstance(section, dict) and bool(section)
        else:
            ends = bool(value) if step.taken is Taken.TRUTHY else value is not None
        if not ends:
            continue
        if rule.list_required and not (isinstance(value, list) and value):
            break
        if value is None:
            break
        key = seen.renamed.get(step.key, step.key)
        return IdReading(key, value, id_list(key, value).ids, step.shift)
    return IdReading(None, None, None)


def default_indices(num_layers: int) -> tuple[int, ...]:
    """Low, middle and high, as both engines have it: never shifted.

    SGLang: every class of the tables (models/llama.py:935 in 0.5.23). vLLM: model_executor/models/interfaces.py:1732.
    """
    return (2, num_layers // 2, num_layers - 3)


def ask(rule: ClassRule, reading: IdReading, num_layers: int) -> tuple[int | None, ...] | Failure:
    """The indices that the target class asks for; None for an entry that never matches a layer."""
    if reading.default:
        return default_indices(num_layers)
    entries = reading.raw
    if not isinstance(entries, list):
        if rule.malformed is Malformed.TYPE_ERROR or not isinstance(entries, str | dict):
            return _malformed(f"TypeError at load: {quoted(entries)} is no list")
        entries = list(entries)
    numbers = [_number(entry) for entry in entries]
    odd = [entry for entry, number in zip(entries, numbers, strict=True) if number is _NOT_A_NUMBER]
    unsortable = rule.malformed is Malformed.UNSORTABLE and not all(isinstance(e, str) for e in entries)
    if odd and (rule.malformed is Malformed.TYPE_ERROR or unsortable):
        return _malformed(f"TypeError at load: the entry {quoted(odd[0])} is no number")
    if rule.outside is Outside.FLAGS_BY_INDEX and any(isinstance(e, float) for e in entries):
        return _malformed("TypeError at load: 'float' object cannot be interpreted as an integer")
    shift = reading.shift + _setter_shift(rule.setter, numbers, num_layers)
    return tuple(n + shift if isinstance(n, int) else None for n in numbers)


class _NotANumber:
    """Marks an entry that no arithmetic takes."""


_NOT_A_NUMBER = _NotANumber()


def _number(entry: object) -> int | _NotANumber | None:
    """An entry as Python's membership test sees it: 2.0 is 2, True is 1, 2.5 is no layer."""
    if isinstance(entry, int):
        return int(entry)
    if isinstance(entry, float):
        return int(entry) if entry.is_integer() else None
    return _NOT_A_NUMBER


def _malformed(words: str) -> Failure:
    return Failure(FailureKind.MALFORMED, at_load=True, words=words)


def _setter_shift(setter: Setter, numbers: Sequence[object], num_layers: int) -> int:
    if setter is Setter.PLUS_ONE:
        return 1
    if setter is Setter.PLUS_ONE_IF_FIRST_IS_ONE:
        return 1 if numbers[:1] == [1] else 0
    if setter is Setter.AS_IS_IF_LAST_LAYER:
        greatest = max((n for n in numbers if isinstance(n, int)), default=None)
        return 0 if greatest == num_layers else 1
    return 0


class Delivery(msgspec.Struct, frozen=True):
    """What a forward hands over.

    Attributes:
        boundaries: in concatenation order; the embedding also where asking for it is an error.
        wrapped: asked indices that wrap around, with the boundary delivered for them.
        lost: the first index that is an error at load, if one is.
    """

    boundaries: tuple[BoundaryEntry, ...]
    wrapped: tuple[tuple[int, int], ...] = ()
    lost: int | None = None


def deliver(rule: ClassRule, asked: Sequence[int | None], num_layers: int) -> Delivery:
    """Which of the asked indices the forward delivers, and in which order."""
    last = num_layers if rule.reaches_last else num_layers - 1
    first = 1 if rule.embedding is AtEmbedding.LOOKUP_ERROR else EMBEDDING
    given: list[int] = []
    wrapped: list[tuple[int, int]] = []
    lost: int | None = None
    for index in asked:
        if index is None:
            continue
        if first <= index <= last:
            given.append(index)
        elif rule.outside is Outside.FLAGS_BY_INDEX and -num_layers <= index < 0:
            wrapped.append((index, num_layers + index))
            given.append(num_layers + index)
        elif rule.outside is not Outside.NEVER_MATCHES and lost is None:
            lost = index
    unique = list(dict.fromkeys(given))
    if rule.order is Order.ASCENDING:
        unique.sort()
    return Delivery(tuple(unique), tuple(wrapped), lost)


def judge_delivery(
    rule: ClassRule,
    asked: Sequence[int | None],
    delivery: Delivery,
    *,
    timing: Timing,
    seen: DraftSeen,
    draft: Draft,
    target: Target,
) -> Failure | None:
    """Whether the states that are delivered fit what the forward and the draft's fc expect, first failure first."""
    boundaries = delivery.boundaries
    if delivery.lost is not None:
        error = "IndexError" if rule.outside is Outside.FLAGS_BY_INDEX else "KeyError"
        return Failure(
            FailureKind.OUT_OF_RANGE, at_load=True, words=f"{error} at load: index {delivery.lost} is no layer"
        )
    built = slots_built(seen, seen.width)
    stored = draft.fc_slots(target.hidden_size)
    if stored is not None and stored != built:
        words = f"fc is built for {built} slots ({seen.width.source}) and the weights hold one for {stored}"
        return Failure(FailureKind.WIDTH, at_load=True, words=f"shape error at load: {words}")
    if EMBEDDING in boundaries and rule.embedding is AtEmbedding.TYPE_ERROR:
        return Failure(
            FailureKind.EMBEDDING,
            at_load=timing.embedding,
            words="TypeError in the target's forward at index 0: hidden_states + residual, residual is None",
            remark=timing.remark,
        )
    if not boundaries:
        return Failure(
            FailureKind.MISSING_STATE,
            at_load=timing.nothing,
            words="no state is captured at all, and the forward's result can't be unpacked",
            remark=timing.remark,
        )
    count = f"{len(boundaries)} of {len(asked)}"
    if len(boundaries) < len(asked) and rule.shortfall is not Shortfall.DRAFT_FC:
        error = "AssertionError" if rule.shortfall is Shortfall.PACKER_ASSERT else "RuntimeError"
        return Failure(
            FailureKind.MISSING_STATE,
            at_load=timing.shortfall,
            words=f"{error} in the target's forward: captured {count} aux hidden states",
            remark=timing.remark,
        )
    if len(boundaries) != built:
        dropped = len(boundaries) < len(asked)
        said = f"{count} states are captured" if dropped else f"{len(boundaries)} states are captured"
        return Failure(
            FailureKind.MISSING_STATE if dropped else FailureKind.WIDTH,
            at_load=timing.shortfall,
            words=f"shape error in the draft's fc: {said}, fc is built for {built} ({seen.width.source})",
            remark=timing.remark,
        )
    return None


def slots_built(seen: DraftSeen, rule: WidthRule) -> int:
    """For how many slots the draft's class builds fc."""
    for key in rule.keys:
        value = look_up(seen.config, key)
        if isinstance(value, bool):
            continue
        if isinstance(value, int):
            return value
        if isinstance(value, list | str) and value:
            return len(value)
    return rule.fallback


def _outcome(failure: Failure | None, *, unsupported: bool) -> Outcome:
    if unsupported:
        return Outcome.UNSUPPORTED
    if failure is None:
        return Outcome.SERVES
    return Outcome.FAILS_AT_LOAD if failure.at_load else Outcome.FAILS_AT_FIRST_REQUEST


def _defects(rule: ClassRule, boundaries: Sequence[BoundaryEntry], num_layers: int) -> tuple[Defect, ...]:
    shows = {
        DefectWhen.ALWAYS: True,
        DefectWhen.NOT_THE_DEFAULT: tuple(boundaries) != tuple(sorted(set(default_indices(num_layers)))),
        DefectWhen.EMBEDDING: EMBEDDING in boundaries,
    }
    return tuple(defect for defect in rule.defects if shows[defect.when])


def id_of(served: Served, slot: int) -> tuple[int, int] | None:
    """The id and the index behind a served slot; None for a default or where no id gave it."""
    if served.ids is None or not 0 <= slot < len(served.boundaries):
        return None
    wrapped = dict(served.wrapped)
    for number, index in zip(served.ids, served.asked, strict=False):
        if index is not None and wrapped.get(index, index) == served.boundaries[slot]:
            return number, index
    return None
