"""What is a live state that is no known state as it stands, and do all rows agree where the medians do?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.comparison.evidence import rounded, told_distance
from eagle_parity.comparison.views import is_dead
from eagle_parity.findings import (
    BY_NAME,
    MISSING_RESIDUAL,
    NORM_STAGE,
    PRECISION_DRIFT,
    SCALED,
    TOKEN_SHIFT,
    UNEXPLAINED_DIFFERENCE,
    Severity,
)
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.comparison.measurements import Fit
    from eagle_parity.comparison.thresholds import Thresholds
    from eagle_parity.comparison.views import Comparison, SlotView
    from eagle_parity.findings import Finding
    from eagle_parity.wiring import Label

EXPLAINS_DRIFT = 0.5
"""Of the right layer's drift an explanation must take away half: fitted numbers always take some."""
TOLD_FITS = 3
"""Failed explanations that a finding lists, nearest first."""
MIN_BAD_SINKS = 2
BAD_SINK_SHARE = 0.5
"""Sinks differ by next to nothing in a good capture: where they do in half of the sequences, it is no accident."""
SMALLEST_DISTANCE = 1e-6
"""An explanation that leaves nothing has no finite margin."""


def run(comparison: Comparison) -> Outcomes:
    """Explained and unexplained differences, rows that disagree, and drift of the right layer."""
    if not comparison.enough or comparison.displaced:
        return
    yield from _explained(comparison)
    for view in comparison.views:
        if is_dead(view.measurement):
            yield Skip(
                check=CHECK.name,
                reason=f"slot {view.measurement.slot}: both sides hold one row for every token, so there is nothing to "
                "compare; a dead buffer looks like this",
                blocks_verdict=True,
            )
    wrong = comparison.difference.slots if comparison.difference is not None else ()
    stray = [
        view
        for view in comparison.views
        if view.agrees and view.bad_rows and view.measurement.slot not in {*wrong, *comparison.diverged}
    ]
    if stray:
        yield _bad_rows(stray, comparison.thresholds)
    yield from _bad_sinks(comparison)


def _explained(comparison: Comparison) -> Outcomes:
    """One finding for slots that one explanation with the same numbers fits, one a slot otherwise."""
    explained: dict[tuple[str, str], list[tuple[SlotView, Fit]]] = {}
    unexplained: list[SlotView] = []
    thresholds = comparison.thresholds
    for view in comparison.drifted_views:
        fit = _best_fit(view, thresholds)
        pair = view.measurement.pair
        if fit is not None and pair is not None and fit.distance <= EXPLAINS_DRIFT * pair.distance:
            explained.setdefault((fit.name, _signature(fit)), []).append((view, fit))
        else:
            yield _drift(view)
    for view in comparison.open_views:
        pair = view.measurement.pair
        fit = _best_fit(view, thresholds)
        if fit is not None:
            explained.setdefault((fit.name, _signature(fit)), []).append((view, fit))
        elif pair is not None and _undecided(comparison, view):
            yield Skip(
                check=CHECK.name,
                reason=f"slot {view.measurement.slot}: its distance {pair.distance:.3f} is more than numerics "
                f"usually make ({view.limit:.3g}) and less than a wrong layer usually makes "
                f"({thresholds.identity_distance:g}): give a --reference, or a second live capture with --noise",
                blocks_verdict=True,
            )
        else:
            unexplained.append(view)
    if unexplained:
        yield _unexplained(unexplained, comparison)
    for group in explained.values():
        yield _fit_finding(group, comparison)


def _undecided(comparison: Comparison, view: SlotView) -> bool:
    pair = view.measurement.pair
    near = pair is not None and pair.distance <= comparison.thresholds.identity_distance
    tie = view.live is not None and view.live.tie
    return (near and comparison.measurements.reference_boundaries is None) or tie


def _best_fit(view: SlotView, thresholds: Thresholds) -> Fit | None:
    """The simplest explanation that brings the distance to the limit; fits come sorted by distance."""
    fitting = [
        fit
        for fit in view.measurement.fits
        if fit.distance <= (fit.limit or max(thresholds.parity_distance, view.limit))
    ]
    first = view.sides_to_explain[0]
    return min(fitting, key=lambda fit: (fit.side != first, fit.parameters, fit.distance), default=None)


