"""Boundaries and wirings: the one coordinate in which everything is compared.

Boundary k (0 <= k <= N) is the residual stream after k decoder layers of a target with N layers: 0 is the token
embedding as it enters the first layer, N the output of the last layer before the final norm. The state after the final
norm is ``post_norm``. A slot is one chunk of the concatenation that the head's ``fc`` receives; a wiring is the tuple
of the slots' boundaries in concatenation order.

Layer ids never get in here: engines and trainers turn them into boundaries by their own rules. This module is the only
place that says which layer's output a boundary is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from eagle_parity.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

POST_NORM: Literal["post_norm"] = "post_norm"
EMBEDDING = 0

Boundary: TypeAlias = int | Literal["post_norm"]
BoundaryEntry: TypeAlias = Boundary | None
"""A boundary, or None where it isn't known."""

MAX_BOUNDARIES = 4096
"""No model has as many layers; a list that claims more is a mistake, and is refused before it is expanded."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """Which state each slot holds, in concatenation order, and which one is kept beside them.

    Attributes:
        slots: a boundary per slot, None where unknown.
        last_state: the boundary of the last state that shards store for the loss; None where unknown or absent.
    """

    slots: tuple[BoundaryEntry, ...]
    last_state: BoundaryEntry = None

    @property
    def known(self) -> bool:
        """Whether every slot's boundary is known."""
        return all(slot is not None for slot in self.slots)

    def __str__(self) -> str:
        return format_boundaries(self.slots)


def format_boundaries(boundaries: Sequence[BoundaryEntry]) -> str:
    """``(3, 31, post_norm, ?)``."""
    return "(" + ", ".join("?" if b is None else str(b) for b in boundaries) + ")"


def describe_boundary(boundary: BoundaryEntry, num_layers: int | None = None) -> str:
    """A boundary in words: ``boundary 31 (output of layer 30, counted from 0)``."""
    if boundary is None:
        return "an unknown state"
    if boundary == POST_NORM:
        return "post_norm (the state after the final norm)"
    if boundary == EMBEDDING:
        return "boundary 0 (the token embedding)"
    if boundary < 0 or (num_layers is not None and boundary > num_layers):
        return f"{boundary} (no boundary of this target)"
    words = f"output of layer {boundary - 1}, counted from 0"
    if boundary == num_layers:
        words += ": the last one, before the final norm"
    return f"boundary {boundary} ({words})"


def brief_boundary(boundary: BoundaryEntry) -> str:
    """A boundary for a table cell: ``31 (layer 30 out)``, ``0 (embedding)``."""
    if boundary is None:
        return "?"
    if boundary == POST_NORM:
        return "post_norm"
    if boundary == EMBEDDING:
        return "0 (embedding)"
    if boundary < 0:
        return f"{boundary} (no boundary)"
    return f"{boundary} (layer {boundary - 1} out)"


def boundary_before(boundary: BoundaryEntry) -> int | None:
    """The boundary at the input of the layer whose output a boundary is; None for the embedding and post_norm."""
    return boundary - 1 if isinstance(boundary, int) and boundary > EMBEDDING else None


def parse_boundaries(text: str, *, option: str = "--boundaries") -> tuple[Boundary, ...]:
    """Boundaries from a command line: ``3,31,59``, ``0-30``, ``3,16,28,post_norm``.

    Raises:
        UsageError: an entry is neither a number, a range nor ``post_norm``, or the list is empty or absurdly long.
    """
    boundaries: list[Boundary] = []
    for raw in text.split(","):
        entry = raw.strip()
        if entry == POST_NORM:
            boundaries.append(POST_NORM)
            continue
        first, dash, last = entry.partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            raise UsageError(
                f"{option} {text!r}: {entry!r} is no boundary; expected numbers, ranges such as 0-30, or post_norm"
            ) from None
        if high < low or high >= MAX_BOUNDARIES:
            raise UsageError(f"{option} {text!r}: {entry!r} is no range of boundaries (0 to {MAX_BOUNDARIES - 1})")
        boundaries.extend(range(low, high + 1))
    if len(boundaries) > MAX_BOUNDARIES:
        raise UsageError(f"{option} {text[:40]!r}...: more than {MAX_BOUNDARIES} boundaries")
    return tuple(boundaries)


Label: TypeAlias = int | str
"""The identity of a state: a boundary where it is known, else a name such as ``trained slot 1``."""

DifferenceName: TypeAlias = Literal[
    "slot-count", "spurious-embedding", "missing-embedding", "slot-order", "slot-duplicate", "layer-mismatch"
]


@dataclass(frozen=True, slots=True)
class WiringDifference:
    """The simplest description of how one wiring differs from another.

    Attributes:
        name: the finding it amounts to.
        slots: the slots that differ (positions in the shorter wiring; for an embedding, the slots that hold it).
        offset: the one number of layers by which all differing slots are off, where there is one.
        late_slots: True where the expected features arrive one slot late, behind an embedding or another state.
        early_slots: True where they arrive one slot early, and another state fills the last slot.
    """

    name: DifferenceName
    slots: tuple[int, ...]
    offset: int | None = None
    late_slots: bool = False
    early_slots: bool = False


def compare_wirings(expected: Sequence[Label], actual: Sequence[Label | None]) -> WiringDifference | None:
    """How ``actual`` differs from ``expected``, as one root cause; None where they agree.

    A slot of ``actual`` that isn't known (None) is taken to agree: whoever calls this tells separately what is unknown.
    The order of the questions is the order of specificity: an embedding explains the shift of the slots behind it, a
    permutation explains every slot that it moves.
    """
    differing = tuple(i for i, (e, a) in enumerate(zip(expected, actual, strict=False)) if a is not None and a != e)
    if not differing and len(expected) == len(actual):
        return None
    embeddings = tuple(i for i, a in enumerate(actual) if a == EMBEDDING)
    if embeddings and EMBEDDING not in expected:
        rest = [a for a in actual if a != EMBEDDING]
        late = len(rest) > 0 and rest == list(expected[: len(rest)])
        # An embedding beside all trained states is one slot too many for that reason; else the count says more.
        if late or len(expected) == len(actual):
            return WiringDifference("spurious-embedding", embeddings, late_slots=late)
    early = len(expected) == len(actual) > 1 and list(actual[:-1]) == list(expected[1:])
    if (
        EMBEDDING in expected
        and EMBEDDING not in actual
        and (None not in actual or (early and expected[0] == EMBEDDING))
    ):
        return WiringDifference("missing-embedding", tuple(i for i, e in enumerate(expected) if e == EMBEDDING))
    if len(expected) != len(actual):
        return WiringDifference("slot-count", differing)
    if Counter(expected) == Counter(actual):
        return WiringDifference("slot-order", differing)
    duplicated = {a for a, n in Counter(a for a in actual if a is not None).items() if n > Counter(expected)[a] > 0}
    if duplicated and all(actual[i] in duplicated for i in differing):
        return WiringDifference("slot-duplicate", differing)
    offsets = {offset_between(expected[i], actual[i]) for i in differing}
    return WiringDifference(
        "layer-mismatch",
        differing,
        offset=offsets.pop() if len(offsets) == 1 else None,
        late_slots=len(expected) == len(actual) > 1 and list(actual[1:]) == list(expected[:-1]),
        early_slots=early,
    )


def offset_between(expected: Label | None, actual: Label | None) -> int | None:
    """By how many layers ``actual`` is late (positive) or early; None where one of them is no numbered boundary."""
    if isinstance(expected, int) and isinstance(actual, int):
        return actual - expected
    return None
