"""A comparison as the checks see it: each slot with what it was found to be. No tensor is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.comparison.identity import Identity, identify, is_embedding, pair_limits, trained_labels
from eagle_parity.wiring import EMBEDDING, Label, WiringDifference, compare_wirings

if TYPE_CHECKING:
    from eagle_parity.comparison.measurements import Measurements, SlotMeasurement
    from eagle_parity.comparison.thresholds import Thresholds

MIN_BAD_ROWS = 2
"""One bad row of a short sequence is an accident of rounding; two are a pattern."""


@dataclass(frozen=True)
class SlotView:
    """One slot position with what was made of it.

    Attributes:
        measurement: the numbers.
        trained, live: identities among a reference's boundaries; None without one.
        live_among_trained: the live state's identity among the trained side's states.
        agrees: whether the two sides' states are the same by distance.
        limit: the distance up to which they are.
        bad_rows: rows beyond the limit of a single row, although the median agrees; 0 where few enough.
        bad_row_limit: that limit.
    """

    measurement: SlotMeasurement
    trained: Identity | None
    live: Identity | None
    live_among_trained: Identity | None
    agrees: bool
    limit: float
    bad_rows: int
    bad_row_limit: float


@dataclass(frozen=True)
class Comparison:
    """What the checks of ``diff-captures`` judge.

    Attributes:
        measurements: the numbers.
        thresholds: what to judge them by.
        views: one a slot position; empty where the sides can't be compared at all.
        expected: the trained slots' labels.
        actual: the live slots' labels in the same words; None where a live slot is no known state.
        difference: how the labels differ, as one root cause.
        compared_rows: the most rows that any slot was compared on.
    """

    measurements: Measurements
    thresholds: Thresholds
    views: tuple[SlotView, ...]
    expected: tuple[Label, ...]
    actual: tuple[Label | None, ...]
    difference: WiringDifference | None
    compared_rows: int

    @property
    def same_shape(self) -> bool:
        """Whether both sides have one hidden size."""
        return self.measurements.trained.hidden_size == self.measurements.live.hidden_size

    @property
    def enough(self) -> bool:
        """Whether slots can be judged."""
        return self.same_shape and self.compared_rows >= self.thresholds.min_tokens

    @property
    def open_views(self) -> tuple[SlotView, ...]:
        """Slots of both sides whose live state is no known state as it stands."""
        return tuple(
            view
            for view in self.views
            if view.measurement.pair is not None
            and view.measurement.slot < len(self.actual)
            and self.actual[view.measurement.slot] is None
        )

    @property
    def displaced(self) -> bool:
        """Whether an embedding or a wrong number of slots pushes the others out of place: then they need no error."""
        return self.difference is not None and self.difference.name in {
            "spurious-embedding",
            "missing-embedding",
            "slot-count",
        }


def look_at(measurements: Measurements, thresholds: Thresholds) -> Comparison:
    """The comparison that some measurements are, under some thresholds."""
    compared_rows = max((slot.pair.rows for slot in measurements.slots if slot.pair), default=0)
    views: tuple[SlotView, ...] = ()
    expected: list[Label] = []
    actual: list[Label | None] = []
    if measurements.trained.hidden_size == measurements.live.hidden_size and measurements.slots:
        views = tuple(_view(slot, measurements, thresholds) for slot in measurements.slots)
        expected = trained_labels(measurements, [view.trained for view in views])
        actual = [_live_label(view, expected, measurements) for view in views[: measurements.live.slots]]
    return Comparison(
        measurements=measurements,
        thresholds=thresholds,
        views=views,
        expected=tuple(expected),
        actual=tuple(actual),
        difference=compare_wirings(expected, actual) if views else None,
        compared_rows=compared_rows,
    )


def _view(slot: SlotMeasurement, measurements: Measurements, thresholds: Thresholds) -> SlotView:
    with_reference = measurements.reference_boundaries is not None
    trained = identify(slot.trained, thresholds, family="boundaries") if slot.trained and with_reference else None
    live = identify(slot.live, thresholds, family="boundaries") if slot.live and with_reference else None
    among = identify(slot.live, thresholds, family="trained") if slot.live else None
    limit, bad_row_limit, agrees, bad_rows = 0.0, 0.0, False, 0
    if slot.pair is not None and slot.trained is not None and slot.live is not None:
        boundary = trained.candidate.boundary if trained and trained.settled else None
        dtype = _coarser(slot.trained.dtype, slot.live.dtype)
        limit, bad_row_limit = pair_limits(slot.pair, dtype, boundary, thresholds)
        agrees = slot.pair.distance <= limit
        beyond = sum(count for edge, count in slot.pair.errors if edge > bad_row_limit)
        if beyond >= max(MIN_BAD_ROWS, thresholds.bad_row_share * slot.pair.rows):
            bad_rows = beyond
    return SlotView(slot, trained, live, among, agrees, limit, bad_rows, bad_row_limit)


def _live_label(view: SlotView, expected: list[Label], measurements: Measurements) -> Label | None:
    """The live slot's label, in the same words as the trained ones; None where it is no known state."""
    slot = view.measurement.slot
    mine = expected[slot] if slot < len(expected) else None
    if view.live is not None and view.live.settled:
        if mine is not None and not settled(view.trained) and (view.agrees or isinstance(mine, str)):
            # No boundary is the trained state: it can still be this very state, else it is what needs explaining.
            return mine if view.agrees else None
        return view.live.candidate.boundary
    if view.agrees:
        return mine
    state = view.measurement.live
    if state is not None and is_embedding(state):
        return EMBEDDING
    among = view.live_among_trained
    if among is not None and among.settled:
        if among.candidate.trained_slot == slot:
            return None  # near its own trained slot, but not near enough: a neighbouring layer would look like this
        if among.candidate.trained_slot is not None:
            return expected[among.candidate.trained_slot]
        if among.candidate.boundary is not None:
            return among.candidate.boundary
        return measurements.trained.last_state_declared or among.candidate.label
    return None


def settled(identity: Identity | None) -> bool:
    """Whether there is an identity, near enough and with enough margin."""
    return identity is not None and identity.settled


def _coarser(first: str, second: str) -> str:
    order = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    return max(first, second, key=lambda dtype: order.index(dtype) if dtype in order else 0)
