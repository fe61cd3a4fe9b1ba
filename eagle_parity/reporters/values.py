"""JSON values as short text and as tables, for evidence and measurements of any shape."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from eagle_parity.reporters.document import Block, Cell, Entries, Entry, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_LIST = 16
"""Entries of a list that are told one by one; evidence can hold one a token. The JSON format has them all."""

MAX_LIST_IN_TABLE = 200
"""A table is where somebody looks things up: what it lists is told whole, within reason."""

BEYOND_ANY_MEASUREMENT = 1e299
"""The comparison writes an infinite error as a number above this, since JSON has no infinity."""

MAX_DEPTH = 4
"""Deeper nesting is folded: documents come from files, and recursion must end."""


def words(name: str) -> str:
    """A JSON key as words: ``worst_dimensions`` to ``worst dimensions``."""
    return name.replace("_", " ")


def compact(value: object, depth: int = 0, *, limit: int = MAX_LIST) -> str:
    """One line for any JSON value: ``0.0123``, ``[3, 31, 59]``, ``layer 3, distance 0.01``, ``one, two``.

    Args:
        value: the value.
        depth: how deep it stands in another one.
        limit: of how many entries a list or an object is told at most; the rest is counted.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < BEYOND_ANY_MEASUREMENT else "infinite"
    if isinstance(value, dict):
        if depth >= MAX_DEPTH:
            return "{...}"
        known = [(k, v) for k, v in value.items() if v is not None]
        inner = ", ".join(f"{words(str(k))} {compact(v, depth + 1)}" for k, v in known[:limit])
        return f"{{{inner}}}" if depth else inner
    if isinstance(value, list | tuple):
        if depth >= MAX_DEPTH:
            return "[...]"
        inner = ", ".join("?" if v is None else compact(v, depth + 1) for v in value[:limit])
        rest = f", ... {len(value)} in all" if len(value) > limit else ""
        names = depth == 0 and len(value) > 0 and all(isinstance(v, str) for v in value)
        return f"{inner}{rest}" if names else f"[{inner}{rest}]"
    return str(value)


def pairs(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Name and value of everything that says something; of a list of objects, each entry."""
    told: list[tuple[str, str]] = []
    for key, value in values.items():
        name = words(str(key))
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            told.extend((f"{name} {i + 1}/{len(value)}", compact(entry)) for i, entry in enumerate(value[:MAX_LIST]))
        else:
            told.append((name, compact(value)))
    return tuple((name, value) for name, value in told if value)


def blocks(title: str, value: object, depth: int = 0) -> list[Block]:
    """Tables and lists for a JSON value whose shape nobody knows beforehand."""
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return [records(title, value)]
    if isinstance(value, dict) and depth < MAX_DEPTH:
        plain = {k: v for k, v in value.items() if not _is_nested(v)}
        made: list[Block] = []
        if plain:
            made.append(Entries(title, tuple(Entry(Cell(k), v) for k, v in pairs(plain))))
        for key, nested in value.items():
            if _is_nested(nested):
                heading = words(str(key))
                made.extend(blocks(f"{title}: {heading}" if title else heading.capitalize(), nested, depth + 1))
        return made
    text = compact(value)
    return [Entries(title, (Entry(Cell(""), text),))] if text else []


def records(
    title: str, rows: Sequence[Mapping[str, Any]], order: Sequence[str] = (), hidden: Sequence[str] = ()
) -> Table:
    """A table of JSON objects: the keys of ``order`` first, then all others in the order they turn up.

    Args:
        title: the table's.
        rows: the objects.
        order: keys that come first, in this order.
        hidden: keys that are told elsewhere.
    """
    turned_up = dict.fromkeys(chain.from_iterable(rows))
    keys = [*(k for k in order if k in turned_up), *(k for k in turned_up if k not in order and k not in hidden)]
    return Table(
        title,
        tuple(Cell(words(str(key))) for key in keys),
        tuple(tuple(Cell(compact(row.get(key), limit=MAX_LIST_IN_TABLE)) for key in keys) for row in rows),
    ).without_empty_columns()


def _is_nested(value: object) -> bool:
    """Whether a value deserves a block of its own: a list of objects, or an object with more than scalars."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(row, dict) for row in value)
    return isinstance(value, dict) and len(value) > 0