def _signature(fit: Fit) -> str:
    """What two slots must share to have one root cause: a shift is one fault, whichever layers it hits."""
    values = {name: round(v, 2) if isinstance(v, float) else v for name, v in fit.values.items()}
    return str(values if fit.name in {"token-shift", "scaled"} else {})


def _same_state(comparison: Comparison, first: Fit, second: Fit) -> bool:
    """Whether two fits start from one state under two names: a trained slot is some boundary as well."""
    return first.name == second.name and _label(comparison, first) == _label(comparison, second)


def _label(comparison: Comparison, fit: Fit) -> Label:
    slot = fit.candidate.trained_slot
    if slot is not None and slot < len(comparison.expected):
        return comparison.expected[slot]
    return fit.candidate.label if fit.candidate.boundary is None else fit.candidate.boundary


def _ties(comparison: Comparison, view: SlotView, fit: Fit) -> list[Fit]:
    """Explanations from other states that fit nearly as well: told, for the numbers can't tell them apart."""
    limit = comparison.thresholds.margin * max(fit.distance, SMALLEST_DISTANCE)
    return [
        other
        for other in view.measurement.fits
        if other is not fit
        and other.side == fit.side
        and other.distance <= limit
        and other.parameters <= fit.parameters
        and not _same_state(comparison, fit, other)
    ]


def _fit_finding(group: list[tuple[SlotView, Fit]], comparison: Comparison) -> Finding:
    kind = BY_NAME[group[0][1].name]
    slots: list[dict[str, Any]] = []
    for view, fit in group:
        others = [other for other in view.measurement.fits if other.name != fit.name]
        pair = view.measurement.pair
        slots.append(
            {
                "slot": view.measurement.slot,
                "explanation": fit.formula,
                "distance_before": rounded(pair.distance) if pair else None,
                "distance_left": rounded(fit.distance),
                "parameters": fit.parameters,
                **fit.values,
                "side": fit.side,
                "runner_up": others[0].formula if others else None,
                "runner_up_distance": rounded(others[0].distance) if others else None,
                "ties": [other.formula for other in _ties(comparison, view, fit)],
            }
        )
    lines = "; ".join(
        f"slot {view.measurement.slot}: the {fit.side} state is {fit.formula}"
        + "".join(f", or {formula}, which fits as well" for formula in slot["ties"][:1])
        for (view, fit), slot in zip(group, slots, strict=True)
    )
    worst = min(_margin(slot["runner_up_distance"], slot["distance_left"]) for slot in slots)
    return kind.finding(
        f"{lines} (what is left: {max(fit.distance for _, fit in group):.3g}).",
        evidence={"slots": slots, "thresholds": comparison.thresholds.as_dict()},
        confidence=round(min(0.999, max(0.5, 1 - 1 / worst**2)), 3),
        slot=group[0][0].measurement.slot if len(group) == 1 else None,
    )


def _margin(runner_up: float | None, left: float) -> float:
    """How much further away the next kind of explanation is; at least one."""
    return max(1.0, (1.0 if runner_up is None else runner_up) / max(left, SMALLEST_DISTANCE))


def _unexplained(views: list[SlotView], comparison: Comparison) -> Finding:
    """One finding: what no explanation fits in several slots has one cause until something tells them apart."""
    slots = [_unexplained_slot(view) for view in views]
    near = "; ".join(
        f"slot {slot['slot']} differs by {told_distance(slot['distance'])} (limit {slot['limit']:.3g}{_nearest(slot)})"
        for slot in slots
    )
    tried = sorted({fit.name for view in views for fit in view.measurement.fits})
    # Judged by other thresholds than it was measured with, a state may need explaining that needed none then.
    untried = "" if all(view.measurement.tried for view in views) else " Explanations were not tried: compare again."
    without_reference = comparison.measurements.reference_boundaries is None
    return UNEXPLAINED_DIFFERENCE.finding(
        f"{near}. Ruled out: {', '.join(['any known state as it stands', *tried])}"
        + (", and nothing was there to name another layer by." if without_reference else ".")
        + untried,
        evidence={"slots": slots, "thresholds": comparison.thresholds.as_dict()},
        remedy="Another layer is the likely cause: capture all boundaries over the same tokens (`eagle-parity capture "
        "transformers --replay SHARDS`) and pass them as --reference, which names it."
        if without_reference
        else "",
        slot=views[0].measurement.slot if len(views) == 1 else None,
    )


