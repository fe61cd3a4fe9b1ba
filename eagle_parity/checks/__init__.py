"""The checks, in the order of ``eagle-parity checks``: adding one is one file and one line in ``CHECKS``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eagle_parity.checks.check import Check

CHECKS: tuple[Check[Any], ...] = ()
