"""The result as JSON: the document itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.results import encode_result

if TYPE_CHECKING:
    from eagle_parity.results import Result


def render_json(result: Result) -> str:
    """The result document, indented, with a final newline."""
    return encode_result(result).decode()
