"""What the checks of ``check-config`` look at: a draft, a target, the trained wiring, and each engine's reading."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.checks.root_cause import RootCause, find_root_cause
from eagle_parity.drafts import Family
from eagle_parity.engines.ranges import in_force
from eagle_parity.engines.remedies import ConfigChange, NoChange, remedy, with_list
from eagle_parity.engines.resolved import Resolved
from eagle_parity.engines.serving import Served, Unjudged, id_of, serve
from eagle_parity.quoting import evidence_value
from eagle_parity.wiring import describe_boundary, format_boundaries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eagle_parity.drafts import Draft, IdList
    from eagle_parity.engines.engine import EngineName
    from eagle_parity.engines.rules import Engine
    from eagle_parity.findings import FindingKind
    from eagle_parity.hidden_states import Layout
    from eagle_parity.targets import Target
    from eagle_parity.trained_wiring import TrainedWiring
    from eagle_parity.wiring import BoundaryEntry


class Evaluation(msgspec.Struct, frozen=True):
    """One named engine and what each of its variants makes of the draft.

    Attributes:
        resolved: the engine, and the version whose rules were applied.
        served: one entry a variant; empty where no version's rules were.
    """

    resolved: Resolved
    served: tuple[Served | Unjudged, ...]

    @property
    def engine(self) -> Engine:
        """Its tables."""
        return self.resolved.engine

    @property
    def name(self) -> EngineName:
        """As the user named it."""
        return self.resolved.name

    @property
    def version(self) -> str | None:
        """The version whose rules were applied; None where none were."""
        return self.resolved.version

    @property
    def judged(self) -> tuple[Served, ...]:
        """The variants that a rule covers."""
        return tuple(s for s in self.served if isinstance(s, Served))


class Variants(msgspec.Struct, frozen=True):
    """Variants of one engine that agree on what a finding is about.

    Attributes:
        evaluation: the engine.
        served: the variants that agree, at least one.
    """

    evaluation: Evaluation
    served: tuple[Served, ...]

    @property
    def first(self) -> Served:
        """Any of them: they agree."""
        return self.served[0]

    @property
    def label(self) -> str:
        """The engine as named, with the options of these variants where the others don't agree."""
        if len(self.served) == len(self.evaluation.judged):
            return str(self.evaluation.name)
        common = set.intersection(*(set(s.variant.items()) for s in self.served))
        options = ",".join(f"{k}={v}" for k, v in sorted(common))
        return f"{self.evaluation.name.label}:{options}" if options else self.evaluation.name.label

    @property
    def title(self) -> str:
        """For messages: ``vLLM 0.32.0 (runner v2)``."""
        if len(self.served) == len(self.evaluation.judged):
            return self.first.title
        return f"{self.first.title} ({' and '.join(variant_words(s) for s in self.served)})"

    @property
    def engine_and_version(self) -> str:
        """For messages that name it often: ``vLLM 0.32.0``."""
        return f"{self.evaluation.engine.title} {self.evaluation.name.version}"

    def each(self, words: Callable[[Served], str]) -> str:
        """What is said of every variant: once where they agree, else variant by variant."""
        said: dict[str, list[str]] = {}
        for served in self.served:
            said.setdefault(words(served), []).append(variant_words(served))
        if len(said) == 1:
            return next(iter(said))
        return "; ".join(f"with {' and '.join(variants)} {text}" for text, variants in said.items())


def variant_words(served: Served) -> str:
    """The options of a variant: ``runner v2``."""
    return ", ".join(f"{key} {value}" for key, value in sorted(served.variant.items())) or "the stock build"


