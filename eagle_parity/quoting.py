"""Putting what a file said into messages and evidence: bounded, printable, and never larger than JSON can hold."""

from __future__ import annotations

import math
from typing import Any

MAX_TEXT = 80
MAX_ERROR_TEXT = 300
"""Libraries put the useful part of a message behind a long path."""
MAX_ENTRIES = 16
MAX_DEPTH = 3
MAX_INTEGER = 2**53
"""Beyond it JSON readers lose digits, and no config means such a number."""


def quoted(value: object) -> str:
    """A value as it would stand in JSON, cut to one short line."""
    if isinstance(value, str):
        return '"' + _text(value) + '"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        inside = ", ".join(quoted(_outline(v)) for v in value[:MAX_ENTRIES])
        return f"[{inside}, ... {len(value):,} entries]" if len(value) > MAX_ENTRIES else f"[{inside}]"
    if isinstance(value, dict):
        return f"{{... {len(value):,} keys}}" if value else "{}"
    return _text(str(evidence_value(value)))


def plain(value: object) -> str:
    """A name for the middle of a sentence: a text as it is, cut to one short line; anything else as in JSON."""
    return _text(value) if isinstance(value, str) else quoted(value)


def one_line(error: BaseException) -> str:
    """What an error says, in one bounded line; its type where it says nothing."""
    return sentence(str(error)) or type(error).__name__


def sentence(text: str) -> str:
    """A sentence of a file's or a server's, on one bounded line."""
    return " ".join(text.split())[:MAX_ERROR_TEXT]


def evidence_value(value: object, depth: int = 0) -> Any:
    """A value as JSON evidence: long lists and texts are cut, numbers that JSON can't carry become text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_INTEGER else f"an integer of {value.bit_length():,} bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(value)
    if depth >= MAX_DEPTH:
        return "..."
    if isinstance(value, list | tuple):
        cut = [evidence_value(v, depth + 1) for v in value[:MAX_ENTRIES]]
        return [*cut, f"... {len(value):,} entries"] if len(value) > MAX_ENTRIES else cut
    if isinstance(value, dict):
        return {_text(str(k)): evidence_value(v, depth + 1) for k, v in list(value.items())[:MAX_ENTRIES]}
    return _text(str(value))


def _outline(value: object) -> object:
    if isinstance(value, list | tuple):
        return f"list of {len(value):,}"
    return value


def _text(value: str) -> str:
    # A lone surrogate is legal in JSON's escapes and can't be written as UTF-8.
    cut = value[:MAX_TEXT].encode("utf-8", "replace").decode()
    cut = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)
    return cut + "..." if len(value) > MAX_TEXT else cut
