"""Where an engine looks in a draft's config, and for how many slots it builds what it finds: the words for that."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from eagle_parity.engines.class_rules import Defect
from eagle_parity.engines.failures import Failure


class Taken(StrEnum):
    """When a key ends the search for an id list."""

    TRUTHY = "its value is not empty"
    NOT_NULL = "its value is not null"
    SECTION = "the object that it stands in is not empty"


class KeyStep(msgspec.Struct, frozen=True):
    """One place in which an engine looks.

    Attributes:
        key: dotted.
        taken: when the search ends here, whatever the value is.
        shift: added to the ids found here.
    """

    key: str
    taken: Taken = Taken.TRUTHY
    shift: int = 0


class KeyRule(msgspec.Struct, frozen=True):
    """Where an engine looks for the id list, in order.

    Attributes:
        steps: the places.
        list_required: whether a value that is no list is dropped for the default; else it goes to the setter as it is.
        first, last: versions, inclusive.
        source: where it was read.
        runner: the value of ``Engine.runner_option`` for which it holds; "" for every one.
    """

    steps: tuple[KeyStep, ...]
    list_required: bool
    first: str
    last: str
    source: str
    runner: str = ""


class FcSkip(StrEnum):
    """When a draft class hands on the states that it is given without putting them through fc."""

    NEVER = "never"
    WITHOUT_AUX = "where use_aux_hidden_state is false"
    EQUAL_WIDTH = "where they are together as wide as the draft's own embedding"


class WidthRule(msgspec.Struct, frozen=True):
    """For how many slots a draft class builds its fc.

    Attributes:
        draft_class: short name.
        keys: in order: a number counts as it is, a list by its length.
        fallback: where none of them is set.
        first, last: versions, inclusive.
        source: where it was read.
        skips: when fc isn't called.
        skipped: the defect that shows where aux states go past fc.
    """

    draft_class: str
    keys: tuple[str, ...]
    fallback: int
    first: str
    last: str
    source: str
    skips: FcSkip
    skipped: Defect | None = None


class BufferRule(msgspec.Struct, frozen=True):
    """For how many slots an engine makes the buffer that feeds the draft's fc while CUDA graphs are captured.

    Attributes:
        keys: of the draft's config, in order, as for ``WidthRule``; none where the draft's config isn't looked at.
        fallback: where none of them is set.
        first, last: versions, inclusive.
        source: where it was read.
    """

    keys: tuple[str, ...]
    fallback: int
    first: str
    last: str
    source: str


class SpellingRule(msgspec.Struct, frozen=True):
    """How a list is written so that an engine reads it, in a range of versions.

    Attributes:
        key: the one place that every stock launch reads.
        spellings: the ways of writing that a remedy tries, best first: keys to ``IDS``, ``COUNT``, or a value.
        first, last: versions, inclusive.
        option: of the engine, by which a launch's own list is stated; "" where the list stands in the draft's config.
        file: what the keys are written into, where that isn't the draft's config.
    """

    key: str
    spellings: tuple[Mapping[str, object], ...]
    first: str
    last: str
    option: str = ""
    file: str = ""


class DraftSeen(msgspec.Struct, frozen=True):
    """A draft's config as an engine sees it, after the engine's own conversions.

    Attributes:
        config: the keys by the names under which the engine looks for them.
        width: the rule by which the draft's class sizes fc; None where none was read in this version.
        uses_aux: False where the target hands over its final state instead of aux states.
        declines_aux: whether ``use_aux_hidden_state`` is false for the draft's class.
        buffer: how the engine sizes the buffer of its CUDA graphs, where that isn't the class's own width.
        renamed: file keys by the engine's name for them, where they differ.
        failure: why this draft doesn't load at all.
    """

    config: Mapping[str, Any]
    width: WidthRule | None
    uses_aux: bool = True
    declines_aux: bool = False
    buffer: BufferRule | None = None
    renamed: Mapping[str, str] = {}
    failure: Failure | None = None


class Placeholder(StrEnum):
    """What a spelling's value stands for."""

    IDS = "the id list"
    COUNT = "its length"
