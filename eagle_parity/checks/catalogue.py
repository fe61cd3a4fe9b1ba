"""All checks, for ``eagle-parity checks`` and the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.checks.of_comparisons import COMPARISON_CHECKS
from eagle_parity.checks.of_configs import CONFIG_CHECKS
from eagle_parity.checks.of_sets import SET_CHECKS

if TYPE_CHECKING:
    from eagle_parity.checks.check import Check

CHECKS: tuple[Check[Any], ...] = (*CONFIG_CHECKS, *COMPARISON_CHECKS, *SET_CHECKS)