def _nearest(slot: dict[str, Any]) -> str:
    if not slot["nearest"]:
        return ""
    return f", nearest known state {slot['nearest']} at {told_distance(slot['nearest_distance'])}"


def _unexplained_slot(view: SlotView) -> dict[str, Any]:
    pair = view.measurement.pair
    nearest = view.live or view.live_among_trained
    return {
        "slot": view.measurement.slot,
        "distance": rounded(pair.distance) if pair else 0.0,
        "limit": rounded(view.limit),
        "nearest": nearest.candidate.label if nearest else None,
        "nearest_distance": rounded(nearest.candidate.distance) if nearest else None,
        "tried": [
            {"explanation": fit.formula, "distance_left": rounded(fit.distance)}
            for fit in view.measurement.fits[:TOLD_FITS]
        ],
        "worst_sequence": list(pair.worst_sequence) if pair and pair.worst_sequence else None,
    }


def _bad_rows(views: list[SlotView], thresholds: Thresholds) -> Finding:
    """One finding: what makes rows stray hits all slots alike."""
    slots = []
    for view in views:
        pair = view.measurement.pair
        assert pair is not None  # noqa: S101  agrees implies a pair
        slots.append(
            {
                "slot": view.measurement.slot,
                "bad_rows": view.bad_rows,
                "rows": pair.rows,
                "share": rounded(view.bad_rows / pair.rows),
                "limit": rounded(view.bad_row_limit),
                "distance": rounded(pair.distance),
                "worst_sequence": list(pair.worst_sequence) if pair.worst_sequence else None,
            }
        )
    lines = "; ".join(
        f"slot {slot['slot']}: {slot['bad_rows']} of {slot['rows']} rows ({slot['share']:.0%}) are off by more than "
        f"{slot['limit']:.3g} although the median is {slot['distance']:.3g}"
        for slot in slots
    )
    return UNEXPLAINED_DIFFERENCE.finding(
        f"{lines}: some rows belong to something else",
        evidence={"slots": slots, "thresholds": thresholds.as_dict()},
        remedy="Capture the same sequences one at a time, with prefix caching off, and compare again.",
        slot=views[0].measurement.slot if len(views) == 1 else None,
    )


def _bad_sinks(comparison: Comparison) -> Outcomes:
    """Sink tokens are left out of the medians, so that they must be told apart."""
    slots = [
        {"slot": view.measurement.slot, "sinks": pair.sink_rows, "bad": pair.bad_sinks, "largest": pair.sink_distance}
        for view in comparison.views
        if (pair := view.measurement.pair) is not None
        and view.agrees
        and pair.bad_sinks >= max(MIN_BAD_SINKS, BAD_SINK_SHARE * pair.sequences)
    ]
    if slots:
        listed = "; ".join(f"slot {s['slot']}: {s['bad']} of {s['sinks']}" for s in slots)
        yield UNEXPLAINED_DIFFERENCE.finding(
            f"the sink tokens (usually the first of a sequence) differ where the others agree: {listed}",
            severity=Severity.WARNING,
            evidence={"slots": slots, "thresholds": comparison.thresholds.as_dict()},
            remedy="Look at the first rows: a token that one side puts in front, or a row that belongs elsewhere.",
        )


def _drift(view: SlotView) -> Finding:
    pair = view.measurement.pair
    assert pair is not None  # noqa: S101  drift implies a pair
    label = view.live.candidate.label if view.live else "the trained state"
    return PRECISION_DRIFT.finding(
        f"slot {view.measurement.slot} is {label} on both sides, but they differ by {pair.distance:.3g} "
        f"(noise limit {view.limit:.3g})",
        evidence={
            "distance": rounded(pair.distance),
            "limit": rounded(view.limit),
            "trained": view.trained.evidence() if view.trained else None,
            "live": view.live.evidence() if view.live else None,
        },
        slot=view.measurement.slot,
    )


CHECK = Check(
    name="live-states",
    question="What is a live state that is no known state as it stands, and do all of its rows agree?",
    emits=(TOKEN_SHIFT, SCALED, MISSING_RESIDUAL, NORM_STAGE, PRECISION_DRIFT, UNEXPLAINED_DIFFERENCE),
    needs="sequences with the same tokens",
    run=run,
)
