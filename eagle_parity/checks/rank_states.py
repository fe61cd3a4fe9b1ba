"""Do the ranks of a group hold the same states, and if not, what do they hold together?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.capture.format import GENERATE
from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.comparison.evidence import rounded, told_distance
from eagle_parity.comparison.rank_verdict import rank_limit, rows_beyond
from eagle_parity.comparison.recording import COLUMNS, ROWS, SUM, SUM_LESS_RESIDUAL, GeneratedTokens
from eagle_parity.findings import RANK_DIVERGENCE, RANK_PARTIAL, RANK_SHARDED, Severity
from eagle_parity.results import Skip
from eagle_parity.wiring import describe_boundary

if TYPE_CHECKING:
    from eagle_parity.checks.recording_subject import RecordingSubject
    from eagle_parity.comparison.rank_verdict import RankVerdict
    from eagle_parity.comparison.recording import RankAgreement, RankSlot
    from eagle_parity.findings import Finding

_IN_WORDS = {
    SUM: "their sum",
    COLUMNS: "their concatenation over dimensions",
    ROWS: "their concatenation over tokens",
    SUM_LESS_RESIDUAL: "their sum less a residual stream that each of them has",
}


_SAMPLED = (
    "Each rank draws for itself, and they draw differently: what the client gets is the first rank's text, and the"
    " others' caches hold another one. Decode greedily on this backend, or use a release whose ranks share the tokens"
    " that they sample (vLLM issue 17498), and compare hidden states on the prompts or with --temperature 0."
)


def run(subject: RecordingSubject) -> Outcomes:
    """Parts of states, one finding for all slots of a kind; then rows that differ for no such reason.

    Ranks that differ on the prompt differ in what they generate from it: that is evidence of the same finding.
    """
    yield from _not_compared(subject)
    kinds: dict[str, list[RankVerdict]] = {}
    for verdict in subject.by_ranks.values():
        kinds.setdefault(verdict.combination.how, []).append(verdict)
    for how, verdicts in kinds.items():
        yield _parts(how, verdicts, subject)
    unlike = [
        (slot, rank)
        for slot in subject.recording.rank_slots
        if slot.slot not in subject.by_ranks
        for rank in slot.ranks
        if rank.differing or rank.shares is not None
    ]
    apart = [(s, r) for s, r in unlike if r.shares is not None or rows_beyond(r, subject.thresholds)]
    generation = subject.recording.generation or GeneratedTokens()
    generated = [
        rank
        for slot in generation.rank_slots
        if slot.slot not in subject.by_ranks
        for rank in slot.ranks
        if rank.differing
    ]
    generated_apart = [rank for rank in generated if rows_beyond(rank, subject.thresholds)]
    if apart:
        yield _divergence(apart, subject)
    elif generation.diverged or generated_apart:
        yield _while_generating(generation, generated_apart, subject)
    elif unlike or generated:
        yield _rounding([*(rank for _, rank in unlike), *generated], subject)


def _not_compared(subject: RecordingSubject) -> Outcomes:
    recording = subject.recording
    if recording.rank_unreadable:
        yield _unreadable("", recording.rank_unreadable, recording.rank_unreadable_count)
    elif not recording.rank_slots:
        one = len(recording.ranks) <= 1
        reason = "the capture has one rank" if one else "no sequence was recorded by two ranks of one group"
        yield Skip(check=CHECK.name, reason=reason)
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
        f"{len(order)} ranks hold parts of the state: {_IN_WORDS[how]}{ordered} is it ({states})",
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


def _divergence(apart: list[tuple[RankSlot, RankAgreement]], subject: RecordingSubject) -> Finding:
    entries = [_entry(rank, subject) for _, rank in apart]
    worst = max((rank for _, rank in apart), key=lambda rank: rows_beyond(rank, subject.thresholds))
    ruled_out = sorted({combination.how for slot, _ in apart for combination in slot.combinations})
    not_tried = {how: reason for slot, _ in apart for how, reason in slot.not_tried.items()}
    first = f", first in {worst.first}" if worst.first is not None else ""
    told = (
        f"rank {worst.rank} holds {worst.shares}, rank {worst.first_rank} other rows, and no way to put them together "
        "gives a known state"
        if worst.shares is not None
        else f"slot {worst.slot}: {rows_beyond(worst, subject.thresholds)} of {worst.rows} rows of rank {worst.rank} "
        f"differ from those of rank {worst.first_rank} by more than rounding (up to "
        f"{told_distance(worst.largest or 0.0)}){first}"
    )
    more = f"; so do {len(apart) - 1} more slots of ranks" if len(apart) > 1 else ""
    ruled = f". Ruled out: {', '.join(_IN_WORDS[how] for how in ruled_out)}" if ruled_out else ""
    untried = "".join(f". Not tried, {_IN_WORDS[how]}: {reason}" for how, reason in not_tried.items() if ruled_out)
    ranks = {rank.rank for _, rank in apart}
    return RANK_DIVERGENCE.finding(
        f"{told}{more}{ruled}{untried}",
        evidence={
            "ranks": entries,
            "ruled_out": ruled_out,
            "not_tried": not_tried,
            "generated": None if subject.recording.generation is None else _generated(subject.recording.generation),
            "thresholds": subject.thresholds.as_dict(),
        },
        slot=apart[0][0].slot if len({slot.slot for slot, _ in apart}) == 1 else None,
        rank=_number(next(iter(ranks))) if len(ranks) == 1 else None,
    )


def _while_generating(generation: GeneratedTokens, apart: list[RankAgreement], subject: RecordingSubject) -> Finding:
    """Ranks that agree on the prompts and not behind them: by the tokens first, as states follow from these."""
    told = []
    if generation.diverged:
        first = generation.diverged[0]
        told.append(
            f"rank {first.rank} chose token {first.token} where rank {first.first_rank} chose token "
            f"{first.first_token}, first in {first.sequence} at position {first.position} (generated token "
            f"{first.generated}); in {generation.diverged_sequences} of {generation.sequences} sequences, "
            f"{generation.differing} of {generation.tokens} tokens differ"
        )
    if apart:
        worst = max(apart, key=lambda rank: rows_beyond(rank, subject.thresholds))
        place = f", first in {worst.first}" if worst.first is not None else ""
        told.append(
            f"slot {worst.slot}: {rows_beyond(worst, subject.thresholds)} of {worst.rows} rows of the same tokens "
            f"differ between ranks {worst.rank} and {worst.first_rank} by more than rounding (up to "
            f"{told_distance(worst.largest or 0.0)}){place}"
        )
    ranks = {place.rank for place in generation.diverged} | {rank.rank for rank in apart}
    sampled = bool(generation.temperature) and not apart
    prompts = "nothing was recorded of the prompts by two ranks"
    if subject.recording.rank_slots:
        prompts = "on the prompts' rows the ranks agree"
    return RANK_DIVERGENCE.finding(
        f"while generating{_how(generation.temperature)}: {'; '.join(told)}; {prompts}",
        evidence={
            "ranks": [_entry(rank, subject) for slot in generation.rank_slots for rank in slot.ranks],
            "generated": _generated(generation),
            "thresholds": subject.thresholds.as_dict(),
        },
        rank=_number(next(iter(ranks))) if len(ranks) == 1 else None,
        remedy=_SAMPLED if sampled else RANK_DIVERGENCE.remedy,
    )


def _how(temperature: float | None) -> str:
    if temperature is None:
        return ""
    return f" at temperature {temperature:g}" if temperature else ", greedily"


def _generated(generation: GeneratedTokens) -> dict[str, Any]:
    return {
        "temperature": generation.temperature,
        "sequences": generation.sequences,
        "diverged_sequences": generation.diverged_sequences,
        "tokens": generation.tokens,
        "differing_tokens": generation.differing,
        "rows_behind": generation.rows_behind,
        "first": [msgspec.to_builtins(place) for place in generation.diverged],
    }


def _rounding(unlike: list[RankAgreement], subject: RecordingSubject) -> Finding:
    worst = max(unlike, key=lambda rank: rank.differing)
    first = f" First in {worst.first}." if worst.first is not None else ""
    return RANK_DIVERGENCE.finding(
        f"slot {worst.slot}: {worst.differing} of {worst.rows} rows of rank {worst.rank} aren't those of rank "
        f"{worst.first_rank} to the last bit, by no more than rounding ({told_distance(worst.largest or 0.0)}). Ranks "
        f"that differ at all can decide differently at a close call.{first}",
        severity=Severity.WARNING,
        evidence={
            "ranks": [_entry(rank, subject) for rank in unlike],
            "thresholds": subject.thresholds.as_dict(),
        },
        remedy="Where it is an all-reduce that sums in another order on each rank, choose one that doesn't.",
    )


def _entry(rank: RankAgreement, subject: RecordingSubject) -> dict[str, Any]:
    return {
        "slot": rank.slot,
        "rank": rank.rank,
        "against": rank.first_rank,
        "rows": rank.rows,
        "differing": rank.differing,
        "beyond_rounding": rows_beyond(rank, subject.thresholds),
        "limit": rounded(rank_limit(rank, subject.thresholds)),
        "distance": None if rank.distance is None else rounded(rank.distance),
        "largest": None if rank.largest is None else rounded(rank.largest),
        "first_sequence": None if rank.first is None else rank.first.sequence,
        "first_position": None if rank.first is None else rank.first.position,
        "sequences": rank.sequences,
        "differing_sequences": rank.differing_sequences,
        "share": rank.shares,
    }


def _number(rank: str) -> int | None:
    """The rank's number within the tensor-parallel ranks: of ``pp1.tp3``, 3."""
    digits = rank.rpartition("tp")[2]
    return int(digits) if digits.isdigit() else None


CHECK = Check(
    name="rank-states",
    question="Do the ranks of a group hold the same states, and if not, what do they hold together?",
    emits=(RANK_PARTIAL, RANK_SHARDED, RANK_DIVERGENCE),
    needs="a capture of a running server with two ranks or more",
    run=run,
)
