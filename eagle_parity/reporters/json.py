"""The result as JSON: the document itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.reporters.escaping import json_safe
from eagle_parity.results import encode_result

if TYPE_CHECKING:
    from eagle_parity.results import Result


def render_json(result: Result) -> str:
    """The result document, indented, with a final newline; characters that could fool a terminal are escaped."""
    return json_safe(encode_result(result).decode())
