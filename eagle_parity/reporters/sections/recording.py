"""A running server's capture by itself: do its ranks agree, what did fc get, does anything depend on the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.reporters.document import Cell, Entries, Entry, Tone
from eagle_parity.reporters.sections.acceptance import accepted
from eagle_parity.reporters.values import compact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eagle_parity.comparison.recording import Condition, GeneratedTokens, Recording
    from eagle_parity.reporters.document import Block


def recording_blocks(recording: Recording, acceptance: object) -> list[Block]:
    """One line for each question that a recording answers by itself, then what the server counted."""
    found: list[Block] = [Entries(f"The server, {recording.engine}", tuple(_lines(recording)))]
    if isinstance(acceptance, dict):
        found.append(accepted(acceptance))
    return found


def _lines(recording: Recording) -> Iterator[Entry]:
    names = compact([rank.name for rank in recording.ranks])
    yield Entry(Cell("ranks"), names)
    for rank in recording.rank_tokens:
        if rank.differing:
            told = f"{rank.rank} has other token ids than {rank.first_rank}: {rank.differing:,} of {rank.tokens:,}"
            yield Entry(Cell("token ids"), told, Tone.BAD)
    agreements = [rank for slot in recording.rank_slots for rank in slot.ranks]
    if agreements:
        differing = sum(rank.differing for rank in agreements)
        rows = sum(rank.rows for rank in agreements)
        if differing:
            yield Entry(Cell("between ranks"), f"{differing:,} of {rows:,} rows of slots differ", Tone.WARNING)
        else:
            yield Entry(Cell("between ranks"), f"equal bit for bit, {rows:,} rows of slots")
    if recording.generation is not None:
        yield _generation(recording.generation)
        yield from _without_rows(recording.generation)
    yield from _draft_input(recording.draft_inputs.states)
    rule = recording.rule
    if rule.live is not None:
        told = "as the rule says" if rule.agrees else "not what the rule says"
        yield Entry(Cell("layer set"), f"{compact(rule.live)}, {told}", Tone.PLAIN if rule.agrees else Tone.WARNING)
    for condition in recording.conditions:
        yield Entry(Cell(condition.name), _condition(condition))
    for name, reason in recording.skipped_conditions.items():
        yield Entry(Cell(name), reason, Tone.MUTED)


def _generation(generation: GeneratedTokens) -> Entry:
    label = Cell("while generating")
    if generation.not_compared is not None:
        return Entry(label, generation.not_compared, Tone.MUTED)
    if generation.differing:
        told = f"ranks chose other tokens in {generation.diverged_sequences} of {generation.sequences} sequences"
        return Entry(label, f"{told}, {generation.differing:,} of {generation.tokens:,} tokens", Tone.BAD)
    rows = sum(rank.rows for slot in generation.rank_slots for rank in slot.ranks)
    differing = sum(rank.differing for slot in generation.rank_slots for rank in slot.ranks)
    states = f"{differing:,} of {rows:,} rows of slots differ" if differing else f"{rows:,} rows of slots equal"
    told = f"ranks chose the same {generation.tokens:,} tokens, {states}"
    return Entry(label, told, Tone.WARNING if differing else Tone.PLAIN)


def _without_rows(generation: GeneratedTokens) -> Iterator[Entry]:
    if generation.missing_count:
        name, reason = generation.missing[0]
        sequences = "one sequence" if generation.missing_count == 1 else f"{generation.missing_count:,} sequences"
        yield Entry(Cell("not while generating"), f"{sequences}, the first {name}: {reason}", Tone.MUTED)


def _draft_input(states: dict[str, int]) -> Iterator[Entry]:
    total = sum(states.values())
    if states.get("differs"):
        yield Entry(
            Cell("what fc got"), f"NOT the slots side by side, in {states['differs']} of {total} sequences", Tone.BAD
        )
    elif states.get("equal"):
        yield Entry(
            Cell("what fc got"), f"the slots side by side, bit for bit, in {states['equal']} of {total} sequences"
        )
    elif states.get("normed"):
        yield Entry(
            Cell("what fc got"), "a norm of the slots: the head normalises first, which is not held against them"
        )


def _condition(condition: Condition) -> str:
    if not condition.slots:
        return condition.not_compared or "nothing to compare"
    rows = max(slot.rows for slot in condition.slots)
    largest = max(slot.largest for slot in condition.slots)
    told = "equal bit for bit" if not largest else f"at most {compact(largest)} apart"
    return f"{told}, {rows:,} rows of {max(slot.sequences for slot in condition.slots):,} sequences"
