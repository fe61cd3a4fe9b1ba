"""Is each live slot the state that the head was trained on? One root cause gives one error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.comparison.evidence import (
    describe_label,
    format_labels,
    identity_evidence,
    rounded,
)
from eagle_parity.comparison.views import is_dead
from eagle_parity.findings import (
    LAYER_MISMATCH,
    MISSING_EMBEDDING,
    NORM_STAGE,
    SLOT_COUNT,
    SLOT_DUPLICATE,
    SLOT_ORDER,
    SPURIOUS_EMBEDDING,
    FindingKind,
)
from eagle_parity.results import Skip
from eagle_parity.wiring import POST_NORM, Label, WiringDifference, format_boundaries, offset_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.comparison.views import Comparison, SlotView
    from eagle_parity.findings import Finding

KINDS: dict[str, FindingKind] = {
    kind.name: kind
    for kind in (SPURIOUS_EMBEDDING, MISSING_EMBEDDING, SLOT_COUNT, SLOT_ORDER, SLOT_DUPLICATE, LAYER_MISMATCH)
}


def run(comparison: Comparison) -> Outcomes:
    """The one difference between the wirings."""
    if not comparison.same_shape:
        return
    if not comparison.enough:
        if comparison.measurements.sequences.pairs:
            yield Skip(
                check=CHECK.name,
                reason=f"{comparison.compared_rows} comparable tokens; a conclusion needs "
                f"{comparison.thresholds.min_tokens} (sinks and NaN rows left out)",
                blocks_verdict=True,
            )
        return
    short = [view for view in comparison.views if view.measurement.pair is None or not view.enough]
    short = [view for view in short if view.measurement.trained is not None and view.measurement.live is not None]
    short = [view for view in short if not is_dead(view.measurement)]  # told by what it is
    if short:
        counts = (
            f"{view.measurement.pair.rows if view.measurement.pair else 0} in slot {view.measurement.slot}"
            for view in short
        )
        yield Skip(
            check=CHECK.name,
            reason=f"too few comparable tokens: {', '.join(counts)}; a conclusion needs "
            f"{comparison.thresholds.min_tokens} (sinks and NaN rows left out)",
            blocks_verdict=True,
        )
    if comparison.difference is not None:
        yield _finding(comparison, comparison.difference)
    if comparison.measurements.reference_boundaries is None:
        yield Skip(
            check=CHECK.name,
            reason="no --reference: slots were compared with the trained states and the embedding only, so a layer "
            f"nearer than {max(view.limit for view in comparison.views):.3g} to the trained one would not show",
        )


def _finding(comparison: Comparison, difference: WiringDifference) -> Finding:
    expected, actual, views = comparison.expected, comparison.actual, comparison.views
    kind = KINDS[difference.name]
    if difference.name == "layer-mismatch" and _only_norm(difference, expected, actual):
        kind = NORM_STAGE
    slots = [
        {
            "slot": slot,
            "trained": expected[slot] if slot < len(expected) else None,
            "live": actual[slot] if slot < len(actual) else None,
            "offset": offset_between(expected[slot], actual[slot]) if slot < min(len(expected), len(actual)) else None,
            "distance": rounded(view.measurement.pair.distance) if view.measurement.pair else None,
            **identity_evidence(view),
        }
        for slot, view in enumerate(views)
        if slot in difference.slots or slot >= min(len(expected), len(actual)) or expected[slot] != actual[slot]
    ]
    first = difference.slots[0] if difference.slots else None
    evidence: dict[str, Any] = {
        "trained": list(expected),
        "live": list(actual),
        "slots": slots,
        "thresholds": comparison.thresholds.as_dict(),
    }
    if difference.name == "layer-mismatch" and first is not None:
        evidence |= {
            "trained_boundary": expected[first],
            "live_boundary": actual[first],
            "offset": difference.offset,
        }
    confidences = [c for view in views if (c := _confidence(view)) is not None]
    return kind.finding(
        _message(difference, expected, actual, comparison.measurements.num_layers),
        evidence=evidence,
        remedy=_remedy(kind, expected),
        confidence=min(confidences, default=0.9),
        slot=first if len(difference.slots) == 1 else None,
    )


def _only_norm(difference: WiringDifference, expected: Sequence[Label], actual: Sequence[Label | None]) -> bool:
    return all((expected[slot] == POST_NORM) != (actual[slot] == POST_NORM) for slot in difference.slots)


def _message(
    difference: WiringDifference, expected: Sequence[Label], actual: Sequence[Label | None], num_layers: int | None
) -> str:
    fed = f"The head was trained on {format_labels(expected)} and is fed {format_labels(actual)}"
    where = ", ".join(f"slot {slot}" for slot in difference.slots)
    if difference.name == "spurious-embedding":
        late = ": behind it the trained features arrive one slot late" if difference.late_slots else ""
        return f"{where} holds the token embedding (boundary 0), which the head was not trained on{late}. {fed}."
    if difference.name == "missing-embedding":
        return f"The head was trained with the token embedding in {where}, and isn't fed it. {fed}."
    if difference.name == "slot-count":
        return f"{len(expected)} slots in training, {len(actual)} live. {fed}."
    if difference.name == "slot-order":
        return f"The trained states in another order. {fed}."
    if difference.name == "slot-duplicate":
        return f"{where} repeats the state of another slot. {fed}."
    if difference.offset is not None and abs(difference.offset) > 0:
        layers = "one layer" if abs(difference.offset) == 1 else f"{abs(difference.offset)} layers"
        direction = "late" if difference.offset > 0 else "early"
        return f"{where}: {layers} {direction}. {fed}."
    if difference.late_slots or difference.early_slots:
        return f"The trained states arrive one slot {'late' if difference.late_slots else 'early'}. {fed}."
    pairs = "; ".join(
        f"slot {slot} holds {describe_label(actual[slot], num_layers)} "
        f"instead of {describe_label(expected[slot], num_layers)}"
        for slot in difference.slots
    )
    return f"{pairs}. {fed}."


def _remedy(kind: FindingKind, expected: Sequence[Label]) -> str:
    boundaries = [label for label in expected if isinstance(label, int)]
    if len(boundaries) != len(expected) or kind is NORM_STAGE:
        return kind.remedy
    listed = ",".join(str(boundary) for boundary in boundaries)
    return (
        f"Serve boundaries {format_boundaries(boundaries)}: `eagle-parity ids {listed} --target TARGET` prints the id "
        "list to write for each engine, and under which key."
    )


def _confidence(view: SlotView) -> float | None:
    for identity in (view.live, view.live_among_trained):
        if identity is not None and identity.settled:
            return identity.confidence
    return None


CHECK = Check(
    name="live-wiring",
    question="Is each live slot the state that the head was trained on?",
    emits=(*KINDS.values(), NORM_STAGE),
    needs="sequences with the same tokens; a reference to tell neighbouring layers apart",
    run=run,
)
