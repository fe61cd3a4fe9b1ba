"""The verdict on a comparison: plain numbers in, findings out.

No tensor is touched, so that ``report`` judges a saved result again with other thresholds. One root cause gives one
error: ``Comparison`` says what displaces what, and each check leaves to the others what is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eagle_parity.checks.of_comparisons import COMPARISON_CHECKS
from eagle_parity.comparison.evidence import identity_evidence, label_boundary, rounded
from eagle_parity.comparison.identity import identify, trained_label
from eagle_parity.comparison.measurements import measurements_of
from eagle_parity.comparison.remedies import with_id_lists
from eagle_parity.comparison.views import Comparison, look_at, settled
from eagle_parity.results import LastStates, Result, Skip, WiringSummary, conclude

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.comparison.measurements import Measurements, StateMeasurement
    from eagle_parity.comparison.thresholds import Thresholds
    from eagle_parity.findings import Finding
    from eagle_parity.wiring import BoundaryEntry


@dataclass(frozen=True)
class Judgement:
    """What was concluded.

    Attributes:
        outcomes: findings and skips.
        wiring: the trained and live wirings as far as they are known.
        judged: whether any slot was compared.
        comparison: what the checks looked at.
    """

    outcomes: list[Finding | Skip]
    wiring: WiringSummary
    judged: bool
    comparison: Comparison


def judge(measurements: Measurements, thresholds: Thresholds) -> Judgement:
    """Draws the findings from the measurements."""
    comparison = look_at(measurements, thresholds)
    outcomes: list[Finding | Skip] = []
    for check in COMPARISON_CHECKS:
        outcomes.extend(check.run(comparison))
    # Another hidden size is a judgement; too few tokens are none.
    judged = comparison.enough or not comparison.same_shape
    return Judgement(outcomes, _wiring(comparison), judged=judged, comparison=comparison)


def rejudge(result: Result, assignments: Sequence[str]) -> Result:
    """A saved result judged by other thresholds: ``["parity_distance=0.1"]``.

    Raises:
        UsageError: an assignment names no threshold or no positive number.
        InputError: the result holds no measurements of a comparison.
    """
    measurements = measurements_of(result.measurements, path="the result")
    thresholds = measurements.thresholds.replace(list(assignments))
    judgement = judge(measurements, thresholds)
    return conclude(
        result.command,
        outcomes=with_id_lists(judgement.outcomes, judgement.wiring.trained, _saved_lists(result)),
        judged=judgement.judged,
        fail_on=result.fail_on,
        inputs=result.inputs,
        wiring=judgement.wiring,
        measurements={
            **result.measurements,
            "thresholds": thresholds.as_dict(),
            "identified": identified(judgement.comparison),
        },
    )


def _saved_lists(result: Result) -> list[dict[str, Any]]:
    lists = result.measurements.get("id_lists")
    return [row for row in lists if isinstance(row, dict) and "write" in row] if isinstance(lists, list) else []


def identified(comparison: Comparison) -> list[dict[str, Any]]:
    """What each slot was found to be, for the reports.

    ``trained`` and ``live`` are labels, None where a slot is no known state; ``agrees`` is the direct comparison of the
    two; what the live slot was named by stands in ``by``.
    """
    rows = []
    for view in comparison.views:
        slot = view.measurement.slot
        rows.append(
            {
                "slot": slot,
                "trained": comparison.expected[slot] if slot < len(comparison.expected) else None,
                "live": comparison.actual[slot] if slot < len(comparison.actual) else None,
                "agrees": view.agrees,
                "limit": rounded(view.limit),
                "bad_rows": view.bad_rows,
                "by": identity_evidence(view),
            }
        )
    return rows


def _wiring(comparison: Comparison) -> WiringSummary:
    """Both wirings: the live one is measured or unknown, the trained one measured or as declared."""
    trained, live = comparison.measurements.trained, comparison.measurements.live
    if not comparison.enough:
        return WiringSummary(
            num_layers=comparison.measurements.num_layers,
            trained=list(trained.declared),
            trained_from=trained.declared_by,
            live=[None] * live.slots,
            last_state=LastStates(trained=trained.last_state_declared, live=live.last_state_declared),
        )
    names = {trained_label(slot) for slot in range(len(comparison.expected))}
    live_boundaries: list[BoundaryEntry] = []
    for slot, label in enumerate(comparison.actual):
        identity = comparison.views[slot].live
        if identity is not None and settled(identity):
            live_boundaries.append(identity.candidate.boundary)
        else:
            live_boundaries.append(None if label in names else label_boundary(label))
    return WiringSummary(
        num_layers=comparison.measurements.num_layers,
        trained=[None if label in names else label_boundary(label) for label in comparison.expected],
        live=live_boundaries,
        trained_from="measured" if all(settled(view.trained) for view in comparison.views) else trained.declared_by,
        live_from="measured" if any(settled(view.live) for view in comparison.views) else "compared with trained",
        last_state=LastStates(
            trained=_last(trained.last_state, trained.last_state_declared, comparison.thresholds),
            live=_last(live.last_state, live.last_state_declared, comparison.thresholds),
        ),
    )


def _last(state: StateMeasurement | None, declared: BoundaryEntry, thresholds: Thresholds) -> BoundaryEntry:
    identity = identify(state, thresholds, family="boundaries") if state is not None else None
    return identity.candidate.boundary if identity is not None and identity.settled else declared
