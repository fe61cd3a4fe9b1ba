"""``ids`` as a library: the id list to write for a wiring, for each engine, version and target class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.drafts import blank_draft
from eagle_parity.engines import find_engine
from eagle_parity.engines.engine import nearest_version
from eagle_parity.engines.remedies import ConfigChange, remedy
from eagle_parity.engines.serving import Unjudged, find_class, variants_of
from eagle_parity.findings import ENGINE_FAILURE, UNKNOWN_ENGINE_VERSION, Finding
from eagle_parity.quoting import quoted
from eagle_parity.results import FailOn, Input, Skip, WiringSummary, conclude
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eagle_parity.engines.engine import EngineName
    from eagle_parity.results import Result, ServedWiring
    from eagle_parity.targets import Target
    from eagle_parity.wiring import Boundary

COMMAND = "ids"


def ids_to_write(
    boundaries: Sequence[Boundary],
    target: Target,
    engines: Iterable[EngineName],
    *,
    assume_nearest: bool = False,
    fail_on: FailOn = FailOn.ERROR,
) -> Result:
    """The id list and its key for each engine, or why it can't serve the wiring.

    Args:
        boundaries: the wanted wiring, slot by slot.
        target: the target; its class decides how ids are read.
        engines: which ones to answer for.
        assume_nearest: answer for an unknown version by the nearest known one.
        fail_on: see ``conclude``.
    """
    draft = blank_draft(target.hidden_size)
    architecture = quoted(target.architectures[0]).strip('"') if target.architectures else ""
    outcomes: list[Finding | Skip] = []
    rows: list[dict[str, Any]] = []
    served: list[ServedWiring] = []
    for name in engines:
        engine = find_engine(name)
        version = name.version
        if version not in engine.versions:
            version = nearest_version(version, engine.versions)
            outcomes.append(
                UNKNOWN_ENGINE_VERSION.finding(
                    f"{engine.title} {name.version} is not in the tables; the nearest known version is {version}.",
                    evidence={"known": list(engine.versions), "nearest": version, "assumed": assume_nearest},
                    engine=str(name),
                )
            )
            if not assume_nearest:
                reason = f"{name}: no rules for this version; --assume-nearest answers for {version}"
                outcomes.append(Skip(check="engine-version", reason=reason, blocks_verdict=True))
                continue
        change = remedy(engine, draft, target, name=name, trained=boundaries, version=version)
        row: dict[str, Any] = {"engine": str(name), "target_class": architecture}
        if isinstance(change, ConfigChange):
            served.extend(s.summary() for s in change.served)
            variants = [",".join(f"{k}={v}" for k, v in s.variant.items()) for s in change.served if s.variant]
            row |= {"ids": list(change.ids), "key": change.key, "write": dict(change.values), "variants": variants}
            rows.append(row | {"source": change.served[0].source})
            continue
        rows.append(row | {"ids": None, "reason": change.reason})
        if not _no_rule(name, target, version):
            outcomes.append(
                ENGINE_FAILURE.finding(
                    f"No id list makes this engine serve {format_boundaries(boundaries)}: {change.reason}.",
                    evidence={"wanted": list(boundaries), "target_class": architecture},
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
        inputs=[
            Input(
                role="target",
                path=target.path,
                format=architecture or "no architecture",
                hidden_size=target.hidden_size,
            )
        ],
        wiring=WiringSummary(num_layers=target.num_layers, trained=list(boundaries), served=served),
        measurements={"ids": rows},
    )


def _no_rule(name: EngineName, target: Target, version: str) -> bool:
    """Whether the tables know nothing about this class, rather than that it can't serve."""
    engine = find_engine(name)
    return all(
        isinstance(find_class(engine, target, version, variant), Unjudged) for variant in variants_of(engine, name)
    )
