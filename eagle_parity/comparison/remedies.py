"""The id lists that serve a measured wiring, put into the findings that need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eagle_parity.checks.live_wiring import KINDS
from eagle_parity.findings import Finding
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eagle_parity.results import Skip
    from eagle_parity.targets import Target
    from eagle_parity.wiring import BoundaryEntry


def with_id_lists(
    outcomes: Iterable[Finding | Skip], trained: list[BoundaryEntry] | None, target: Target | None
) -> list[Finding | Skip]:
    """The outcomes, with what to write for the newest version of each engine where the wiring is wrong.

    Without a target, or with slots whose boundary isn't known, they stay as they are: their remedy names the command.
    """
    outcomes = list(outcomes)
    if target is None or not trained or any(boundary is None for boundary in trained):
        return outcomes
    if not any(isinstance(outcome, Finding) and outcome.name in KINDS for outcome in outcomes):
        return outcomes
    from eagle_parity.engines import newest_engines
    from eagle_parity.ids_to_write import ids_to_write

    wanted = tuple(boundary for boundary in trained if boundary is not None)
    rows = ids_to_write(wanted, target, newest_engines()).measurements["ids"]
    lists = [
        f"{row['engine']}: " + " and ".join(f"{key}: {value}" for key, value in row["write"].items())
        if row["ids"] is not None
        else f"{row['engine']} can't serve it: {row['reason']}"
        for row in rows
    ]
    remedy = f"Serve boundaries {format_boundaries(wanted)}. {'; '.join(lists)}. Other versions: `eagle-parity ids`."
    return [
        msgspec.structs.replace(outcome, remedy=remedy, evidence={**outcome.evidence, "id_lists": rows})
        if isinstance(outcome, Finding) and outcome.name in KINDS
        else outcome
        for outcome in outcomes
    ]
