"""Is what the head's fc got the slots side by side?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.comparison.evidence import rounded, told_distance
from eagle_parity.findings import DRAFT_INPUT_MISMATCH
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.checks.recording_subject import RecordingSubject
    from eagle_parity.comparison.recording import DraftChunk

_NOT_COMPARED = {
    "normed": "the head normalises before its fc, so that its input can't be held against the slots",
    "absent": "the hook saw no input of the head's fc",
    "unknown": "the capture doesn't say",
}


def run(subject: RecordingSubject) -> Outcomes:
    """One finding for all sequences, with what each chunk is instead."""
    inputs = subject.recording.draft_inputs
    for state, reason in _NOT_COMPARED.items():
        if inputs.states.get(state):
            yield Skip(check=CHECK.name, reason=f"{inputs.states[state]} sequence(s): {reason}")
    differing = inputs.states.get("differs", 0)
    if not differing:
        return
    compared = differing + inputs.states.get("equal", 0)
    chunks = [chunk for chunk in inputs.chunks if chunk.differing]
    told = "; ".join(_told(chunk) for chunk in chunks)
    told = told or "; ".join(f"its shape is {shape}" for shape in inputs.widths) or "what it was can't be read"
    yield DRAFT_INPUT_MISMATCH.finding(
        f"in {differing} of {compared} sequences the head's fc got something else than the slots side by side: {told}",
        evidence={
            "sequences": differing,
            "of": compared,
            "examples": inputs.examples,
            "chunks": [
                {
                    "chunk": chunk.chunk,
                    "rows": chunk.rows,
                    "differing": chunk.differing,
                    "distance": None if chunk.distance is None else rounded(chunk.distance),
                    "first_sequence": None if chunk.first is None else chunk.first.sequence,
                    "first_position": None if chunk.first is None else chunk.first.position,
                    "equals_slot": chunk.equals,
                }
                for chunk in inputs.chunks
            ],
            "shapes": inputs.widths,
            "unreadable": [{"name": name, "reason": reason} for name, reason in inputs.unreadable],
            "unreadable_count": max(inputs.unreadable_count, len(inputs.unreadable)),
        },
        slot=chunks[0].chunk if len(chunks) == 1 else None,
    )


def _told(chunk: DraftChunk) -> str:
    if chunk.equals is not None:
        return f"chunk {chunk.chunk} is slot {chunk.equals}"
    first = "" if chunk.first is None else f", first in {chunk.first}"
    distance = "" if chunk.distance is None else f" by {told_distance(chunk.distance)} in the median"
    return f"chunk {chunk.chunk} differs in {chunk.differing} of {chunk.rows} rows{distance}{first}"


CHECK = Check(
    name="draft-input",
    question="Is what the head's fc got the slots side by side?",
    emits=(DRAFT_INPUT_MISMATCH,),
    needs="a capture of a running server with a draft head",
    run=run,
)
