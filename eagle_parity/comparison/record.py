"""A running server's capture by itself: what it is complete in, and whether its parts agree with each other."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eagle_parity.comparison.conditions import measure_conditions
from eagle_parity.comparison.draft_inputs import measure_draft_inputs
from eagle_parity.comparison.generation import measure_generation
from eagle_parity.comparison.live_rule import check_rule
from eagle_parity.comparison.ranks import MAX_EXAMPLES, measure_ranks
from eagle_parity.comparison.recording import RecordedRank, Recording
from eagle_parity.comparison.thresholds import Thresholds
from eagle_parity.quoting import plain, sentence
from eagle_parity.readers.live_capture import open_live
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.findings import Finding
    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.readers.live_capture import LiveCapture
    from eagle_parity.targets import Target


def measure_recording(
    states: HiddenStates, target: Target | None, *, bad_row_distance: float
) -> tuple[LiveCapture, Recording] | None:
    """Measures a capture by itself; None where it is none of a running server.

    Args:
        states: the capture, opened.
        target: the target's config, where it was given.
        bad_row_distance: from where a row's place is told.

    Raises:
        InputError: its manifest can't be read any more.
    """
    live = open_live(states)
    if live is None:
        return None
    ranks = measure_ranks(live, states)
    recording = live.live
    return live, Recording(
        engine=live.manifest.producer.engine,
        complete=live.manifest.complete,
        sequences=len(live.manifest.sequences),
        incomplete=[(plain(entry.name), sentence(entry.reason)) for entry in recording.incomplete[:MAX_EXAMPLES]],
        incomplete_count=len(recording.incomplete),
        declared=list(live.manifest.slots),
        num_layers=live.manifest.target.num_layers,
        ranks=_ranks(live),
        rank_slots=ranks.slots,
        rank_tokens=ranks.tokens,
        rank_unreadable=ranks.unreadable[:MAX_EXAMPLES],
        rank_unreadable_count=len(ranks.unreadable),
        draft_inputs=measure_draft_inputs(live, states),
        rule=check_rule(live, target),
        conditions=measure_conditions(live, states, bad_row_distance),
        generation=measure_generation(live),
        skipped_conditions={plain(name): sentence(reason) for name, reason in recording.skipped_conditions.items()},
        not_written={plain(name): sentence(reason) for name, reason in recording.not_written.items()},
    )


def judge_recording(states: HiddenStates, target: Target | None = None) -> list[Finding | Skip]:
    """Everything that a capture of a running server tells by itself at its end, without a trained side.

    Raises:
        InputError: its manifest can't be read any more.
    """
    from eagle_parity.checks.of_recordings import RECORDING_CHECKS
    from eagle_parity.checks.recording_subject import RecordingSubject

    thresholds = Thresholds()
    measured = measure_recording(states, target, bad_row_distance=thresholds.bad_row_distance)
    if measured is None:
        return [Skip(check="live-recording", reason="it is no capture of a running server")]
    subject = RecordingSubject(measured[1], thresholds, just_made=True)
    return [outcome for check in RECORDING_CHECKS for outcome in check.run(subject)]


def _ranks(live: LiveCapture) -> list[RecordedRank]:
    """The workers, with how many sequences of their group each lacks."""
    of_group: Counter[str] = Counter()
    of_rank: Counter[str] = Counter()
    groups = live.groups
    for entry in live.manifest.sequences:
        ranks = live.ranks_of(entry)
        if ranks:
            of_group[groups[ranks[0]]] += 1
            of_rank.update(ranks)
    return [
        RecordedRank(
            name=rank.name,
            group=plain(rank.group),
            group_size=rank.group_size,
            limit=None if rank.limit is None else sentence(rank.limit),
            failures=[sentence(failure) for failure in rank.failures[:MAX_EXAMPLES]],
            missing=of_group[rank.group] - of_rank[rank.name],
        )
        for rank in live.live.ranks
    ]
