"""The trainers' rules as rows, for ``engines`` and for the documentation."""

from __future__ import annotations

from typing import Any

from eagle_parity.trainers import TRAINERS

_EXAMPLE_LAYERS = 32
"""Defaults are functions of the number of layers; a table shows them for one."""


def trainer_rows() -> list[dict[str, Any]]:
    """Every rule with its versions and source: JSON values."""
    return [
        {
            "trainer": trainer.name,
            "versions": rule.span,
            "option": trainer.ways([rule]),
            "an_id_is": rule.meaning.value,
            "key": rule.key or "kept in no draft",
            "default": "none known"
            if rule.default is None
            else f"{list(rule.default(_EXAMPLE_LAYERS))} of {_EXAMPLE_LAYERS}",
            "order": rule.order.value,
            "last_state": _last_state(rule.last_state(_EXAMPLE_LAYERS)),
            "remark": rule.remark,
            "source": rule.source,
        }
        for trainer in TRAINERS
        for rule in trainer.rules
    ]


def _last_state(boundary: object) -> str:
    if boundary is None:
        return "none"
    return boundary if isinstance(boundary, str) else f"boundary {boundary} of {_EXAMPLE_LAYERS}"
