"""What ``check-config`` asks, in the order of ``eagle-parity checks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks import (
    draft_family,
    engine_defects,
    engine_failure,
    engine_version,
    fc_width,
    hidden_size,
    layer_id_range,
    layer_ids_defaulted,
    layer_ids_duplicate,
    layer_ids_ignored,
    layer_ids_unsorted,
    served_wiring,
    target_support,
    trained_declaration,
    vocab_map,
    vocab_size,
)

if TYPE_CHECKING:
    from eagle_parity.checks.check import Check
    from eagle_parity.checks.config_subject import ConfigSubject

CONFIG_CHECKS: tuple[Check[ConfigSubject], ...] = (
    draft_family.CHECK,
    engine_version.CHECK,
    target_support.CHECK,
    trained_declaration.CHECK,
    served_wiring.CHECK,
    engine_failure.CHECK,
    layer_ids_ignored.CHECK,
    layer_ids_defaulted.CHECK,
    layer_ids_unsorted.CHECK,
    layer_ids_duplicate.CHECK,
    layer_id_range.CHECK,
    fc_width.CHECK,
    hidden_size.CHECK,
    vocab_size.CHECK,
    vocab_map.CHECK,
    engine_defects.CHECK,
)
