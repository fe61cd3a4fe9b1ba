"""The id lists that serve a measured wiring, put into the findings that need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.checks.live_wiring import KINDS
from eagle_parity.findings import Finding
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eagle_parity.results import Skip
    from eagle_parity.targets import Target
    from eagle_parity.wiring import BoundaryEntry


def id_lists(trained: Sequence[BoundaryEntry] | None, target: Target | None) -> list[dict[str, Any]]:
    """What to write for the newest known version of each engine, as ``ids`` says it.

    Empty without a target, or with slots whose boundary isn't known: ids are read by the target's class.
    """
    if target is None or not trained or any(boundary is None for boundary in trained):
        return []
    from eagle_parity.engines import newest_engines
    from eagle_parity.ids_to_write import ids_to_write

    wanted = tuple(boundary for boundary in trained if boundary is not None)
    rows: list[dict[str, Any]] = ids_to_write(wanted, target, newest_engines()).measurements["ids"]
    return rows


def with_id_lists(
    outcomes: Iterable[Finding | Skip], trained: Sequence[BoundaryEntry] | None, lists: Sequence[dict[str, Any]]
) -> list[Finding | Skip]:
    """The outcomes, with the lists in the remedy of a wrong wiring; without lists the remedy names the command."""
    if not lists or not trained:
        return list(outcomes)
    said = [
        f"{row['engine']}: " + " and ".join(f"{key}: {value}" for key, value in row["write"].items())
        if row.get("ids") is not None
        else f"{row['engine']} can't serve it: {row.get('reason')}"
        for row in lists
    ]
    remedy = f"Serve boundaries {format_boundaries(trained)}. {'; '.join(said)}. Other versions: `eagle-parity ids`."
    return [
        msgspec.structs.replace(outcome, remedy=remedy)
        if isinstance(outcome, Finding) and outcome.name in KINDS
        else outcome
        for outcome in outcomes
    ]
