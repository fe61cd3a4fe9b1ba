"""A comparison as the checks see it: each slot with what it was found to be. No tensor is touched."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  a dataclass field
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from eagle_parity.comparison.identity import (
    Identity,
    identify,
    is_embedding,
    last_state_label,
    pair_limits,
    trained_labels,
)
from eagle_parity.comparison.rank_verdict import RankVerdict, judge_ranks, rows_apart
from eagle_parity.comparison.recording import ROWS
from eagle_parity.numerics.axis import STEP_RATIO
from eagle_parity.wiring import EMBEDDING, BoundaryEntry, Label, WiringDifference, compare_wirings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eagle_parity.comparison.measurements import Candidate, Measurements, SlotMeasurement
    from eagle_parity.comparison.thresholds import Thresholds

Side: TypeAlias = Literal["live", "trained"]

MIN_BAD_ROWS = 2
"""One bad row of a short sequence is an accident of rounding; two are a pattern."""
MOST_ROWS = 0.5
"""Ranks that differ in fewer rows diverge now and then: the other rows still say what their slot holds."""
BAD_SEQUENCE_SHARE = 0.5
"""Bad rows in half of the sequences are a fault of the tap, however few they are: the first row, the last ones."""


@dataclass(frozen=True)
class SlotView:
    """One slot position with what was made of it.

    Attributes:
        measurement: the numbers.
        trained, live: identities among a reference's boundaries; None without one.
        live_among_trained: the live state's identity among the trained side's states.
        enough: whether it was compared on enough rows to be judged; without, it is no state and agrees with nothing.
        agrees: whether the two sides' states are the same by distance.
        limit: the distance up to which they are.
        differs_from: the distance from which they are not, whatever the numerics.
        bad_rows: rows beyond the limit of a single row, although the median agrees; 0 where few enough, and not in
            most of the sequences.
        bad_row_limit: that limit.
    """

    measurement: SlotMeasurement
    trained: Identity | None
    live: Identity | None
    live_among_trained: Identity | None
    enough: bool
    agrees: bool
    limit: float
    differs_from: float
    bad_rows: int
    bad_row_limit: float

    @property
    def sides_to_explain(self) -> tuple[Side, ...]:
        """Whose state is taken for the changed one, in the order of preference.

        Either can be: twice the one is half of the other. But a state that was found to be a boundary as it stands
        needs no explanation, and must not get one: a norm of itself with fitted gains comes near to many a state.
        """
        if settled(self.trained) and settled(self.live):
            assert self.trained is not None  # noqa: S101  settled implies an identity
            assert self.live is not None  # noqa: S101  as above
            return ("live",) if self.live.candidate.distance >= self.trained.candidate.distance else ("trained",)
        if settled(self.trained):
            return ("live",)
        return ("trained",) if settled(self.live) else ("live", "trained")


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
        compared_rows: the most rows that any slot was compared on; rows of one context count once.
        by_ranks: slots whose ranks hold parts of a known state: what is wrong with them has its reason there.
        diverged: slots some of whose ranks differ by more than rounding without being parts of one state.
        torn: those of them whose ranks differ so in most of the rows: no difference of theirs has another reason.
    """

    measurements: Measurements
    thresholds: Thresholds
    views: tuple[SlotView, ...]
    expected: tuple[Label, ...]
    actual: tuple[Label | None, ...]
    difference: WiringDifference | None
    compared_rows: int
    by_ranks: Mapping[int, RankVerdict] = field(default_factory=dict)
    diverged: frozenset[int] = frozenset()
    torn: frozenset[int] = frozenset()

    @property
    def same_shape(self) -> bool:
        """Whether both sides have one hidden size."""
        return self.measurements.trained.hidden_size == self.measurements.live.hidden_size

    def settled_by_ranks(self, slot: int) -> bool:
        """Whether what a slot differs by has its reason in its ranks."""
        return slot in self.by_ranks or slot in self.torn

    @property
    def sharded_rows(self) -> bool:
        """Whether each rank holds a share of a sequence's rows: then the first one's lack the others."""
        return any(verdict.combination.how == ROWS for verdict in self.by_ranks.values())

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
            if view.enough
            and view.measurement.slot < len(self.actual)
            and self.actual[view.measurement.slot] is None
            and not self.settled_by_ranks(view.measurement.slot)
        )

    @property
    def drifted_views(self) -> tuple[SlotView, ...]:
        """Slots that hold the trained state by name, further off than noise."""
        return tuple(
            view
            for view in self.views
            if view.enough
            and not view.agrees
            and not self.settled_by_ranks(view.measurement.slot)
            and view.measurement.slot < min(len(self.expected), len(self.actual))
            and self.actual[view.measurement.slot] is not None
            and self.actual[view.measurement.slot] == self.expected[view.measurement.slot]
        )

    @property
    def displaced(self) -> bool:
        """Whether an embedding, a slot too many or too few, pushes the others out of place: then they need no error."""
        return self.difference is not None and (
            self.difference.name in {"spurious-embedding", "missing-embedding", "slot-count"}
            or self.difference.late_slots
            or self.difference.early_slots
        )


