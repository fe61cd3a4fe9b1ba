"""Do the ranks of a group hold the same states, and if not, what do they hold together?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.capture.format import GENERATE
from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.checks.rank_divergence import (
    IN_WORDS,
    compared_ranks,
    divergence,
    rounding,
    under_conditions,
    while_generating,
)
from eagle_parity.comparison.evidence import rounded
from eagle_parity.comparison.rank_verdict import rows_beyond
from eagle_parity.comparison.recording import COLUMNS, ROWS, SUM, SUM_LESS_RESIDUAL, GeneratedTokens
from eagle_parity.findings import RANK_DIVERGENCE, RANK_PARTIAL, RANK_SHARDED
from eagle_parity.results import Skip
from eagle_parity.wiring import describe_boundary

if TYPE_CHECKING:
    from eagle_parity.checks.recording_subject import RecordingSubject
    from eagle_parity.comparison.rank_verdict import RankVerdict
    from eagle_parity.findings import Finding


def run(subject: RecordingSubject) -> Outcomes:
    """Parts of states, one finding for all slots of a kind; then rows that differ for no such reason.

    Ranks that differ on the prompts differ under a condition and in what they generate too: that is one finding.
    """
    yield from _not_compared(subject)
    kinds: dict[str, list[RankVerdict]] = {}
    for verdict in subject.by_ranks.values():
        kinds.setdefault(verdict.combination.how, []).append(verdict)
    for how, verdicts in kinds.items():
        yield _parts(how, verdicts, subject)
    prompts, *conditions = compared_ranks(subject)
    generation = subject.recording.generation or GeneratedTokens()
    generated = [
        rank
        for slot in generation.rank_slots
        if slot.slot not in subject.by_ranks
        for rank in slot.ranks
        if rank.differing
    ]
    generated_apart = [rank for rank in generated if rows_beyond(rank, subject.thresholds)]
    if prompts.diverged:
        yield divergence(prompts, subject)
    elif any(condition.diverged for condition in conditions):
        yield under_conditions([condition for condition in conditions if condition.diverged], subject)
    elif generation.diverged or generated_apart:
        yield while_generating(generation, generated_apart, subject)
    else:
        rounded_off = [rank for place in (prompts, *conditions) for _, rank in place.unlike]
        if rounded_off or generated:
            yield rounding([*rounded_off, *generated], subject)


def _not_compared(subject: RecordingSubject) -> Outcomes:
    recording = subject.recording
    if recording.rank_unreadable:
        yield _unreadable("", recording.rank_unreadable, recording.rank_unreadable_count)
    elif not recording.rank_slots:
        one = len(recording.ranks) <= 1
        reason = "the capture has one rank" if one else "no sequence was recorded by two ranks of one group"
        yield Skip(check=CHECK.name, reason=reason)
    for condition in recording.conditions:
        if condition.rank_unreadable:
            yield _unreadable(f"{condition.name}: ", condition.rank_unreadable, condition.rank_unreadable_count)
    if GENERATE in recording.skipped_conditions:
        yield Skip(check=CHECK.name, reason=f"{GENERATE}: {recording.skipped_conditions[GENERATE]}")
    generation = recording.generation
    if generation is not None and generation.not_compared is not None:
        yield Skip(check=CHECK.name, reason=f"{GENERATE}: {generation.not_compared}")
    elif generation is not None and generation.unreadable:
        yield _unreadable(f"{GENERATE}: ", generation.unreadable, generation.unreadable_count)


def _unreadable(where: str, examples: list[tuple[str, str]], count: int) -> Skip:
    """No parity of ranks without them: a fault of one rank may stand in the very file that can't be read."""
    name, reason = examples[0]
    return Skip(
        check=CHECK.name,
        reason=f"{where}{max(count, len(examples))} file(s) of ranks can't be read and weren't compared, such as"
        f" {name}: {reason}",
        blocks_verdict=True,
    )


def _parts(how: str, verdicts: list[RankVerdict], subject: RecordingSubject) -> Finding:
    kind = RANK_SHARDED if how in {COLUMNS, ROWS} else RANK_PARTIAL
    slots: list[dict[str, Any]] = []
    for verdict in verdicts:
        entry: dict[str, Any] = {"slot": verdict.slot, "state": verdict.label}
        if verdict.identity is not None:
            entry |= verdict.identity.evidence()
        if verdict.residual is not None:
            others = [fit for fit in verdict.combination.residuals if fit is not verdict.residual]
            entry |= {
                "share": rounded(verdict.residual.share),
                "detour": rounded(verdict.residual.detour),
                "runner_up": others[0].candidate.label if others else None,
                "runner_up_detour": rounded(others[0].detour) if others else None,
            }
        if how == SUM:
            entry["norms_ratio"] = rounded(verdict.combination.norms_ratio)
        slots.append(entry)
    order = verdicts[0].combination.order
    states = ", ".join(f"slot {v.slot}: {_name(v, subject)}" for v in verdicts)
    ordered = f" in the order {', '.join(order)}" if how in {COLUMNS, ROWS} else ""
    return kind.finding(
        f"{len(order)} ranks hold parts of the state: {IN_WORDS[how]}{ordered} is it ({states})",
        evidence={
            "combination": how,
            "with_residual": how == SUM_LESS_RESIDUAL,
            "ranks": order,
            "slots": slots,
            "thresholds": subject.thresholds.as_dict(),
        },
        confidence=min(verdict.confidence for verdict in verdicts),
        slot=verdicts[0].slot if len(verdicts) == 1 else None,
    )


def _name(verdict: RankVerdict, subject: RecordingSubject) -> str:
    label = verdict.label
    return label if isinstance(label, str) else describe_boundary(label, subject.recording.num_layers)


CHECK = Check(
    name="rank-states",
    question="Do the ranks of a group hold the same states, and if not, what do they hold together?",
    emits=(RANK_PARTIAL, RANK_SHARDED, RANK_DIVERGENCE),
    needs="a capture of a running server with two ranks or more",
    run=run,
)
