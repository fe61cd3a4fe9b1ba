"""What ``diff-captures`` asks, in the order of ``eagle-parity checks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks import (
    declared_wiring,
    live_states,
    live_wiring,
    numbers,
    sequence_pairs,
    unreadable_files,
)
from eagle_parity.checks.of_recordings import RECORDING_CHECKS
from eagle_parity.checks.recording_subject import of_comparisons

if TYPE_CHECKING:
    from eagle_parity.checks.check import Check
    from eagle_parity.comparison.views import Comparison

COMPARISON_CHECKS: tuple[Check[Comparison], ...] = (
    unreadable_files.CHECK,
    sequence_pairs.CHECK,
    numbers.CHECK,
    declared_wiring.CHECK,
    live_wiring.CHECK,
    live_states.CHECK,
    *of_comparisons(RECORDING_CHECKS),
)
