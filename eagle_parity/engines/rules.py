"""The words in which an engine's rules are written down: data, with the place in the engine where each was read.

A rule follows a draft's id list through an engine: which key is read (``KeyRule``), what the target class asks its
layers for (``ClassRule.setter``), what its forward delivers (the other fields of ``ClassRule``), how many slots the
draft's fc is built for (``WidthRule``). ``serving.py`` interprets them.

An *index* is what a target class asks for: index i is the state before layer i, which is boundary i where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import msgspec

from eagle_parity.drafts import Draft
from eagle_parity.engines.engine import EngineOption
from eagle_parity.targets import Target
from eagle_parity.versions import in_range
from eagle_parity.wiring import EMBEDDING


class Setter(StrEnum):
    """How a target class turns the id list into indices; the default is never shifted."""

    AS_IS = "ids as they are"
    PLUS_ONE = "+1 to every id"
    PLUS_ONE_IF_FIRST_IS_ONE = "+1 to every id if the first id is 1, else as they are"
    AS_IS_IF_LAST_LAYER = "as they are if the greatest id is the number of layers, else +1 to every id"


SHIFTS: Mapping[Setter, tuple[int, ...]] = {
    Setter.AS_IS: (0,),
    Setter.PLUS_ONE: (1,),
    Setter.PLUS_ONE_IF_FIRST_IS_ONE: (0, 1),
    Setter.AS_IS_IF_LAST_LAYER: (0, 1),
}
"""What each setter can add to an id."""


def readable_ids(num_layers: int) -> range:
    """The ids that are a layer, or the embedding, in some convention; no engine reads one outside as anything.

    An index is at least that of the embedding and at most the number of layers, and a setter adds to an id what it can.
    """
    shifts = {shift for each in SHIFTS.values() for shift in each}
    return range(EMBEDDING - max(shifts), num_layers - min(shifts) + 1)


class Default(StrEnum):
    """The indices that a target class asks for where no list is given."""

    LOW_MIDDLE_HIGH = "(2, n//2, n-3), not shifted"
    ONE_LATER = "(3, n//2+1, n-2): its default is shifted like a list"


_HIGH = 3
"""How far the last of the default's indices is from the end."""


