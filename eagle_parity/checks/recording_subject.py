"""What the checks of a running server's capture look at, and how ``diff-captures`` asks them."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  a dataclass field
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eagle_parity.comparison.rank_verdict import RankVerdict
    from eagle_parity.comparison.recording import Recording
    from eagle_parity.comparison.thresholds import Thresholds
    from eagle_parity.comparison.views import Comparison


NO_RECORDING = (
    "the live side is no capture of a running server: nothing is known of its ranks, of what the head's fc got, and of"
    " the running layer set"
)


@dataclass(frozen=True)
class RecordingSubject:
    """A capture of a running server.

    Attributes:
        recording: what was measured of it.
        thresholds: to judge by.
        by_ranks: slots whose ranks were found to hold parts of a known state; that takes a trained side.
        just_made: whether it is judged at its end, for whoever asked for all of its sequences.
    """

    recording: Recording
    thresholds: Thresholds
    by_ranks: Mapping[int, RankVerdict] = field(default_factory=dict)
    just_made: bool = False


def of_comparisons(checks: Iterable[Check[RecordingSubject]]) -> tuple[Check[Comparison], ...]:
    """These checks, asked of the live side of a comparison; of one that is no such capture the first one says so."""
    asked = tuple(checks)

    def ask(check: Check[RecordingSubject]) -> Check[Comparison]:
        def run(comparison: Comparison) -> Outcomes:
            recording = comparison.measurements.recording
            if recording is not None:
                yield from check.run(RecordingSubject(recording, comparison.thresholds, comparison.by_ranks))
            elif check is asked[0]:
                yield Skip(check="live recording", reason=NO_RECORDING)

        return Check(name=check.name, question=check.question, emits=check.emits, needs=check.needs, run=run)

    return tuple(ask(check) for check in asked)
