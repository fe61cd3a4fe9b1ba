"""What is asked of a running server's capture by itself, in the order of ``eagle-parity checks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks import capture_complete, draft_input, live_conditions, live_rule, rank_groups, rank_states

if TYPE_CHECKING:
    from eagle_parity.checks.check import Check
    from eagle_parity.checks.recording_subject import RecordingSubject

RECORDING_CHECKS: tuple[Check[RecordingSubject], ...] = (
    capture_complete.CHECK,
    rank_groups.CHECK,
    rank_states.CHECK,
    draft_input.CHECK,
    live_rule.CHECK,
    live_conditions.CHECK,
)
