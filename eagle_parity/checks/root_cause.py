"""Why a variant doesn't serve what the head was trained on, as one cause: the rest is what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eagle_parity import findings
from eagle_parity.engines.failures import FailureKind
from eagle_parity.findings import FindingKind
from eagle_parity.results import Outcome
from eagle_parity.wiring import WiringDifference, compare_wirings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.engines.serving import Served
    from eagle_parity.wiring import BoundaryEntry

FORWARD_FAILURES = frozenset({FailureKind.EMBEDDING, FailureKind.MISSING_STATE})
"""Failures by which the wiring that was asked for shows: it is compared although it isn't served."""


class RootCause(msgspec.Struct, frozen=True):
    """The one fault behind a variant's reading.

    Attributes:
        kind: the finding that it amounts to, always an error.
        difference: how the wiring differs from the trained one, where it was compared.
    """

    kind: FindingKind
    difference: WiringDifference | None = None


def find_root_cause(
    served: Served,
    trained: Sequence[BoundaryEntry] | None,
    misplaced: bool,  # noqa: FBT001  the answer to one question
) -> RootCause | None:
    """The root cause, or None where nothing is wrong or nothing can be said.

    Args:
        served: what the variant makes of the draft.
        trained: the trained wiring; None where it isn't known.
        misplaced: whether the variant would serve something else if it read a list that it ignores.
    """
    if served.outcome is Outcome.UNSUPPORTED:
        return RootCause(findings.UNSUPPORTED_TARGET)
    if not served.list_serves:
        return _cause_of_failure(served, trained)
    if any(defect.feeds_no_boundary for defect in served.defects):
        return RootCause(findings.KNOWN_ENGINE_DEFECT)
    difference = _compare(trained, served.boundaries)
    if trained is not None and difference is None and None not in served.boundaries:
        return None
    lost = _lost_state(served)
    if lost is not None:
        return RootCause(lost, difference)
    if misplaced and served.default:
        return RootCause(findings.LAYER_IDS_IGNORED, difference)
    if served.wrapped:
        return RootCause(findings.LAYER_ID_OUT_OF_RANGE, difference)
    if difference is None:
        return None
    if difference.name == "slot-order" and not _ascending(served):
        return RootCause(findings.LAYER_IDS_UNSORTED, difference)
    kinds = {
        "spurious-embedding": findings.SPURIOUS_EMBEDDING,
        "missing-embedding": findings.MISSING_EMBEDDING,
    }
    return RootCause(kinds.get(difference.name, findings.LAYER_ID_CONVENTION), difference)


def _lost_state(served: Served) -> FindingKind | None:
    """The fault by which a state that the list names isn't fed and nothing notices, whatever the head was trained on.

    The slot is missing, or it is fed with what is no state: an entry that isn't known here is wrong.
    """
    if None in served.boundaries:
        return findings.LAYER_ID_OUT_OF_RANGE
    if served.default or len(served.boundaries) >= len(served.asked):
        return None
    repeated = len(set(served.asked)) < len(served.asked)
    return findings.LAYER_IDS_DUPLICATE if repeated else findings.LAYER_ID_OUT_OF_RANGE


def _ascending(served: Served) -> bool:
    numbers = [index for index in served.asked if index is not None]
    return numbers == sorted(numbers)


def _cause_of_failure(served: Served, trained: Sequence[BoundaryEntry] | None) -> RootCause:
    failure = served.failure
    if failure is not None and failure.kind is FailureKind.WIDTH:
        return RootCause(findings.FC_WIDTH)
    if failure is not None and failure.kind in FORWARD_FAILURES:
        # Duplicates first: [2, 2, 30] is one slot short because of them.
        if not served.default and len(set(served.asked)) < len(served.asked):
            return RootCause(findings.LAYER_IDS_DUPLICATE)
        if served.boundaries and len(served.boundaries) == len(served.asked):
            difference = _compare(trained, served.boundaries)
            if difference is not None and difference.name == "spurious-embedding":
                return RootCause(findings.SPURIOUS_EMBEDDING, difference)
            return RootCause(findings.ENGINE_FAILURE, difference)
    return RootCause(findings.ENGINE_FAILURE)


def _compare(trained: Sequence[BoundaryEntry] | None, served: Sequence[BoundaryEntry]) -> WiringDifference | None:
    if trained is None:
        return None
    return compare_wirings([boundary for boundary in trained if boundary is not None], served)
