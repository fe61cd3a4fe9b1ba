"""Numbers of a server's answers: it may answer anything, and what is no number is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_ID_LIMIT = 2**31
"""No vocabulary is larger; what is, is no id."""
_COUNT_LIMIT = 2**40
"""No server counts so far; what does can't be added up within what a manifest holds."""


def count_of(meta: Mapping[str, Any], *names: str) -> int | None:
    """The first of some counts that an answer has; None where it has none, or something else under that name."""
    for name in names:
        value = meta.get(name)
        if type(value) is int and 0 <= value < _COUNT_LIMIT:
            return value
    return None


def ids_of(value: object) -> tuple[int, ...] | None:
    """Token ids of an answer; None where it has none, or something else in their place."""
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < _ID_LIMIT for token in value):
        return None
    return tuple(value)


def prometheus_counts(text: str, names: Mapping[str, str]) -> dict[str, int]:
    """Sums of some counters of a Prometheus page, over all of their labels.

    Args:
        text: the page.
        names: counter by the key under which its sum is wanted.
    """
    sums = dict.fromkeys(names, 0.0)
    keys = {name: key for key, name in names.items()}
    for line in text.splitlines():
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        if name in keys:
            try:
                value = float(rest.rpartition("}")[2].split()[0])  # a timestamp may follow
            except (ValueError, IndexError):
                continue
            if 0 <= value < _COUNT_LIMIT:  # no NaN either
                sums[keys[name]] += value
    return {key: int(value) for key, value in sums.items()}
