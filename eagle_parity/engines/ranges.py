"""Rules have a range of versions: which one is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from eagle_parity.versions import in_range

if TYPE_CHECKING:
    from collections.abc import Iterable


class Ranged(Protocol):
    """A rule that was read in a range of versions."""

    @property
    def first(self) -> str:
        """The oldest version, inclusive."""
        ...

    @property
    def last(self) -> str:
        """The newest version, inclusive."""
        ...


Rule = TypeVar("Rule", bound=Ranged)


def in_force(rules: Iterable[Rule], version: str) -> Rule | None:
    """The rule that was read in this version; None where there is none: it isn't known, and nothing is guessed."""
    return next((rule for rule in rules if in_range(version, rule.first, rule.last)), None)
