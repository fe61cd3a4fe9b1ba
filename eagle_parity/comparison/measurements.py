"""What was measured, as plain numbers: all that a verdict needs, and all that a result file keeps."""

from __future__ import annotations

from typing import Any

import msgspec

from eagle_parity.comparison.recording import Recording
from eagle_parity.comparison.states import (
    EMBEDDING_ROWS,
    LARGEST,
    LAST_STATE,
    Candidate,
    RepeatedTokens,
    StateMeasurement,
)
from eagle_parity.comparison.thresholds import Thresholds
from eagle_parity.errors import InputError
from eagle_parity.wiring import BoundaryEntry

__all__ = [
    "EMBEDDING_ROWS",
    "LARGEST",
    "LAST_STATE",
    "Beside",
    "Candidate",
    "Dimension",
    "Fit",
    "Measurements",
    "PairMeasurement",
    "RepeatedTokens",
    "SequenceTally",
    "Side",
    "SlotMeasurement",
    "StateMeasurement",
    "measurements_of",
]


class Dimension(msgspec.Struct, frozen=True, kw_only=True):
    """One hidden dimension, trained against live."""

    index: int
    mean_trained: float
    mean_live: float
    std_trained: float
    std_live: float
    max_difference: float
    rms_difference: float


class PairMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """Slot i of the trained side against slot i of the live side.

    Attributes:
        rows: compared rows, without sinks and non-finite ones.
        distance: median over tokens of the relative error.
        p90, p99, largest: further quantiles of it.
        errors: ``[upper edge, count]`` pairs: the distribution, so that other limits can be applied later.
        worst_sequence: the sequence with the greatest median, and that median.
        sink_rows: sink tokens, compared apart.
        sink_distance: their greatest relative error; None without sinks.
        mean_correlation: mean over dimensions of Pearson's r.
        worst_dimensions: those with the greatest rms difference against their standard deviation.
        noise: median distance between two captures of the live side, where a second was given.
        spread_trained, spread_live: the greatest standard deviation of a dimension over the rows; 0 for a dead state.
        bad_sequences: sequences with a row that is further off than ``bad_row_distance`` was when this was measured.
        bad_sinks: sink tokens that are.
        sequences: sequences that rows were compared in.
    """

    rows: int
    distance: float
    p90: float
    p99: float
    largest: float
    errors: list[tuple[float, int]]
    worst_sequence: tuple[str, float] | None
    sink_rows: int
    sink_distance: float | None
    mean_correlation: float
    worst_dimensions: list[Dimension]
    spread_trained: float
    spread_live: float
    bad_sequences: int
    bad_sinks: int
    sequences: int
    noise: float | None = None


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """An explanation that was tried on a slot.

    Attributes:
        name: the finding that it would be.
        candidate: what it starts from.
        formula: in words: ``2.00 times boundary 16``.
        distance: what is left of the difference, on rows that nothing was fitted on.
        limit: up to where it counts as explained, if that isn't the usual limit: differences of near-equal states
            carry more noise.
        side: whose state it explains.
        parameters: how many numbers were fitted or chosen.
        values: the fitted numbers.
    """

    name: str
    candidate: Candidate
    formula: str
    distance: float
    parameters: int
    values: dict[str, Any]
    limit: float | None = None
    side: str = "live"


class SlotMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """All about one slot position.

    Attributes:
        slot: its position.
        trained, live: each side's state; None where that side has no such slot.
        pair: the two against each other.
        fits: explanations that were tried, best first.
        tried: whether any were: a state that was a known one when it was measured needed none.
    """

    slot: int
    trained: StateMeasurement | None
    live: StateMeasurement | None
    pair: PairMeasurement | None
    fits: list[Fit] = []
    tried: bool = False


class SequenceTally(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the sequences.

    Attributes:
        paired: by equal token ids.
        by_prefix, by_suffix: aligned because one side's ids are the beginning or end of the other's.
        by_name: of one name and mostly equal ids.
        unpaired_trained, unpaired_live: left over.
        with_reference: pairs that the reference covers.
        truncated: a line for each sequence that lacks rows, at most a few; ``truncated_count`` counts all.
        mismatched: a line for each sequence of one name whose ids differ.
        partial: pairs of different names that only share their beginning, and are compared on that.
        padded: pairs in which one side goes on with padding.
        contexts: how many different prefixes the paired sequences have: rows of equal prefixes are one row.
    """

    paired: int = 0
    by_prefix: int = 0
    by_suffix: int = 0
    by_name: int = 0
    unpaired_trained: int = 0
    unpaired_live: int = 0
    with_reference: int = 0
    padded: int = 0
    partial: int = 0
    contexts: int = 0
    truncated: list[str] = []
    truncated_count: int = 0
    mismatched: list[str] = []
    mismatched_count: int = 0

    @property
    def pairs(self) -> int:
        """All pairs, however they were found."""
        return self.paired + self.by_prefix + self.by_suffix + self.by_name


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a side apart from its tensors.

    Attributes:
        role: trained or live.
        slots: how many.
        hidden_size: H.
        declared: the wiring it was said to have; entries None where nothing was said.
        declared_by: who said so.
        last_state: identity of the last state against its candidates.
        last_state_declared: the boundary it was said to be.
        last_state_note: how an undecided final state was settled.
        last_state_guessed: whether that was a guess.
        unreadable: files that couldn't be read: name and reason.
        incomplete: whether its manifest says that the recording was interrupted.
    """

    role: str
    slots: int
    hidden_size: int
    declared: list[BoundaryEntry]
    declared_by: str | None = None
    last_state: StateMeasurement | None = None
    last_state_declared: BoundaryEntry = None
    last_state_note: str | None = None
    last_state_guessed: bool = False
    unreadable: list[tuple[str, str]] = []
    incomplete: bool = False


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What was given beside the two sides, as far as it could be used.

    Attributes:
        noise: whether a second live capture was given.
        target: whether a target was given.
        unreadable: files of the reference or the second capture that couldn't be read: role, name and reason.
    """

    noise: bool = False
    target: bool = False
    unreadable: list[tuple[str, str, str]] = []


class Measurements(msgspec.Struct, frozen=True, kw_only=True):
    """All of one comparison."""

    thresholds: Thresholds
    num_layers: int | None
    tokens: int
    sequences: SequenceTally
    trained: Side
    live: Side
    slots: list[SlotMeasurement]
    reference_boundaries: list[BoundaryEntry] | None
    embedding_rows: bool
    seconds: float
    beside: Beside = Beside()
    recording: Recording | None = None


def measurements_of(content: dict[str, Any], *, path: object) -> Measurements:
    """Reads measurements back from a result's ``measurements``.

    Raises:
        InputError: they aren't those of ``diff-captures``.
    """
    try:
        return msgspec.convert(content, Measurements)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(
            path,
            f"no measurements of diff-captures in it ({error})",
            expected="a result of `eagle-parity diff-captures`",
        ) from error
