"""What a trainer is: what its layer ids mean by release, where they come from, and what its shards keep beside."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from eagle_parity.drafts import Draft
from eagle_parity.engines.engine import EngineOption
from eagle_parity.versions import in_range, parse_version
from eagle_parity.wiring import BoundaryEntry

if TYPE_CHECKING:
    from collections.abc import Iterable


class IdMeaning(StrEnum):
    """What an id names."""

    LAYER_OUTPUT = "the output of that layer, counted from 0"
    BOUNDARY = "the boundary itself: the output of the layer before, 0 for the embedding"


class ListOrder(StrEnum):
    """In which order a trainer concatenates."""

    ASCENDING = "ascending"
    BACKEND = "as listed with its transformers backend, ascending with its SGLang backend"
    LISTED = "as listed"


class TrainerRule(msgspec.Struct, frozen=True, kw_only=True):
    """One trainer, in a range of releases or at the commits that were read, run in one way.

    Attributes:
        first, last: releases, inclusive; "" where none was read.
        commits: abbreviated hashes of the sources that were read.
        way: the value of the trainer's option for which it holds; "" where it has none.
        meaning: of an id.
        key: where the draft's config keeps the ids that it was trained with; None where it keeps none.
        default: the ids for a target of N layers that are taken where no list is given; None where one has to be given.
        order: of the concatenation.
        last_state: for a target of N layers, the boundary of the state that is kept for the loss; None where none is.
        exactly: the number of ids that it insists on, None for any.
        smallest: the smallest id that it takes.
        final_id_is_last_state: whether an id N in the list names the last state and no slot.
        exported_meaning: what an id means in an exported draft, where that isn't ``meaning``; None where it is.
        source: where it was read.
        remark: what the draft's config can't say.
    """

    meaning: IdMeaning
    key: str | None
    default: Callable[[int], tuple[int, ...]] | None
    order: ListOrder
    last_state: Callable[[int], BoundaryEntry]
    source: str
    first: str = ""
    last: str = ""
    commits: tuple[str, ...] = ()
    way: str = ""
    exactly: int | None = None
    smallest: int = 0
    final_id_is_last_state: bool = False
    exported_meaning: Callable[[Draft], IdMeaning | None] | None = None
    remark: str = ""

    @property
    def span(self) -> str:
        """The releases and commits that were read, for messages."""
        releases = self.first if self.first == self.last else f"{self.first} to {self.last}"
        return ", ".join(filter(None, (releases, *self.commits)))

    def boundary_of(self, number: int) -> int:
        """The boundary that an id names."""
        return number + 1 if self.meaning is IdMeaning.LAYER_OUTPUT else number

    def holds_for(self, version: str) -> bool:
        """Whether a release, or a commit by its hash, was read."""
        if is_commit(version):
            return any(version.startswith(known) or known.startswith(version) for known in self.commits)
        return bool(self.first) and parse_version(version).is_release and in_range(version, self.first, self.last)


_ABBREVIATED = 7
_FULL = 40


def is_commit(text: str) -> bool:
    """Whether this is a commit's hash, abbreviated as git does or whole, rather than a version."""
    hexadecimal = all(c in "0123456789abcdef" for c in text)
    return hexadecimal and _ABBREVIATED <= len(text) <= _FULL


class Trainer(msgspec.Struct, frozen=True):
    """A trainer and its rules.

    Attributes:
        name: ``specforge``.
        title: ``SpecForge``.
        rules: by range of versions and way.
        option: on what the wiring depends beside the version: its values are the rules' ways; None where on nothing.
        refusal: why EAGLE-3's rules don't hold for its drafts at all; "" where they do.
    """

    name: str
    title: str
    rules: tuple[TrainerRule, ...]
    option: EngineOption | None = None
    refusal: str = ""

    @property
    def known(self) -> str:
        """The versions that the tables know, for messages."""
        return ", ".join(dict.fromkeys(rule.span for rule in self.rules))

    def in_force(self, version: str, way: str | None) -> tuple[TrainerRule, ...]:
        """The rules of a release or commit: of one way of running, or of all; none where none was read.

        Raises:
            UsageError: it is no version.
        """
        return tuple(rule for rule in self.rules if rule.holds_for(version) and way in {None, rule.way})

    def rule(self, version: str) -> TrainerRule | None:
        """The rule of a release, where the trainer has one way; None where none was read, and for what is no release.

        Raises:
            UsageError: it is no version.
        """
        rules = self.in_force(version, None)
        return rules[0] if len(rules) == 1 else None

    def ways(self, rules: Iterable[TrainerRule]) -> str:
        """How rules are told apart, as they are written behind the version."""
        return ", ".join(f"{self.option.name}={rule.way}" for rule in rules) if self.option else ""
