"""What is asked of a training set, in the order of ``eagle-parity checks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks import (
    set_drift,
    set_duplicates,
    set_files,
    set_finite,
    set_layouts,
    set_masks,
    set_rows,
    set_wiring,
    set_zeros,
)

if TYPE_CHECKING:
    from eagle_parity.checks.check import Check
    from eagle_parity.scan.measurements import SetMeasurements

SET_CHECKS: tuple[Check[SetMeasurements], ...] = (
    set_files.CHECK,
    set_layouts.CHECK,
    set_rows.CHECK,
    set_finite.CHECK,
    set_zeros.CHECK,
    set_masks.CHECK,
    set_duplicates.CHECK,
    set_drift.CHECK,
    set_wiring.CHECK,
)
