"""``ids`` as a library: the id list to write for a wiring, for each engine, version and target class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.checks.engine_version import unknown_version
from eagle_parity.drafts import BLANK_CLASS, Family, blank_draft
from eagle_parity.engines.remedies import ConfigChange, remedy
from eagle_parity.engines.resolved import resolve_engines
from eagle_parity.engines.serving import Unjudged, find_class, variants_of
from eagle_parity.errors import UsageError
from eagle_parity.findings import ENGINE_FAILURE, Finding
from eagle_parity.results import FailOn, Input, Skip, WiringSummary, conclude
from eagle_parity.targets import TARGET_FORMAT, refuse_beyond
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eagle_parity.drafts import Draft
    from eagle_parity.engines.engine import EngineName
    from eagle_parity.engines.rules import Engine
    from eagle_parity.results import Result, ServedWiring
    from eagle_parity.targets import Target
    from eagle_parity.wiring import Boundary

COMMAND = "ids"


def ids_to_write(
    boundaries: Sequence[Boundary],
    target: Target,
    engines: Iterable[EngineName],
    *,
    draft: Draft | None = None,
    assume_nearest: bool = False,
    fail_on: FailOn = FailOn.ERROR,
) -> Result:
    """The id list and its key for each engine, or why it can't serve the wiring.

    Args:
        boundaries: the wanted wiring, slot by slot.
        target: the target; its class decides how ids are read.
        engines: which ones to answer for; one that is named twice is answered for once.
        draft: the head to write the list for; without it, a blank one of the Llama class, and the result says so.
        assume_nearest: answer for an unknown version by the nearest known one.
        fail_on: see ``conclude``.

    Raises:
        UsageError: a boundary isn't the target's, or the draft is no EAGLE-3 head.
    """
    refuse_beyond(boundaries, target, option="BOUNDARIES")
    if draft is not None and draft.family is not Family.EAGLE3:
        raise UsageError(f"--draft: a draft of the family {draft.family.value}; these id lists are EAGLE-3's")
    head = draft or blank_draft(target.hidden_size)
    outcomes: list[Finding | Skip] = []
    rows: list[dict[str, Any]] = []
    served: list[ServedWiring] = []
    if draft is None:
        outcomes.append(Skip(check="draft-class", reason=f"{_BLANK}; --draft asks for a particular one"))
    for resolved in resolve_engines(engines, assume_nearest=assume_nearest):
        outcomes.extend(unknown_version(resolved))
        version = resolved.version
        if version is None:
            continue
        name = resolved.name
        change = remedy(resolved.engine, head, target, name=name, trained=boundaries, version=version)
        row: dict[str, Any] = {"engine": str(name), "target_class": target.architecture or ""}
        if isinstance(change, ConfigChange):
            served.extend(s.summary() for s in change.served)
            variants = [",".join(f"{k}={v}" for k, v in s.variant.items()) for s in change.served if s.variant]
            row |= {"ids": list(change.ids), "key": change.key, "write": dict(change.values), "variants": variants}
            rows.append(row | {"source": change.served[0].source})
            continue
        rows.append(row | {"ids": None, "reason": change.reason})
        if not _no_rule(resolved.engine, name, target, version):
            outcomes.append(
                ENGINE_FAILURE.finding(
                    f"No id list makes this engine serve {format_boundaries(boundaries)}: {change.reason}.",
                    evidence={"wanted": list(boundaries), "target_class": target.architecture or ""},
                    remedy="Use another engine or version, or train on a wiring that it can serve.",
                    engine=str(name),
                )
            )
        else:
            outcomes.append(Skip(check="target-support", reason=f"{name}: {change.reason}", blocks_verdict=True))
    return conclude(
        COMMAND,
        outcomes=outcomes,
        judged=bool(rows),
        fail_on=fail_on,
        inputs=_inputs(draft, target),
        wiring=WiringSummary(num_layers=target.num_layers, trained=list(boundaries), served=served),
        measurements={"ids": rows, "head": _BLANK if draft is None else head.path},
    )


_BLANK = f"no draft was given, so the lists are for a head of the class {BLANK_CLASS} that states nothing else"


def _inputs(draft: Draft | None, target: Target) -> list[Input]:
    inputs = [Input(role="target", path=target.path, format=TARGET_FORMAT, hidden_size=target.hidden_size)]
    if draft is not None:
        slots = draft.fc_slots(target.hidden_size)
        inputs.insert(
            0, Input(role="draft", path=draft.path, format=draft.format, slots=slots, hidden_size=draft.hidden_size)
        )
    return inputs


def _no_rule(engine: Engine, name: EngineName, target: Target, version: str) -> bool:
    """Whether the tables know nothing about this class, rather than that it can't serve."""
    return all(
        isinstance(find_class(engine, target, version, variant), Unjudged)
        for variant in variants_of(engine, name, version)
    )
