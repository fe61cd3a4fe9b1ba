"""What the head's ``fc`` got against the slots side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.alignment import BLOCK_ROWS
from eagle_parity.comparison.ranks import MAX_EXAMPLES, differing_rows
from eagle_parity.comparison.recording import DraftChunk, DraftInputs, Place
from eagle_parity.comparison.states import json_number
from eagle_parity.hidden_states import StateSequence, Unreadable
from eagle_parity.numerics.histogram import ErrorHistograms
from eagle_parity.numerics.rows import row_errors

if TYPE_CHECKING:
    from eagle_parity.hidden_states import HiddenStates, Rows
    from eagle_parity.readers.live_capture import LiveCapture

UNKNOWN = "unknown"
"""Of a sequence whose entry says nothing of it."""


@dataclass
class ChunkPair:
    """One chunk of the input against the slot of its place, and against all slots bit by bit; a state that merges."""

    chunk: int
    slots: int
    rows: int = 0
    differing: int = 0
    first: Place | None = None
    errors: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(1))
    unequal: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unequal = self.unequal or [0] * self.slots

    def update(self, name: str, low: int, chunk_TD: torch.Tensor, slots: list[torch.Tensor]) -> None:
        """Adds a block of rows from position ``low`` on."""
        for slot, slot_TD in enumerate(slots):
            self.unequal[slot] += int(differing_rows(slot_TD, chunk_TD).sum())
        expected_TD = slots[self.chunk]
        differs_T = differing_rows(expected_TD, chunk_TD)
        self.rows += len(chunk_TD)
        self.differing += int(differs_T.sum())
        if differs_T.any():
            self.first = self.first or Place(sequence=name, position=low + int(differs_T.nonzero()[0]))
            errors_T = row_errors(chunk_TD[differs_T], expected_TD[differs_T])
            self.errors.update(errors_T.nan_to_num(nan=torch.inf, posinf=torch.inf)[None])

    def merge(self, other: ChunkPair) -> ChunkPair:
        """Adds what another has seen of other sequences."""
        self.rows += other.rows
        self.differing += other.differing
        self.first = self.first or other.first
        self.errors.merge(other.errors)
        self.unequal = [a + b for a, b in zip(self.unequal, other.unequal, strict=True)]
        return self

    def compute(self) -> DraftChunk:
        """The measurement."""
        quantiles = self.errors.quantiles(0)
        equals = next((slot for slot, count in enumerate(self.unequal) if count == 0), None)
        return DraftChunk(
            chunk=self.chunk,
            rows=self.rows,
            differing=self.differing,
            distance=None if not quantiles.count else json_number(quantiles.median),
            first=self.first,
            equals=equals if self.differing and self.rows else None,
        )


def measure_draft_inputs(live: LiveCapture, states: HiddenStates) -> DraftInputs:
    """What the manifest says of each sequence's input, and how far stored ones are from the slots."""
    told = Counter(entry.draft_input or UNKNOWN for entry in live.manifest.sequences)
    count = states.layout.slots
    chunks = [ChunkPair(chunk, count) for chunk in range(count)]
    widths: Counter[str] = Counter()
    unreadable: list[tuple[str, str]] = []
    differing = [entry for entry in live.manifest.sequences if entry.draft_input == "differs"]
    for entry in differing:
        stored, sequence = live.draft_input(entry), states.open(entry.name)
        unreadable += [(o.name, o.reason) for o in (stored, sequence) if isinstance(o, Unreadable)]
        if isinstance(stored, Unreadable) or isinstance(sequence, Unreadable):
            continue
        width = sum(slot.hidden_size for slot in sequence.slots)
        if stored.hidden_size != width or stored.tokens != sequence.rows:
            widths[f"[{stored.tokens}, {stored.hidden_size}] for [{sequence.rows}, {width}]"] += 1
            continue
        _update(chunks, entry.name, stored, sequence)
    return DraftInputs(
        states=dict(told),
        examples=[entry.name for entry in differing[:MAX_EXAMPLES]],
        widths=dict(widths.most_common(MAX_EXAMPLES)),
        chunks=[chunk.compute() for chunk in chunks if chunk.rows],
        unreadable=unreadable[:MAX_EXAMPLES],
        unreadable_count=len(unreadable),
    )


def _update(chunks: list[ChunkPair], name: str, stored: Rows, sequence: StateSequence) -> None:
    width = sequence.slots[0].hidden_size
    for low in range(0, stored.tokens, BLOCK_ROWS):
        high = min(low + BLOCK_ROWS, stored.tokens)
        input_TW = stored.read(low, high)
        slots = [slot.read(low, high) for slot in sequence.slots]
        for place, chunk in enumerate(chunks):
            chunk.update(name, low, input_TW[:, place * width : (place + 1) * width], slots)
