"""``inspect``: one list a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.reporters.document import Block, Cell, Entries, Entry, Tone
from eagle_parity.reporters.values import compact, words

if TYPE_CHECKING:
    from eagle_parity.results import Result

_LAST_STATES = {
    "absent": "none",
    "stored": "stored",
    "undecided": "undecided: the final state is a slot or the last state",
}

_TOLD_APART = frozenset({"path", "description", "unknown", "facts", "last_state", "layer_ids", "weights", "tensors"})


def section(result: Result) -> list[Block]:
    """What each path is, line by line, and what it can't say."""
    paths = result.measurements.get("paths")
    return [_entries(path) for path in paths if isinstance(path, dict)] if isinstance(paths, list) else []


def _entries(path: dict[str, Any]) -> Entries:
    lines: list[tuple[str, str]] = [("", compact(path.get("description")))]
    lines += [(words(key), compact(value)) for key, value in path.items() if key not in _TOLD_APART]
    lines.append(("last state", _last_state(path.get("last_state"))))
    lines += _items(path.get("facts"), as_words=True)
    lines += [("ids", f"{key}: {text}") for key, text in _items(path.get("layer_ids"))]
    weights = path.get("weights")
    for name, tensors in weights.items() if isinstance(weights, dict) else ():
        lines += _items(tensors) if isinstance(tensors, dict) else [(str(name), compact(tensors))]
    lines += _items(path.get("tensors"))
    entries = [Entry(Cell(label, Tone.MUTED), text) for label, text in lines if text]
    unknown = path.get("unknown")
    entries += [
        Entry(Cell("can't say", Tone.WARNING), compact(text)) for text in (unknown if isinstance(unknown, list) else ())
    ]
    return Entries(compact(path.get("path")), tuple(entries))


def _items(value: object, *, as_words: bool = False) -> list[tuple[str, str]]:
    if not isinstance(value, dict):
        return []
    return [(words(str(key)) if as_words else str(key), compact(entry)) for key, entry in value.items()]


def _last_state(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    told = _LAST_STATES.get(str(value.get("stored")), "")
    boundary = value.get("boundary")
    if boundary is None:
        return told
    return f"{told}, {boundary if isinstance(boundary, str) else f'boundary {boundary}'}"
