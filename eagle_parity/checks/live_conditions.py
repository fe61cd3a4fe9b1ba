"""Are a sequence's states the same in a batch, in chunks and behind a warm prefix?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.capture.format import GENERATE
from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.comparison.evidence import rounded, told_distance
from eagle_parity.comparison.thresholds import prior_floor
from eagle_parity.comparison.views import BAD_SEQUENCE_SHARE, MIN_BAD_ROWS
from eagle_parity.findings import PREFIX_DEPENDENT
from eagle_parity.numerics.axis import STEP_RATIO
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.checks.recording_subject import RecordingSubject
    from eagle_parity.comparison.recording import Condition, ConditionSlot
    from eagle_parity.comparison.thresholds import Thresholds
    from eagle_parity.findings import Finding


def run(subject: RecordingSubject) -> Outcomes:
    """One finding a condition: kernels choose their shapes by the batch, so that rounding is no dependence."""
    recording = subject.recording
    if not recording.conditions and not recording.skipped_conditions:
        yield Skip(check=CHECK.name, reason="nothing was recorded under other conditions (capture with --conditions)")
    for name, reason in recording.skipped_conditions.items():
        if name == GENERATE:
            continue  # told where the ranks are compared
        yield Skip(check=CHECK.name, reason=f"{name}: {reason}")
    for condition in recording.conditions:
        if condition.not_compared is not None:
            # The capture has it, by its own word: what can't be looked at is no pass.
            yield Skip(check=CHECK.name, reason=f"{condition.name}: {condition.not_compared}", blocks_verdict=True)
            continue
        if condition.unpaired or condition.unreadable:
            yield Skip(
                check=CHECK.name,
                reason=f"{condition.name}: {condition.unpaired} sequence(s) of it aren't those of the main capture, "
                f"{max(condition.unreadable_count, len(condition.unreadable))} can't be read",
            )
        dependent = [slot for slot in condition.slots if _depends(slot, subject)]
        if dependent:
            yield _finding(condition, dependent, subject)


def _limits(slot: ConditionSlot, subject: RecordingSubject) -> tuple[float, float]:
    """Up to where a slot's median, and a single row, is rounding."""
    declared = subject.recording.declared
    boundary = declared[slot.slot] if slot.slot < len(declared) else None
    thresholds: Thresholds = subject.thresholds
    floor = thresholds.floor_factor * prior_floor(slot.dtype, boundary if isinstance(boundary, int) else None)
    return max(thresholds.parity_distance, floor), max(thresholds.bad_row_distance, floor)


def _bad_rows(slot: ConditionSlot, limit: float) -> int:
    return sum(count for edge, count in slot.errors if edge > limit * STEP_RATIO)


def _depends(slot: ConditionSlot, subject: RecordingSubject) -> bool:
    limit, row_limit = _limits(slot, subject)
    bad = _bad_rows(slot, row_limit)
    often = slot.bad_sequences >= max(MIN_BAD_ROWS, BAD_SEQUENCE_SHARE * slot.sequences)
    return slot.distance > limit or (
        bad >= MIN_BAD_ROWS and (often or bad >= subject.thresholds.bad_row_share * slot.rows)
    )


def _finding(condition: Condition, dependent: list[ConditionSlot], subject: RecordingSubject) -> Finding:
    worst = max(dependent, key=lambda slot: _bad_rows(slot, _limits(slot, subject)[1]))
    bad = _bad_rows(worst, _limits(worst, subject)[1])
    where = ", ".join(
        f"{sequence} at {first}" if first == last else f"{sequence} at {first} to {last}"
        for sequence, first, last, _ in worst.places[:2]
    )
    return PREFIX_DEPENDENT.finding(
        f"{condition.name}: {bad} of {worst.rows} rows of slot {worst.slot} are not those of the same sequence "
        f"computed alone (the median differs by {told_distance(worst.distance)}, the greatest by "
        f"{told_distance(worst.largest)}"
        f"{f'; {where}' if where else ''})",
        evidence={
            "condition": condition.name,
            "slots": [
                {
                    "slot": slot.slot,
                    "rows": slot.rows,
                    "bad_rows": _bad_rows(slot, _limits(slot, subject)[1]),
                    "distance": rounded(slot.distance),
                    "largest": rounded(slot.largest),
                    "limit": rounded(_limits(slot, subject)[0]),
                    "row_limit": rounded(_limits(slot, subject)[1]),
                    "sequences": slot.sequences,
                    "bad_sequences": slot.bad_sequences,
                    "places": [
                        {"sequence": sequence, "first": first, "last": last, "rows": count}
                        for sequence, first, last, count in slot.places
                    ],
                }
                for slot in dependent
            ],
            "thresholds": subject.thresholds.as_dict(),
        },
        slot=worst.slot if len(dependent) == 1 else None,
    )


CHECK = Check(
    name="live-conditions",
    question="Are a sequence's states the same in a batch, in chunks and behind a warm prefix?",
    emits=(PREFIX_DEPENDENT,),
    needs="a capture of a running server with other conditions",
    run=run,
)
