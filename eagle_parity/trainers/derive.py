"""The wiring that a trainer's rules give a draft on a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.drafts import Family, IdList, id_list, look_up
from eagle_parity.errors import NotTrainedSoError, UsageError
from eagle_parity.trained_wiring import TrainedWiring
from eagle_parity.trainers.trainer import IdMeaning, ListOrder
from eagle_parity.wiring import Wiring, format_boundaries

if TYPE_CHECKING:
    from eagle_parity.drafts import Draft
    from eagle_parity.targets import Target
    from eagle_parity.trainers.trainer import Trainer, TrainerRule


def trained_by(
    trainer: Trainer, version: str, draft: Draft, target: Target, *, way: str | None = None, ids: IdList | None = None
) -> TrainedWiring:
    """The wiring that a trainer gives a draft on a target.

    Args:
        trainer: its rules.
        version: a release or a commit.
        draft: for the ids that it keeps.
        target: for its layers.
        way: how the trainer was run; without it, every way has to give the same slots.
        ids: the ids that the trainer was run with, where the user states them.

    Raises:
        UsageError: the version isn't known, the ways disagree, or the trainer would not have trained this draft with
            these ids.
    """
    named = f"--trained-with {trainer.name}@{version}"
    if trainer.refusal:
        raise UsageError(f"--trained-with {trainer.name}: {trainer.refusal}")
    if draft.family not in {Family.EAGLE3, Family.UNKNOWN}:
        raise UsageError(
            f"{named}: the draft is of the family {draft.family.value}, and the rules of trainers here are EAGLE-3's;"
            " leave the option out"
        )
    rules = trainer.in_force(version, way)
    if not rules:
        raise UsageError(
            f"{named}: not in the tables, which know {trainer.title} {trainer.known};"
            " state the wiring with --trained-boundaries"
        )
    if len(rules) == 1:
        return _by_rule(trainer, rules[0], draft, target, version=version, stated=ids)
    found: dict[str, TrainedWiring | str] = {}
    for rule in rules:
        try:
            found[trainer.ways([rule])] = _by_rule(trainer, rule, draft, target, version=version, stated=ids)
        except UsageError as error:
            needs = f"needs ids=, {rule.remark}" if rule.default is None and ids is None else str(error)
            found[trainer.ways([rule])] = needs.removeprefix("--trained-with: ")
    wirings = [w for w in found.values() if isinstance(w, TrainedWiring)]
    if len(wirings) < len(found) or len({w.wiring.slots for w in wirings}) > 1:
        told = "; ".join(
            f"{words}: {format_boundaries(w.wiring.slots) if isinstance(w, TrainedWiring) else w}"
            for words, w in found.items()
        )
        raise UsageError(
            f"{named}: the wiring depends on how {trainer.title} was run: {told}. Name one, such as"
            f" {trainer.name}@{version}:{trainer.ways(rules[:1])}"
        )
    last_states = {w.wiring.last_state for w in wirings}
    first = wirings[0]
    agreed = Wiring(first.wiring.slots, last_states.pop() if len(last_states) == 1 else None)
    return TrainedWiring(agreed, first.source, first.ids, first.key, first.derived_from)


def _by_rule(
    trainer: Trainer, rule: TrainerRule, draft: Draft, target: Target, *, version: str, stated: IdList | None
) -> TrainedWiring:
    title = f"{trainer.title} {version}" + (f", {trainer.ways([rule])}" if trainer.option else "")
    n = target.num_layers
    found = stated or _ids_in(draft, rule.key, title)
    if found is None or not found.ids:
        if rule.default is None:
            raise UsageError(
                f"--trained-with: {title} has no default that is known: {rule.remark}; add the ids that it was run"
                " with, such as ids=1+29+57, or state --trained-boundaries"
            )
        ids, found = rule.default(n), None
    else:
        ids = found.ids
    meaning = rule.meaning
    if found is not None and stated is None and rule.exported_meaning is not None:
        meaning = rule.exported_meaning(draft) or meaning
    if rule.final_id_is_last_state and len(ids) > 1 and max(ids) == n:
        ids = tuple(number for number in ids if number != n)
    _refuse(rule, ids, title, found)
    boundaries = [number + 1 if meaning is IdMeaning.LAYER_OUTPUT else number for number in ids]
    if any(not 0 <= boundary <= n for boundary in boundaries):
        raise NotTrainedSoError(
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
    taken = f"its default {list(ids)}" if found is None else f"{found.key} {list(ids)}"
    remark = f"; {rule.remark}" if rule.remark and found is None else ""
    return TrainedWiring(
        Wiring(tuple(boundaries), rule.last_state(n)),
        f"{title}: {taken}, an id is {meaning.value} ({rule.source}){remark}",
        ids=ids,
        key=None if found is None or stated is not None else found.key,
        derived_from=None if stated is not None else rule.key,
    )


def _ids_in(draft: Draft, key: str | None, title: str) -> IdList | None:
    if key is None:
        return None
    raw = look_up(draft.config, key)
    if raw is None or raw == []:
        return None
    found = id_list(key, raw)
    if found.ids is None:
        raise NotTrainedSoError(f"--trained-with: {title} keeps its ids in {key}, and there is {found.problem}")
    return found


def _refuse(rule: TrainerRule, ids: tuple[int, ...], title: str, found: IdList | None) -> None:
    where = "its default" if found is None else found.key
    way_out = "so this is not what the head was trained with; state that with --trained-boundaries or --shards"
    if rule.exactly is not None and len(ids) != rule.exactly:
        raise NotTrainedSoError(
            f"--trained-with: {title} takes exactly {rule.exactly} ids, {where} has {len(ids)}, {way_out}"
        )
    if any(number < rule.smallest for number in ids):
        raise NotTrainedSoError(
            f"--trained-with: {title} refuses ids below {rule.smallest}, {where} is {list(ids)}, {way_out}"
        )
    if len(set(ids)) < len(ids):
        raise NotTrainedSoError(f"--trained-with: {where} {list(ids)} names a layer twice, {way_out}")