def look_at(measurements: Measurements, thresholds: Thresholds) -> Comparison:
    """The comparison that some measurements are, under some thresholds."""
    compared_rows = max((slot.pair.rows for slot in measurements.slots if slot.pair), default=0)
    compared_rows = min(compared_rows, measurements.sequences.contexts)
    views: tuple[SlotView, ...] = ()
    expected: list[Label] = []
    actual: list[Label | None] = []
    by_ranks: dict[int, RankVerdict] = {}
    if measurements.trained.hidden_size == measurements.live.hidden_size and measurements.slots:
        with_reference = measurements.reference_boundaries is not None
        trained = [
            identify(slot.trained, thresholds, family="boundaries")
            if slot.trained and (with_reference or measurements.embedding_rows)
            else None
            for slot in measurements.slots
        ]
        expected = trained_labels(measurements, trained, thresholds)
        last_state = last_state_label(measurements, expected, thresholds)

        def name(candidate: Candidate) -> Label:
            if candidate.trained_slot is not None:
                return expected[candidate.trained_slot]
            return last_state if candidate.boundary is None else candidate.boundary

        views = tuple(
            _view(
                slot,
                identity,
                identify(slot.live, thresholds, family="boundaries") if slot.live and with_reference else None,
                identify(slot.live, thresholds, family="trained", names=name) if slot.live else None,
                depth=_depth(expected, slot.slot, measurements.num_layers),
                thresholds=thresholds,
            )
            for slot, identity in zip(measurements.slots, trained, strict=True)
        )
        actual = [
            _live_label(view, expected, measurements.live.declared if not with_reference else (), name)
            for view in views[: measurements.live.slots]
        ]
        by_ranks = _by_ranks(measurements, thresholds, name)
        actual = [by_ranks[slot].label if slot in by_ranks else label for slot, label in enumerate(actual)]
    elif measurements.slots:
        by_ranks = _by_ranks(measurements, thresholds, _own_name)
    rank_slots = measurements.recording.rank_slots if measurements.recording is not None else []
    apart = {slot.slot: rows_apart(slot, thresholds) for slot in rank_slots if slot.slot not in by_ranks}
    return Comparison(
        measurements=measurements,
        thresholds=thresholds,
        views=views,
        expected=tuple(expected),
        actual=tuple(actual),
        difference=compare_wirings(expected, actual) if views else None,
        compared_rows=compared_rows,
        by_ranks=by_ranks,
        diverged=frozenset(slot for slot, share in apart.items() if share > 0),
        torn=frozenset(slot for slot, share in apart.items() if share >= MOST_ROWS),
    )


def _by_ranks(
    measurements: Measurements, thresholds: Thresholds, names: Callable[[Candidate], Label]
) -> dict[int, RankVerdict]:
    if measurements.recording is None:
        return {}
    alone = {slot.slot: slot.live for slot in measurements.slots}
    verdicts = (
        judge_ranks(slot, alone.get(slot.slot), thresholds, names) for slot in measurements.recording.rank_slots
    )
    return {verdict.slot: verdict for verdict in verdicts if verdict is not None}


def _own_name(candidate: Candidate) -> Label:
    return candidate.label if candidate.boundary is None else candidate.boundary


def _view(
    slot: SlotMeasurement,
    trained: Identity | None,
    live: Identity | None,
    among: Identity | None,
    *,
    depth: int | None,
    thresholds: Thresholds,
) -> SlotView:
    # A state that never changes is none: whatever it is compared with, its median says nothing.
    enough = slot.pair is not None and slot.pair.rows >= thresholds.min_tokens and not is_dead(slot)
    limit, bad_row_limit, agrees, bad_rows = 0.0, 0.0, False, 0
    if slot.pair is not None and slot.trained is not None and slot.live is not None:
        dtype = _coarser(slot.trained.dtype, slot.live.dtype)
        limit, bad_row_limit = pair_limits(slot.pair, dtype, depth, thresholds)
        agrees = enough and slot.pair.distance <= limit
        # Steps that lie wholly beyond the limit.
        beyond = sum(count for edge, count in slot.pair.errors if edge > bad_row_limit * STEP_RATIO)
        pair = slot.pair
        systematic = pair.bad_sequences >= max(MIN_BAD_ROWS, BAD_SEQUENCE_SHARE * pair.sequences)
        if beyond >= MIN_BAD_ROWS and (systematic or beyond >= thresholds.bad_row_share * pair.rows):
            bad_rows = beyond
    differs_from = max(limit, thresholds.identity_distance)
    return SlotView(slot, trained, live, among, enough, agrees, limit, differs_from, bad_rows, bad_row_limit)


def _depth(expected: Sequence[Label], slot: int, num_layers: int | None) -> int | None:
    """How deep a slot is: its boundary where that is known, the target's last where only that is, else unknown."""
    label = expected[slot] if slot < len(expected) else None
    return label if isinstance(label, int) else num_layers


def _live_label(
    view: SlotView, expected: Sequence[Label], declared: Sequence[BoundaryEntry], name: Callable[[Candidate], Label]
) -> Label | None:
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
        # Where the trained slot is the embedding too, and isn't this, something was done to one of them.
        return None if mine == EMBEDDING else EMBEDDING
    among = view.live_among_trained
    if among is not None and among.settled:
        if among.candidate.trained_slot == slot:
            return None  # near its own trained slot, but not near enough: a neighbouring layer would look like this
        return name(among.candidate)
    # What differs and is no known state can still be what it is said to be.
    said = declared[slot] if slot < len(declared) else None
    differs = view.enough and view.measurement.pair is not None and view.measurement.pair.distance > view.differs_from
    return said if differs and said != mine and isinstance(mine, int) else None


def is_dead(slot: SlotMeasurement) -> bool:
    """Whether both sides hold one and the same row for every token: there is nothing to compare."""
    return slot.pair is not None and slot.pair.spread_trained == 0 and slot.pair.spread_live == 0


def settled(identity: Identity | None) -> bool:
    """Whether there is an identity, near enough and with enough margin."""
    return identity is not None and identity.settled


def _coarser(first: str, second: str) -> str:
    order = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    return max(first, second, key=lambda dtype: order.index(dtype) if dtype in order else 0)