@dataclass(frozen=True)
class ConfigSubject:
    """Everything that ``check-config`` has read and evaluated.

    Attributes:
        draft: the draft.
        target: the target.
        trained: the trained wiring; None where it isn't given.
        engines: in the order given.
        shards: the layout of ``--shards``, where given.
        declared: the wiring that the command line states, where shards were given beside it.
        not_trained_so: why the trainer that was named can't have trained this draft, where one was named and can't.
    """

    draft: Draft
    target: Target
    trained: TrainedWiring | None
    engines: tuple[Evaluation, ...]
    shards: Layout | None = None
    declared: TrainedWiring | None = None
    not_trained_so: str | None = None

    @property
    def trained_slots(self) -> tuple[BoundaryEntry, ...] | None:
        """The trained wiring's slots, where it is given and known in every slot."""
        return self.trained.wiring.slots if self.trained is not None and self.trained.wiring.known else None

    @cached_property
    def causes(self) -> Mapping[int, RootCause | None]:
        """The one root cause of each variant's fault, by ``id()`` of the variant."""
        return {
            id(served): find_root_cause(served, self.trained_slots, self.misplaced(evaluation, served))
            for evaluation in self.engines
            for served in evaluation.judged
        }

    @cached_property
    def changes(self) -> Mapping[str, ConfigChange | NoChange | None]:
        """By engine as named: the change by which every variant serves the trained wiring, where that is known."""
        trained = self.trained_slots
        return {
            str(evaluation.name): None
            if trained is None or evaluation.version is None
            else remedy(
                evaluation.engine,
                self.draft,
                self.target,
                name=evaluation.name,
                trained=trained,
                version=evaluation.version,
            )
            for evaluation in self.engines
        }

    def misplaced(self, evaluation: Evaluation, served: Served) -> bool:
        """Whether the engine would serve something else if it read the list that it ignores."""
        if not served.ignored:
            return False
        readable = next((entry for entry in served.ignored if entry.ids), None)
        if readable is None:
            return served.default
        version = evaluation.version or served.name.version
        rule = in_force(evaluation.engine.spellings, version)
        if rule is None:
            return False
        ids = list(readable.ids or ())
        moved, variant = with_list(rule, self.draft, served.variant, ids=ids, values={rule.key: ids})
        other = serve(
            evaluation.engine,
            moved,
            self.target,
            name=evaluation.name,
            variant=variant,
            version=version,
        )
        return isinstance(other, Unjudged) or (other.boundaries, other.outcome) != (served.boundaries, served.outcome)

    def by_cause(self, *kinds: FindingKind) -> Iterator[tuple[Variants, RootCause]]:
        """Variants whose root cause is of one of these kinds, merged where they serve, or fail to serve, the same.

        They may have come there by different keys, or fail at different times: ``Variants.each`` tells that.
        """
        for evaluation in self.engines:
            groups: dict[tuple[object, ...], list[Served]] = {}
            for served in evaluation.judged:
                cause = self.causes[id(served)]
                if cause is not None and cause.kind in kinds:
                    failure = served.failure.kind if served.failure else None
                    groups.setdefault((cause.kind, served.boundaries, served.asked, failure), []).append(served)
            for alike in groups.values():
                cause = self.causes[id(alike[0])]
                if cause is not None:
                    yield Variants(evaluation, tuple(alike)), cause

    def group(self, evaluation: Evaluation, fits: Callable[[Served], object]) -> Iterator[Variants]:
        """The variants that fit, merged where they read and serve the same."""
        groups: dict[tuple[object, ...], list[Served]] = {}
        for served in evaluation.judged:
            if fits(served):
                groups.setdefault(
                    (
                        served.key,
                        served.ids,
                        served.asked,
                        served.boundaries,
                        served.outcome,
                        served.failure,
                        tuple(entry.key for entry in served.ignored),
                    ),
                    [],
                ).append(served)
        for alike in groups.values():
            yield Variants(evaluation, tuple(alike))

    def evidence(self, group: Variants, cause: RootCause | None = None) -> dict[str, Any]:
        """The numbers behind a finding about some variants."""
        served = group.first
        said: dict[str, Any] = {
            "key": served.key,
            "ids": list(served.ids) if served.ids is not None else evidence_value(served.raw),
            "default": served.default,
            "asked": list(served.asked),
            "served": list(served.boundaries),
            "trained": None if self.trained is None else list(self.trained.wiring.slots),
            "outcome": served.outcome.value,
            "reason": served.failure.words if served.failure else None,
            "ignored": {entry.key: evidence_value(entry.raw) for entry in served.ignored},
            "variants": _readings(group.served),
            "source": served.source,
        }
        if cause is not None and cause.difference is not None:
            said["difference"] = cause.difference.name
            said["differing_slots"] = list(cause.difference.slots)
            said["offset"] = cause.difference.offset
            said["late_slots"] = cause.difference.late_slots
        change = self.change(group)
        if isinstance(change, ConfigChange):
            said["change"] = dict(change.values)
        return {key: value for key, value in said.items() if value not in (None, {}, [], False)} | {
            "default": served.default
        }

    def change(self, group: Variants) -> ConfigChange | NoChange | None:
        """The change by which every variant of the engine serves the trained wiring; None where that isn't known."""
        return self.changes[str(group.evaluation.name)]

    def advice(self, group: Variants) -> str:
        """The change as a sentence, or why there is none; "" where the trained wiring isn't known."""
        change = self.change(group)
        if isinstance(change, ConfigChange):
            return f"Write {change}.{self._from_then_on(change)}"
        if change is None:
            return ""
        # The engines' names keep their spelling.
        named = change.reason.startswith(group.evaluation.engine.title)
        return f"{change.reason if named else change.reason[:1].upper() + change.reason[1:]}."

    def _from_then_on(self, change: ConfigChange) -> str:
        """What to state in later runs, where the change edits the very list that the trained wiring follows from."""
        trained = self.trained
        if trained is None or trained.derived_from not in change.values:
            return ""
        if trained.ids is not None and tuple(change.ids) == trained.ids:
            return ""
        stated = ",".join(str(boundary) for boundary in trained.wiring.slots)
        return (
            f" From then on state --trained-boundaries {stated}: --trained-with would take the new list for the one"
            " that the head was trained with."
        )

    def reading(self, group: Variants) -> str:
        """How the served slots came about: ``id 30, read by ... as boundary 31 (...)``, slot by slot."""
        served, trained = group.first, self.trained_slots
        told: list[str] = []
        for slot, boundary in enumerate(served.boundaries):
            if trained is not None and slot < len(trained) and trained[slot] == boundary:
                continue
            words = describe_boundary(boundary, self.target.num_layers)
            found = id_of(served, slot)
            if found is not None:
                words = f"id {found[0]}, read by {group.engine_and_version} as {words}"
            told.append(f"slot {slot}: {words}")
        return "; ".join(told)

    @property
    def stated(self) -> tuple[IdList, ...]:
        """Every id list of the draft that is one of integers and not empty."""
        return tuple(entry for entry in self.draft.id_lists if entry.ids)

    @property
    def read_by_an_engine(self) -> bool:
        """Whether a rule of some engine was applied, so that what is wrong with a list shows in what it does."""
        return any(evaluation.judged for evaluation in self.engines)

    @property
    def is_eagle3(self) -> bool:
        """Whether EAGLE-3's rules apply at all."""
        return self.draft.family is Family.EAGLE3

    def trained_words(self) -> str:
        """The trained wiring and where it is known from."""
        if self.trained is None:
            return ""
        return f"the head was trained on {format_boundaries(self.trained.wiring.slots)}"


def _readings(served: tuple[Served, ...]) -> list[dict[str, Any]]:
    """The options of each variant; with what it read and what became of it where they differ in that."""
    said = [{"key": s.key, "default": s.default, "outcome": s.outcome.value} for s in served]
    alike = all(one == said[0] for one in said)
    return [{**s.variant, **({} if alike else one)} for s, one in zip(served, said, strict=True) if s.variant]
