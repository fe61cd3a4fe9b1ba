"""What an engine makes of a draft: the rules of one engine, version and variant followed from config key to fc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.drafts import Draft, IdList, id_list, look_up
from eagle_parity.engines.engine import PIPELINE_PARALLEL, EngineName
from eagle_parity.engines.rules import (
    SHIFTS,
    AtEmbedding,
    BufferRule,
    Captures,
    ClassRule,
    Defect,
    DefectWhen,
    DraftSeen,
    Engine,
    Failure,
    FailureKind,
    FcSkip,
    KeyRule,
    Malformed,
    Order,
    Outside,
    Setter,
    Shortfall,
    Taken,
    Timing,
    Unread,
    WidthRule,
    default_indices,
    in_force,
)
from eagle_parity.quoting import plain, quoted
from eagle_parity.results import Outcome, ServedWiring
from eagle_parity.targets import Target
from eagle_parity.versions import in_range
from eagle_parity.wiring import EMBEDDING, POST_NORM, BoundaryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.engines.rules import NoSetter


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


def ask(rule: ClassRule, reading: IdReading, num_layers: int) -> tuple[int | None, ...] | Failure:
    """The indices that the target class asks for; None for an entry that never matches a layer."""
    if reading.default:
        return default_indices(rule.default, num_layers)
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
    shifts = SHIFTS[setter]
    if setter is Setter.PLUS_ONE_IF_FIRST_IS_ONE:
        return max(shifts) if numbers[:1] == [1] else min(shifts)
    if setter is Setter.AS_IS_IF_LAST_LAYER:
        greatest = max((n for n in numbers if isinstance(n, int)), default=None)
        return min(shifts) if greatest == num_layers else max(shifts)
    (shift,) = shifts
    return shift


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
    """Which of the asked indices the forward delivers, and in which order.

    Where it hands over what is no boundary, the entry is None.
    """
    if rule.captures is Captures.NOTHING:
        return Delivery(())
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
    if rule.captures is Captures.BRANCH:
        return Delivery(tuple(index if index == EMBEDDING else None for index in unique), tuple(wrapped), lost)
    return Delivery(tuple(unique), tuple(wrapped), lost)


class Fit(msgspec.Struct, frozen=True):
    """What the states that a target hands over have to fit.

    Attributes:
        seen: the draft as the engine sees it.
        width: how its class sizes fc.
        draft: the draft, for its own widths.
        target: the target, for the width of a state.
        timing: when failures show.
    """

    seen: DraftSeen
    width: WidthRule
    draft: Draft
    target: Target
    timing: Timing

    @property
    def built(self) -> int:
        """For how many slots fc is built."""
        return slots_built(self.seen, self.width)

    @property
    def draft_width(self) -> int:
        """The width of the draft's embedding: the target's, where its config states none."""
        return self.draft.hidden_size or self.target.hidden_size

    def as_wide_as_the_draft(self, count: int) -> bool:
        """Whether so many states are together as wide as the draft's embedding."""
        return count * self.target.hidden_size == self.draft_width

    def past_fc(self, count: int) -> bool:
        """Whether the draft's class hands so many states on without calling fc."""
        if self.width.skips is FcSkip.WITHOUT_AUX:
            return self.seen.declines_aux
        return self.width.skips is FcSkip.EQUAL_WIDTH and self.as_wide_as_the_draft(count)

    def defects(self, count: int) -> tuple[Defect, ...]:
        """The defect that shows where aux states go past fc and nothing notices."""
        if self.width.skipped is None or not self.past_fc(count) or not self.as_wide_as_the_draft(count):
            return ()
        return (self.width.skipped,)


def judge_delivery(rule: ClassRule, asked: Sequence[int | None], delivery: Delivery, fit: Fit) -> Failure | None:
    """Whether the states that are delivered fit what the forward and the draft's fc expect, first failure first."""
    boundaries, timing = delivery.boundaries, fit.timing
    if delivery.lost is not None:
        error = "IndexError" if rule.outside is Outside.FLAGS_BY_INDEX else "KeyError"
        return Failure(
            FailureKind.OUT_OF_RANGE, at_load=True, words=f"{error} at load: index {delivery.lost} is no layer"
        )
    stored = fit.draft.fc_slots(fit.target.hidden_size)
    if stored is not None and stored != fit.built:
        words = f"fc is built for {fit.built} slots ({fit.width.source}) and the weights hold one for {stored}"
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
    if len(boundaries) < len(asked) and rule.shortfall is not Shortfall.DRAFT_FC:
        error = "AssertionError" if rule.shortfall is Shortfall.PACKER_ASSERT else "RuntimeError"
        count = f"{len(boundaries)} of {len(asked)}"
        return Failure(
            FailureKind.MISSING_STATE,
            at_load=timing.shortfall,
            words=f"{error} in the target's forward: captured {count} aux hidden states",
            remark=timing.remark,
        )
    return judge_width(fit, len(boundaries), len(asked))


def judge_width(fit: Fit, count: int, asked: int) -> Failure | None:
    """Whether ``count`` states of ``asked`` fit the draft's fc, or its layer where they go past fc."""
    if fit.past_fc(count):
        if not fit.as_wide_as_the_draft(count):
            return Failure(
                FailureKind.DRAFT,
                at_load=fit.timing.shortfall,
                words=f"use_aux_hidden_state is false, so the draft hands on what it gets without fc ({count} states"
                f" of {fit.target.hidden_size}), which doesn't fit a layer of {fit.draft_width}"
                f" ({fit.width.source})",
                remark=fit.timing.remark,
            )
    elif count != fit.built:
        given = f"{count} of {asked} states are captured" if count < asked else f"{count} states are captured"
        if not fit.seen.uses_aux:
            given = "the target hands over its final state alone (use_aux_hidden_state is false)"
        return Failure(
            FailureKind.MISSING_STATE if count < asked else FailureKind.WIDTH,
            at_load=fit.timing.shortfall,
            words=f"shape error in the draft's fc: {given}, fc is built for {fit.built} ({fit.width.source})",
            remark=fit.timing.remark,
        )
    buffer = fit.seen.buffer
    if buffer is None or not fit.seen.uses_aux:
        return None
    held = slots_built(fit.seen, buffer)
    if held == fit.built or fit.past_fc(held):
        return None
    return Failure(
        FailureKind.WIDTH,
        at_load=True,
        words=f"shape error while the draft-extend CUDA graphs are captured: their buffer holds {held} slots"
        f" ({buffer.source}), fc is built for {fit.built}",
        remark="which attention backends have these graphs depends on the release; with --disable-cuda-graph there are"
        " none, and it serves",
    )


def slots_built(seen: DraftSeen, rule: WidthRule | BufferRule) -> int:
    """How many slots a rule makes of the draft's config."""
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
