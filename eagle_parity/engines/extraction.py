"""Which id list makes a target without a draft hand over given boundaries: a reference that the engine itself records.

Both engines run such a list through the target class's own setter, as they do with a draft's: the rules are the same.
What gives the list to the target, and which ids it takes, is each engine's ``extractions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eagle_parity.engines.class_rules import AtEmbedding, Captures, ClassRule, NoSetter
from eagle_parity.engines.delivery import deliver
from eagle_parity.engines.failures import Failure
from eagle_parity.engines.reading import IdReading, ask
from eagle_parity.engines.remedies import NEARBY
from eagle_parity.engines.serving import Unjudged, defects_of, find_class, variants_of
from eagle_parity.wiring import EMBEDDING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from eagle_parity.engines.engine import EngineName
    from eagle_parity.engines.rules import Engine
    from eagle_parity.targets import Target


class Extraction(msgspec.Struct, frozen=True):
    """An id list, and what a target without a draft hands over for it.

    Attributes:
        ids: the list, in the order in which it is to be written.
        boundaries: what it gives, in the order in which the engine hands it over.
        missing: what was wanted and no id of the list gives.
        defects: known faults of the engine that such a capture meets.
        source: where the rule was read.
    """

    ids: tuple[int, ...]
    boundaries: tuple[int, ...]
    missing: tuple[int, ...]
    defects: tuple[str, ...]
    source: str


def extract(
    engine: Engine, name: EngineName, version: str, target: Target, wanted: Sequence[int]
) -> Extraction | Unjudged:
    """The list that gives the most of the wanted boundaries and nothing else.

    Args:
        engine: its tables.
        name: as named, with its options.
        version: whose rules apply.
        target: the target.
        wanted: boundaries of it, in any order.

    Returns:
        The list; or why there is none.
    """
    way = engine.extraction(version)
    if way is None:
        return Unjudged(f"{engine.title} {version} captures for a draft alone")
    accepted = way.accepted(target.num_layers)
    found: list[Extraction] = []
    for variant in variants_of(engine, name, version):
        rule = find_class(engine, target, version, variant)
        if isinstance(rule, Unjudged):
            return rule
        if isinstance(rule, NoSetter):
            return Unjudged(f"{engine.title} {version}: {rule.reason} ({rule.source})")
        if rule.captures is not Captures.STREAM:
            return Unjudged(f"{engine.title} {version} captures {rule.captures.value} ({rule.source})")
        found.append(_best(rule, sorted(set(wanted)), target.num_layers, accepted))
    first, *others = found
    if any(other.ids != first.ids or other.boundaries != first.boundaries for other in others):
        options = ", ".join(sorted({option for variant in variants_of(engine, name, version) for option in variant}))
        return Unjudged(f"{engine.title} {version}: the list depends on {options}; name it with --engine")
    if not first.ids:
        return Unjudged(f"{engine.title} {version}: no id that its launch takes gives a wanted boundary")
    return first


def _best(rule: ClassRule, wanted: Sequence[int], num_layers: int, accepted: Container[int]) -> Extraction:
    lists: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for distance in NEARBY:
        ids = [boundary + distance for boundary in wanted if boundary + distance in accepted]
        # A class that looks at the first id can be told apart by another id in front.
        turns = (ids, [*ids[1:], *ids[:1]])
        lists.extend(_narrowed(rule, turned, frozenset(wanted), num_layers) for turned in turns)
    # The first of those that give the most: an ascending list at the least distance.
    ids_of, boundaries = max(lists, key=lambda entry: len(entry[1]))
    return Extraction(
        ids=ids_of,
        boundaries=boundaries,
        missing=tuple(boundary for boundary in wanted if boundary not in boundaries),
        defects=tuple(defect.summary for defect in defects_of(rule, boundaries, num_layers)),
        source=str(rule.source),
    )


def _narrowed(
    rule: ClassRule, ids: Sequence[int], wanted: frozenset[int], num_layers: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of the list that give a wanted boundary, and what they give: every id must, or the engine stops."""
    ids = tuple(ids)
    while ids:
        asked = ask(rule, IdReading("ids", list(ids), ids), num_layers)
        if isinstance(asked, Failure):
            break
        kept = tuple(
            number
            for number, index in zip(ids, asked, strict=True)
            if index in wanted and _delivers(rule, index, num_layers)
        )
        if kept == ids:
            delivered = deliver(rule, asked, num_layers).boundaries
            return ids, tuple(boundary for boundary in delivered if isinstance(boundary, int))
        # What the setter adds may depend on the ids that have just gone.
        ids = kept
    return (), ()


def _delivers(rule: ClassRule, index: int | None, num_layers: int) -> bool:
    if index == EMBEDDING and rule.embedding is not AtEmbedding.DELIVERS:
        return False
    delivery = deliver(rule, (index,), num_layers)
    return delivery.boundaries == (index,) and not delivery.wrapped and delivery.lost is None