def default_indices(default: Default, num_layers: int) -> tuple[int, ...]:
    """Low, middle and high for a target of so many layers."""
    low_middle_high = (2, num_layers // 2, num_layers - _HIGH)
    if default is Default.ONE_LATER:
        return tuple(index + 1 for index in low_middle_high)
    return low_middle_high


class Captures(StrEnum):
    """What the forward hands over for an index between the embedding and the last layer."""

    STREAM = "the residual stream, which is the boundary"
    BRANCH = "the last layer's FFN branch without its residual, which is no boundary"
    NOTHING = "nothing: the setter marks the layers in a way that the forward doesn't look at"


class AtEmbedding(StrEnum):
    """What the forward does at index 0."""

    DELIVERS = "delivers the embedding"
    TYPE_ERROR = "TypeError: hidden_states + residual while residual is None"
    ALIAS = "delivers the embedding, as an alias that the fused norms overwrite in place on CUDA"
    LOOKUP_ERROR = "KeyError at load"


class Outside(StrEnum):
    """What the forward does with an index that no layer has."""

    NEVER_MATCHES = "never matches: one state fewer"
    FLAGS_BY_INDEX = "a negative index wraps to a layer from the end; one past the end is an IndexError at load"
    LOOKUP_ERROR = "KeyError at load"


class Order(StrEnum):
    """In which order the states are concatenated."""

    ASCENDING = "ascending, whatever the list's order"
    LISTED = "as listed"


class Shortfall(StrEnum):
    """Who notices that fewer states came than were asked for."""

    DRAFT_FC = "the draft's fc, by a shape error at the first request"
    PACKER_ASSERT = "the packer of the target's forward, by an AssertionError at the first request"
    PACKER_ERROR = "the packer of the target's forward, by a RuntimeError 'captured k of n' at the first request"


class Malformed(StrEnum):
    """What the setter does with an entry that is no number."""

    TYPE_ERROR = "TypeError at load"
    NEVER_MATCHES = "never matches"
    UNSORTABLE = "TypeError at load, unless all entries are texts, which never match"


class Source(msgspec.Struct, frozen=True):
    """Where a rule was read.

    Attributes:
        file: within the engine's package.
        lines: of the setter and of the capture.
        version: the release whose lines these are.
    """

    file: str
    lines: str
    version: str

    def __str__(self) -> str:
        return f"{self.file}:{self.lines} ({self.version})"


class Defect(msgspec.Struct, frozen=True):
    """A known fault of some releases on this path.

    Attributes:
        name: short, kebab-case, for evidence.
        summary: what is fed instead, and when.
        remedy: what to do.
        when: the draft, or the launch, for which it shows.
        source: where it was read, or the change that fixed it.
        feeds_no_boundary: whether what is fed is no boundary of any target, so that no id list helps.
    """

    name: str
    summary: str
    remedy: str
    when: DefectWhen
    source: str
    feeds_no_boundary: bool = False


class DefectWhen(StrEnum):
    """For which drafts, or launches, a defect shows."""

    ALWAYS = "always"
    NOT_THE_DEFAULT = "the id list is not the default wiring"
    EMBEDDING = "the embedding is served"
    DEEPSTACK = "one of the boundaries 1 to 3 is served, and the prompt has images"
    PIPELINE = "the engine is named with pipeline-parallel=yes"


class ClassRule(msgspec.Struct, frozen=True, kw_only=True):
    """How one family of target classes reads ids and delivers states, in a range of versions.

    Attributes:
        family: short name.
        architectures: as in the target's config.json.
        first, last: versions, inclusive.
        setter: ids to indices.
        embedding: index 0.
        reaches_last: whether index N, the last layer's output before the final norm, is delivered.
        outside: other indices that no layer has.
        order: of the concatenation.
        shortfall: who notices a missing state.
        malformed: entries that are no numbers.
        defects: known faults.
        source: where it was read.
        default: the indices without a list.
        captures: what is handed over for an index.
        remark: what else there is to know about what is delivered.
    """

    family: str
    architectures: tuple[str, ...]
    first: str
    last: str
    setter: Setter
    embedding: AtEmbedding
    reaches_last: bool
    source: Source
    outside: Outside = Outside.NEVER_MATCHES
    order: Order = Order.ASCENDING
    shortfall: Shortfall = Shortfall.DRAFT_FC
    malformed: Malformed = Malformed.TYPE_ERROR
    defects: tuple[Defect, ...] = ()
    default: Default = Default.LOW_MIDDLE_HIGH
    captures: Captures = Captures.STREAM
    remark: str = ""


class LaunchDefect(msgspec.Struct, frozen=True):
    """A known fault of a way of launching an engine, whatever the target class.

    Attributes:
        defect: the fault.
        first, last: versions, inclusive.
        except_for: architectures that don't have it.
    """

    defect: Defect
    first: str
    last: str
    except_for: tuple[str, ...] = ()


class NoSetter(msgspec.Struct, frozen=True):
    """Target classes on which an engine refuses EAGLE-3, in a range of versions.

    Attributes:
        architectures: as in the target's config.json.
        first, last: versions, inclusive.
        reason: what happens.
        source: where it was read.
    """

    architectures: tuple[str, ...]
    first: str
    last: str
    reason: str
    source: str


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


class Failure(msgspec.Struct, frozen=True):
    """Why an engine doesn't serve.

    Attributes:
        kind: what it stumbles over.
        at_load: whether while it starts; else in the first forward pass of a request.
        words: the failure, with the error that the engine prints.
        remark: what else its time depends on.
    """

    kind: FailureKind
    at_load: bool
    words: str
    remark: str = ""


class FailureKind(StrEnum):
    """What an engine stumbles over."""

    NO_SETTER = "no-setter"
    MALFORMED = "malformed-ids"
    OUT_OF_RANGE = "out-of-range"
    EMBEDDING = "embedding"
    MISSING_STATE = "missing-state"
    WIDTH = "fc-width"
    DRAFT = "draft"


class Timing(msgspec.Struct, frozen=True):
    """Which failures an engine meets while it starts, and which only at the first request.

    Attributes:
        embedding: the forward's TypeError at index 0.
        nothing: no state at all was delivered.
        shortfall: fewer states than fc takes.
        first, last: versions, inclusive.
        remark: what else the time depends on.
        runner: the value of ``Engine.runner_option`` for which it holds; "" for every one.
    """

    embedding: bool
    nothing: bool
    shortfall: bool
    first: str
    last: str
    remark: str = ""
    runner: str = ""


class VariantRule(msgspec.Struct, frozen=True):
    """What a stock launch can be, in a range of versions.

    Attributes:
        variants: as option values; a named option narrows them.
        first, last: versions, inclusive.
    """

    variants: tuple[Mapping[str, str], ...]
    first: str
    last: str


class SpellingRule(msgspec.Struct, frozen=True):
    """How a list is written so that an engine reads it, in a range of versions.

    Attributes:
        key: the one place that every stock launch reads.
        spellings: the ways of writing that a remedy tries, best first: keys to ``IDS``, ``COUNT``, or a value.
        first, last: versions, inclusive.
    """

    key: str
    spellings: tuple[Mapping[str, object], ...]
    first: str
    last: str


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


class Unread(msgspec.Struct, frozen=True):
    """An option does something to a target class that wasn't read: why, as part of a sentence."""

    reason: str


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """An engine with its tables; every rule has its own range of versions.

    Attributes:
        name: ``sglang``.
        title: ``SGLang``.
        versions: every release that was read, oldest first.
        options: on what its reading depends beside the version.
        variants: what a stock launch can be.
        runner_option: the option by whose value ``key_rules`` and ``timings`` are chosen; None where there is none.
        key_rules: where the id list is looked for.
        timings: when failures show.
        classes: the rules of the target classes.
        no_setter: classes that it refuses.
        width_rules: how draft classes size fc, for the docs.
        buffer_rules: how the engine sizes the buffers of its CUDA graphs, for the docs.
        launch_defects: faults of a way of launching it.
        see_draft: a draft and a version and options to what the engine sees of it.
        adapt: what an option changes about a target class: the rule found for it (None: none) to the rule in force;
            None leaves the class to ``no_setter``, ``Unread`` says that nobody has read what the option does to it.
        spellings: how a list is written.
    """

    name: str
    title: str
    versions: tuple[str, ...]
    options: tuple[EngineOption, ...]
    variants: tuple[VariantRule, ...]
    runner_option: str | None
    key_rules: tuple[KeyRule, ...]
    timings: tuple[Timing, ...]
    classes: tuple[ClassRule, ...]
    no_setter: tuple[NoSetter, ...]
    width_rules: tuple[WidthRule, ...]
    see_draft: Callable[[Draft, str, Mapping[str, str]], DraftSeen]
    adapt: Callable[[ClassRule | None, Mapping[str, str], Target], ClassRule | Unread | None]
    spellings: tuple[SpellingRule, ...]
    buffer_rules: tuple[BufferRule, ...] = ()
    launch_defects: tuple[LaunchDefect, ...] = ()

    def _runner(self, variant: Mapping[str, str]) -> str:
        return variant.get(self.runner_option, "") if self.runner_option else ""

    def key_rule(self, version: str, variant: Mapping[str, str]) -> KeyRule | None:
        """Where a variant looks for the id list; None where that wasn't read in this version."""
        return in_force((r for r in self.key_rules if r.runner in {"", self._runner(variant)}), version)

    def timing(self, version: str, variant: Mapping[str, str]) -> Timing | None:
        """When a variant's failures show; None where that wasn't read in this version."""
        return in_force((r for r in self.timings if r.runner in {"", self._runner(variant)}), version)

    def id_key(self, version: str) -> str | None:
        """The one place for a list that every stock launch reads; None where that wasn't read in this version."""
        rule = in_force(self.spellings, version)
        return None if rule is None else rule.key


class Placeholder(StrEnum):
    """What a spelling's value stands for."""

    IDS = "the id list"
    COUNT = "its length"
