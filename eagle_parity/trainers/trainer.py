"""What a trainer is: what its layer ids mean by release, where they come from, and what its shards keep beside."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from eagle_parity.drafts import IdList, id_list, look_up
from eagle_parity.errors import UsageError
from eagle_parity.trained_wiring import TrainedWiring
from eagle_parity.versions import in_range, parse_version
from eagle_parity.wiring import Boundary, Wiring

if TYPE_CHECKING:
    from eagle_parity.drafts import Draft
    from eagle_parity.targets import Target


class IdMeaning(StrEnum):
    """What an id names."""

    LAYER_OUTPUT = "the output of that layer, counted from 0"
    BOUNDARY = "the boundary itself: the output of the layer before, 0 for the embedding"


class ListOrder(StrEnum):
    """In which order a trainer concatenates."""

    ASCENDING = "ascending"
    BACKEND = "as listed with its transformers backend, ascending with its SGLang backend"
    LISTED = "as listed"


class TrainerRule(msgspec.Struct, frozen=True, kw_only=True):
    """One trainer in a range of releases.

    Attributes:
        first, last: versions, inclusive.
        meaning: of an id.
        key: where the draft's config keeps the ids that it was trained with; None where it keeps none.
        default: the ids for a target of N layers that are taken where no list is given.
        order: of the concatenation.
        last_state: for a target of N layers, the boundary of the state that is kept for the loss.
        exactly: the number of ids that it insists on, None for any.
        smallest: the smallest id that it takes.
        source: where it was read.
        remark: what the draft's config can't say.
    """

    first: str
    last: str
    meaning: IdMeaning
    key: str | None
    default: Callable[[int], tuple[int, ...]]
    order: ListOrder
    last_state: Callable[[int], Boundary]
    source: str
    exactly: int | None = None
    smallest: int = 0
    remark: str = ""

    def boundary_of(self, number: int) -> int:
        """The boundary that an id names."""
        return number + 1 if self.meaning is IdMeaning.LAYER_OUTPUT else number


class Trainer(msgspec.Struct, frozen=True):
    """A trainer and its rules.

    Attributes:
        name: ``specforge``.
        title: ``SpecForge``.
        rules: by version range.
    """

    name: str
    title: str
    rules: tuple[TrainerRule, ...]

    @property
    def known(self) -> str:
        """The versions that the tables know, for messages."""
        return ", ".join(r.first if r.first == r.last else f"{r.first} to {r.last}" for r in self.rules)

    def rule(self, version: str) -> TrainerRule | None:
        """The rule of a release; None where none was read, and for what is no release.

        Raises:
            UsageError: it is no version.
        """
        if not parse_version(version).is_release:
            return None
        return next((r for r in self.rules if in_range(version, r.first, r.last)), None)


def trained_by(trainer: Trainer, version: str, draft: Draft, target: Target) -> TrainedWiring:
    """The wiring that a trainer gives a draft on a target.

    Raises:
        UsageError: the version isn't known, or the trainer would not have trained this draft with these ids.
    """
    rule = trainer.rule(version)
    if rule is None:
        raise UsageError(
            f"--trained-with {trainer.name}@{version}: not in the tables, which know {trainer.title} {trainer.known};"
            " state the wiring with --trained-boundaries"
        )
    title = f"{trainer.title} {version}"
    found = _ids_in(draft, rule.key, title)
    n = target.num_layers
    ids = found.ids if found is not None and found.ids else rule.default(n)
    _refuse(rule, ids, title, found)
    boundaries = [rule.boundary_of(number) for number in ids]
    if any(not 0 <= boundary <= n for boundary in boundaries):
        raise UsageError(
            f"--trained-with {trainer.name}@{version}: ids {list(ids)} name no layers of a target with {n} layers;"
            " was the draft trained for this target?"
        )
    if boundaries != sorted(boundaries):
        if rule.order is ListOrder.BACKEND:
            raise UsageError(
                f"--trained-with {trainer.name}@{version}: the order of {list(ids)} depends on the backend that ran the"
                " target (transformers: as listed, SGLang: ascending); state it with --trained-boundaries"
            )
        if rule.order is ListOrder.ASCENDING:
            boundaries.sort()
    taken = f"{found.key} {list(ids)}" if found is not None and found.ids else f"its default {list(ids)}"
    remark = f"; {rule.remark}" if rule.remark and (found is None or not found.ids) else ""
    return TrainedWiring(
        Wiring(tuple(boundaries), rule.last_state(n)),
        f"{title}: {taken}, an id is {rule.meaning.value} ({rule.source}){remark}",
        ids=ids,
        key=None if found is None or not found.ids else found.key,
    )


def _ids_in(draft: Draft, key: str | None, title: str) -> IdList | None:
    if key is None:
        return None
    raw = look_up(draft.config, key)
    if raw is None or raw == []:
        return None
    found = id_list(key, raw)
    if found.ids is None:
        raise UsageError(f"--trained-with: {title} keeps its ids in {key}, and there is {found.problem}")
    return found


def _refuse(rule: TrainerRule, ids: tuple[int, ...], title: str, found: IdList | None) -> None:
    where = found.key if found is not None and found.ids else "its default"
    way_out = "so this is not what the head was trained with; state that with --trained-boundaries or --shards"
    if rule.exactly is not None and len(ids) != rule.exactly:
        raise UsageError(f"--trained-with: {title} takes exactly {rule.exactly} ids, {where} has {len(ids)}, {way_out}")
    if any(number < rule.smallest for number in ids):
        raise UsageError(
            f"--trained-with: {title} refuses ids below {rule.smallest}, {where} is {list(ids)}, {way_out}"
        )
    if len(set(ids)) < len(ids):
        raise UsageError(f"--trained-with: {where} {list(ids)} names a layer twice, {way_out}")
