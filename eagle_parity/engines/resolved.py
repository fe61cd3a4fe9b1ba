"""By which version's rules a named engine is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eagle_parity.engines import find_engine
from eagle_parity.engines.engine import EngineName
from eagle_parity.engines.rules import Engine
from eagle_parity.versions import known_version, nearest_version

if TYPE_CHECKING:
    from collections.abc import Iterable


class Resolved(msgspec.Struct, frozen=True):
    """A named engine, its tables and the version whose rules are applied.

    Attributes:
        engine: its tables.
        name: as the user named it.
        version: the version whose rules are applied; None where none are: the version isn't known.
        nearest: the nearest known version, where the named one isn't known.
    """

    engine: Engine
    name: EngineName
    version: str | None
    nearest: str | None


def resolve_engine(name: EngineName, *, assume_nearest: bool) -> Resolved:
    """The version whose rules are applied: the named one, or the nearest where it isn't known and that is wanted.

    Raises:
        UsageError: there are no tables of this engine.
    """
    engine = find_engine(name)
    known = known_version(name.version, engine.versions)
    if known is not None:
        return Resolved(engine, name, known, None)
    nearest = nearest_version(name.version, engine.versions)
    return Resolved(engine, name, nearest if assume_nearest else None, nearest)


def resolve_engines(names: Iterable[EngineName], *, assume_nearest: bool) -> tuple[Resolved, ...]:
    """Each engine once, in the order in which they are first named."""
    return tuple(resolve_engine(name, assume_nearest=assume_nearest) for name in dict.fromkeys(names))
