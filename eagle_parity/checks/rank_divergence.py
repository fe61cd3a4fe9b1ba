"""How ranks that differ are told: in what they computed, in its states, while generating, or by rounding alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.comparison.evidence import rounded, told_distance
from eagle_parity.comparison.rank_verdict import rank_limit, rows_beyond
from eagle_parity.comparison.recording import COLUMNS, ROWS, SUM, SUM_LESS_RESIDUAL, GeneratedTokens
from eagle_parity.findings import RANK_DIVERGENCE, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eagle_parity.checks.recording_subject import RecordingSubject
    from eagle_parity.comparison.recording import RankAgreement, RankSlot, RankTokens
    from eagle_parity.findings import Finding

IN_WORDS = {
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


@dataclass(frozen=True)
class ComparedRanks:
    """The ranks of a capture, or of one of its conditions.

    Attributes:
        condition: empty for the capture itself.
        texts: ranks that computed other token ids than the first one.
        unlike: slots of ranks that aren't the first one's to the last bit, or in its dtype.
        apart: those of them that are so by more than rounding.
    """

    condition: str
    texts: list[RankTokens]
    unlike: list[tuple[RankSlot, RankAgreement]]
    apart: list[tuple[RankSlot, RankAgreement]]

    @property
    def diverged(self) -> bool:
        """Whether the ranks did other work, or the same with another result."""
        return bool(self.texts or self.apart)


def compared_ranks(subject: RecordingSubject) -> list[ComparedRanks]:
    """Of the capture first, then of each condition; slots whose ranks hold parts of a state are left out."""
    recording = subject.recording
    return [
        _compared("", recording.rank_slots, recording.rank_tokens, subject),
        *(_compared(one.name, one.rank_slots, one.rank_tokens, subject) for one in recording.conditions),
    ]


def _compared(
    condition: str, slots: Iterable[RankSlot], tokens: Iterable[RankTokens], subject: RecordingSubject
) -> ComparedRanks:
    unlike = [
        (slot, rank)
        for slot in slots
        if slot.slot not in subject.by_ranks
        for rank in slot.ranks
        if rank.differing or rank.shares is not None or rank.is_in_another_dtype
    ]
    return ComparedRanks(
        condition=condition,
        texts=[rank for rank in tokens if rank.differing],
        unlike=unlike,
        apart=[(s, r) for s, r in unlike if r.shares is not None or rows_beyond(r, subject.thresholds)],
    )


def divergence(ranks: ComparedRanks, subject: RecordingSubject) -> Finding:
    """Ranks that differ on the prompts: in their token ids first, as states follow from these."""
    ruled_out = sorted({combination.how for slot, _ in ranks.apart for combination in slot.combinations})
    not_tried = {how: reason for slot, _ in ranks.apart for how, reason in slot.not_tried.items()}
    ruled = f". Ruled out: {', '.join(IN_WORDS[how] for how in ruled_out)}" if ruled_out else ""
    untried = "".join(f". Not tried, {IN_WORDS[how]}: {reason}" for how, reason in not_tried.items() if ruled_out)
    generation = subject.recording.generation
    return _finding(
        [ranks],
        f"{_told(ranks, subject)}{ruled}{untried}",
        {
            "ruled_out": ruled_out,
            "not_tried": not_tried,
            "generated": None if generation is None else _generated(generation),
        },
        subject,
    )


def under_conditions(conditions: Sequence[ComparedRanks], subject: RecordingSubject) -> Finding:
    """Ranks that agree on sequences computed alone, and not under a condition."""
    told = "; ".join(f"{ranks.condition}: {_told(ranks, subject)}" for ranks in conditions)
    agree = "; computed alone, the ranks agree on these prompts" if subject.recording.rank_slots else ""
    return _finding(conditions, f"{told}{agree}", {"conditions": [ranks.condition for ranks in conditions]}, subject)


def _finding(places: Sequence[ComparedRanks], message: str, more: dict[str, Any], subject: RecordingSubject) -> Finding:
    apart = [(ranks.condition, slot, rank) for ranks in places for slot, rank in ranks.apart]
    texts = [(ranks.condition, rank) for ranks in places for rank in ranks.texts]
    slots = {slot.slot for _, slot, _ in apart}
    names = {rank.rank for _, _, rank in apart} | {rank.rank for _, rank in texts}
    return RANK_DIVERGENCE.finding(
        message,
        evidence={
            "ranks": [{**_entry(rank, subject), **_under(condition)} for condition, _, rank in apart],
            "token_ids": [{**msgspec.to_builtins(rank), **_under(condition)} for condition, rank in texts],
            **more,
            "thresholds": subject.thresholds.as_dict(),
        },
        slot=next(iter(slots)) if len(slots) == 1 and not texts else None,
        rank=_number(next(iter(names))) if len(names) == 1 else None,
    )


def _under(condition: str) -> dict[str, str]:
    return {"condition": condition} if condition else {}


def _told(ranks: ComparedRanks, subject: RecordingSubject) -> str:
    told = [_told_text(ranks.texts)] if ranks.texts else []
    if ranks.apart:
        told.append(_told_states(ranks, subject))
    elif ranks.texts and not ranks.unlike:
        told.append("their states are equal all the same, so that the ids or the states aren't those of this request")
    return "; ".join(told)


def _told_text(texts: Sequence[RankTokens]) -> str:
    worst = max(texts, key=lambda rank: rank.differing)
    first = "" if worst.first is None else f", first in {worst.first} (token {worst.token}, not {worst.first_token})"
    more = f"; so have {len(texts) - 1} more ranks" if len(texts) > 1 else ""
    return (
        f"rank {worst.rank} has other token ids than rank {worst.first_rank}: {worst.differing:,} tokens, in "
        f"{worst.differing_sequences} of {worst.sequences} sequences{first}{more}"
    )


def _told_states(ranks: ComparedRanks, subject: RecordingSubject) -> str:
    worst = max((rank for _, rank in ranks.apart), key=lambda rank: rows_beyond(rank, subject.thresholds))
    more = f"; so do {len(ranks.apart) - 1} more slots of ranks" if len(ranks.apart) > 1 else ""
    if worst.shares is not None:
        together = (
            f"what they make together is looked for with this condition as the live side (conditions/{ranks.condition})"
            if ranks.condition
            else "no way to put them together gives a known state"
        )
        return f"rank {worst.rank} holds {worst.shares}, rank {worst.first_rank} other rows, and {together}{more}"
    first = f", first in {worst.first}" if worst.first is not None else ""
    return (
        f"slot {worst.slot}: {rows_beyond(worst, subject.thresholds)} of {worst.rows} rows of rank {worst.rank} "
        f"differ from those of rank {worst.first_rank} by more than rounding (up to "
        f"{told_distance(worst.largest or 0.0)}){first}{more}"
    )


def while_generating(generation: GeneratedTokens, apart: list[RankAgreement], subject: RecordingSubject) -> Finding:
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


def rounding(unlike: Sequence[RankAgreement], subject: RecordingSubject) -> Finding:
    """Ranks that differ by no more than rounding, or hold equal numbers in other dtypes: a warning."""
    worst = max(unlike, key=lambda rank: rank.differing)
    told, remedy = [], []
    if worst.differing:
        first = f" First in {worst.first}." if worst.first is not None else ""
        told.append(
            f"slot {worst.slot}: {worst.differing} of {worst.rows} rows of rank {worst.rank} aren't those of rank "
            f"{worst.first_rank} to the last bit, by no more than rounding ({told_distance(worst.largest or 0.0)}). "
            f"Ranks that differ at all can decide differently at a close call.{first}"
        )
        remedy.append("Where it is an all-reduce that sums in another order on each rank, choose one that doesn't.")
    other = [rank for rank in unlike if rank.is_in_another_dtype]
    if other:
        told.append(
            f"Rank {other[0].rank} holds slot {other[0].slot} in {other[0].dtype}, rank {other[0].first_rank} in "
            f"{other[0].first_dtype}: heads of one launch get states of one dtype."
        )
        remedy.append("Start every rank with the same --dtype.")
    return RANK_DIVERGENCE.finding(
        " ".join(told),
        severity=Severity.WARNING,
        evidence={"ranks": [_entry(rank, subject) for rank in unlike], "thresholds": subject.thresholds.as_dict()},
        remedy=" ".join(remedy),
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
        "dtype": rank.dtype,
        "first_dtype": rank.first_dtype or rank.dtype,
    }


def _number(rank: str) -> int | None:
    """The rank's number within the tensor-parallel ranks: of ``pp1.tp3``, 3."""
    digits = rank.rpartition("tp")[2]
    return int(digits) if digits.isdigit() else None
