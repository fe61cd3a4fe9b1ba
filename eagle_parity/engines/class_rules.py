"""How a target class turns ids into indices and delivers states: the words in which that is written down.

An *index* is what a target class asks for: index i is the state before layer i, which is boundary i where there is one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from eagle_parity.wiring import EMBEDDING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    ATTRIBUTE_ERROR = "nothing: the forward dies with an AttributeError, as its loop reads what the class never sets"


class AtEmbedding(StrEnum):
    """What the forward does at index 0."""

    DELIVERS = "delivers the embedding"
    TYPE_ERROR = "TypeError: hidden_states + residual while residual is None"
    ALIAS = "delivers the embedding, as an alias that the fused norms overwrite in place on CUDA"
    LOOKUP_ERROR = "KeyError at load"
    FINAL_NORM_FIRST = "is id -1, the state after the final norm, which goes first"
    FINAL_NORM_LAST = "is id -1, the state after the final norm, which goes last"


FINAL_NORM = frozenset({AtEmbedding.FINAL_NORM_FIRST, AtEmbedding.FINAL_NORM_LAST})
"""Where index 0 stands for the state after the final norm."""


class Outside(StrEnum):
    """What the forward does with an index that no layer has."""

    NEVER_MATCHES = "never matches: one state fewer"
    FLAGS_BY_INDEX = "a negative index wraps to a layer from the end; one past the end is an IndexError at load"
    LOOKUP_ERROR = "KeyError at load"
    UNWRITTEN = "never matches: its slot is fed from memory that nothing was written to"


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
        default_needs: the fewest layers with which the default is taken; with fewer a ValueError at load.
        captures: what is handed over for an index.
        remark: what else there is to know about what is delivered.
        norm_in_logits: whether the forward leaves the final norm to the logits, so that the final state, which a head
            without aux states gets, is the last layer's output.
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
    default_needs: int = 0
    captures: Captures = Captures.STREAM
    remark: str = ""
    norm_in_logits: bool = False


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


class NoRule(msgspec.Struct, frozen=True):
    """Target classes with a way to capture that no rule covers, in a range of versions.

    Attributes:
        architectures: as in the target's config.json.
        first, last: versions, inclusive.
        reason: why there is none, as a clause, with what is known of what is captured.
        source: where it was read.
    """

    architectures: tuple[str, ...]
    first: str
    last: str
    reason: str
    source: str


class Wrapper(msgspec.Struct, frozen=True):
    """Target classes around a language model that the target's own config names, in a range of versions.

    Attributes:
        architectures: as in the target's config.json.
        first, last: versions, inclusive.
        without: classes of language models that capture on their own and not inside of these.
        reason: what happens with those.
        source: where it was read.
    """

    architectures: tuple[str, ...]
    first: str
    last: str
    without: tuple[str, ...]
    reason: str
    source: str
