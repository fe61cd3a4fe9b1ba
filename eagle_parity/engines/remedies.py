"""The id list to write, found by trying lists through the same rules that serve them.

Nothing here inverts an engine's arithmetic: a candidate is a list of numbers near the wanted boundaries, and it is the
remedy if every variant of the engine serves exactly the wanted wiring with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.engines.class_rules import FINAL_NORM, AtEmbedding, Captures, ClassRule
from eagle_parity.engines.draft_rules import Placeholder
from eagle_parity.engines.ranges import in_force
from eagle_parity.engines.serving import Served, Unjudged, find_class, serve, variants_of
from eagle_parity.quoting import quoted
from eagle_parity.results import Outcome
from eagle_parity.wiring import POST_NORM, format_boundaries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eagle_parity.drafts import Draft
    from eagle_parity.engines.draft_rules import SpellingRule
    from eagle_parity.engines.engine import EngineName
    from eagle_parity.engines.rules import Engine
    from eagle_parity.targets import Target
    from eagle_parity.wiring import BoundaryEntry

NEARBY = (0, -1, 1, -2, 2)
"""How far a list may be from the boundaries that it means: conventions differ by one, two leaves room."""


FINAL_STATE_ID = -1
"""The one number that an engine (TensorRT-LLM) reads as the state after the final norm; others serve other states."""


class ConfigChange(msgspec.Struct, frozen=True):
    """What to write, into the draft's config unless it says otherwise.

    Attributes:
        values: by dotted key.
        key: the one under which the engine reads the list; None where there is no list.
        ids: the list.
        served: what each variant makes of the changed draft.
        file: what to write it into, where that isn't the draft's config.
    """

    values: Mapping[str, Any]
    key: str | None
    ids: tuple[int, ...]
    served: tuple[Served, ...]
    file: str = ""

    def __str__(self) -> str:
        written = " and ".join(f"{place(key)}: {quoted(value)}" for key, value in self.values.items())
        return f"{written} into {self.file}" if self.file else written


class NoChange(msgspec.Struct, frozen=True):
    """No list makes this engine serve the wiring: why not, and what else to do."""

    reason: str


def place(key: str) -> str:
    """Where a key stands, in words."""
    return key if "." in key else f"top-level {key}"


def with_list(
    rule: SpellingRule, draft: Draft, variant: Mapping[str, str], *, ids: Sequence[int], values: Mapping[str, Any]
) -> tuple[Draft, Mapping[str, str]]:
    """The draft and the variant once a list is written: into the draft's config, or into the launch's."""
    if rule.option:
        return draft, {**variant, rule.option: "+".join(str(number) for number in ids)}
    return draft.with_changes(values), variant


def _place_of(rule: SpellingRule, ids: Sequence[int]) -> str:
    if not rule.option:
        return rule.file
    return f"{rule.file}, and name the engine with {rule.option}={'+'.join(str(n) for n in ids)} from then on"


def remedy(
    engine: Engine,
    draft: Draft,
    target: Target,
    *,
    name: EngineName,
    trained: Sequence[BoundaryEntry],
    version: str,
    variant: Mapping[str, str] | None = None,
) -> ConfigChange | NoChange:
    """The change by which every variant of the engine serves the trained wiring.

    Args:
        engine: its tables.
        draft: the draft as it is.
        target: the target.
        name: the engine as named.
        trained: the wanted wiring.
        version: the version whose rules apply.
        variant: only this one, instead of every variant.
    """
    if any(boundary is None for boundary in trained):
        return NoChange("the trained wiring isn't known in every slot")
    variants = (variant,) if variant is not None else variants_of(engine, name, version)
    closest: Served | None = None
    written = in_force(engine.spellings, version)
    if written is None:
        return NoChange(f"the tables have no rule for how a list is written for {engine.title} {name.version}")
    for ids in _candidates(trained):
        for spelling in written.spellings:
            values = {key: _fill(value, ids) for key, value in spelling.items()}
            all_served: list[Served] = []
            for each in variants:
                changed, launch = with_list(written, draft, each, ids=ids, values=values)
                got = serve(engine, changed, target, name=name, variant=launch, version=version)
                if isinstance(got, Unjudged):
                    return NoChange(got.reason)
                if not got.list_serves or got.boundaries != tuple(trained):
                    if got.boundaries == tuple(trained) or got.outcome is Outcome.UNSUPPORTED:
                        closest = closest or got
                    break
                all_served.append(got)
            else:
                key = engine.id_key(version) if Placeholder.IDS in spelling.values() else None
                return ConfigChange(values, key, tuple(ids), tuple(all_served), _place_of(written, ids))
    return NoChange(
        _why_not(engine, draft, target, trained, name=name, version=version, closest=closest, variants=variants)
    )


def _candidates(trained: Sequence[BoundaryEntry]) -> Iterator[list[int]]:
    numbers = [b for b in trained if isinstance(b, int)]
    if len(numbers) < len(trained):
        yield []
        for distance in NEARBY:
            yield [b + distance if isinstance(b, int) else FINAL_STATE_ID for b in trained]
        return
    # A class that looks at the first id can be told apart by another id in front; ascending lists are tried first.
    for turn in range(max(len(numbers), 1)):
        turned = numbers[turn:] + numbers[:turn]
        for distance in NEARBY:
            yield [number + distance for number in turned]


def _fill(value: object, ids: Sequence[int]) -> object:
    if value is Placeholder.IDS:
        return list(ids)
    if value is Placeholder.COUNT:
        return len(ids)
    return value


def _why_not(
    engine: Engine,
    draft: Draft,
    target: Target,
    trained: Sequence[BoundaryEntry],
    *,
    name: EngineName,
    version: str,
    closest: Served | None,
    variants: Sequence[Mapping[str, str]],
) -> str:
    title = f"{engine.title} {name.version}"
    wanted = format_boundaries(trained)
    final_norm: AtEmbedding | None = None
    for each in variants:
        found = find_class(engine, target, version, each)
        if isinstance(found, ClassRule) and found.captures is not Captures.STREAM:
            return (
                f"{title} can't serve {wanted} on this target, whatever the list: it captures {found.captures.value};"
                " use another version or engine"
            )
        if isinstance(found, ClassRule) and found.embedding in FINAL_NORM:
            final_norm = found.embedding
    if closest is not None and closest.failure is not None:
        words = closest.failure.words + (f" ({closest.failure.remark})" if closest.failure.remark else "")
        return f"{title} can't serve {wanted} on this target: {words}; use another version or engine"
    if not all(isinstance(b, int) for b in trained) and final_norm is None:
        return (
            f"{title} can't serve {wanted}: no id gives the state after the final norm as one of several slots; retrain"
            " on states before the norm"
        )
    numbers = [b for b in trained if isinstance(b, int)]
    finals = [b for b in trained if b == POST_NORM]
    first = final_norm is AtEmbedding.FINAL_NORM_FIRST
    ordered: list[BoundaryEntry] = [*finals, *sorted(numbers)] if first else [*sorted(numbers), *finals]
    if list(trained) != ordered:
        in_order = remedy(engine, draft, target, name=name, trained=ordered, version=version, variant=variants[0])
        if isinstance(in_order, ConfigChange):
            place_of_final = f", the state after the final norm {'first' if first else 'last'}," if finals else ""
            return (
                f"{title} can't serve {wanted}: it concatenates in ascending order{place_of_final} whatever the list"
                f" says; permute the columns of the head's fc to {format_boundaries(ordered)} or retrain, then write"
                f" {in_order}"
            )
    if len(set(numbers)) < len(numbers):
        return f"{title} can't serve {wanted}: it captures a layer once, however often it is named; retrain"
    return f"{title} can't serve {wanted} on this target with any id list; use another version or engine, or retrain"
