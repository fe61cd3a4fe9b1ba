"""Rows that belong together, block by block: the states of one pair of sequences and of its reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.measurements import EMBEDDING_ROWS, LAST_STATE, Candidate
from eagle_parity.comparison.pairing import MIN_COMMON
from eagle_parity.hidden_states import FilePlace, Rows, StateSequence, Unreadable, place_of
from eagle_parity.numerics.rows import row_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eagle_parity.comparison.pairing import PrefixIndex, SequencePair
    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.target_weights import EmbeddingTable
    from eagle_parity.wiring import BoundaryEntry

BLOCK_ROWS = 256
"""Rows that are in memory at once, of every state: 62 boundaries of 7,168 dimensions in float32 are 0.45 GB."""
PROBE_ROWS = 64
"""Enough to see at which end of a sequence its missing rows are."""


@dataclass(frozen=True, slots=True)
class AlignedRows:
    """A state from a row on: row 0 of it belongs to the pair's first row."""

    rows: Rows
    start: int

    @property
    def row_bytes(self) -> int:
        """Of one row, as it is read."""
        return self.rows.hidden_size * (2 if self.rows.dtype in {"bfloat16", "float16"} else 4)

    def read_stored(self, start: int, stop: int) -> torch.Tensor:
        """Rows ``[stop - start, D]`` in the stored dtype; as ``read`` has them where some are missing."""
        low, high = self.start + start, self.start + stop
        inside = low >= 0 and high <= self.rows.tokens
        return self.rows.read(low, high) if inside else self.read(start, stop)

    def place(self, start: int, stop: int) -> FilePlace | None:
        """Where these rows lie; None where some are missing, or they have to be read."""
        low, high = self.start + start, self.start + stop
        return place_of(self.rows, low, high) if low >= 0 and high <= self.rows.tokens else None

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Rows as float32 ``[stop - start, D]``; NaN where the state has none."""
        low, high = self.start + start, self.start + stop
        inside_low, inside_high = max(low, 0), min(max(high, 0), self.rows.tokens)
        if (inside_low, inside_high) == (low, high):
            return self.rows.read(low, high).float()
        out_TD = torch.full((stop - start, self.rows.hidden_size), torch.nan)
        if inside_low < inside_high:
            out_TD[inside_low - low : inside_high - low] = self.rows.read(inside_low, inside_high).float()
        return out_TD


@dataclass(frozen=True, slots=True)
class Lost:
    """A pair that can't be compared, and whose file is to blame."""

    role: str
    file: Unreadable


@dataclass(frozen=True)
class AlignedPair:
    """The states of one pair of sequences, all on the same rows.

    Attributes:
        name: the trained sequence's name.
        length: rows.
        token_ids: int64 ``[length]``.
        trained, live: a state a slot.
        trained_last, live_last: last states, if stored.
        noise: the slots of a second live capture, if there is one.
        known: further candidates that slots are compared with: reference boundaries, embedding rows.
        missing: what a side lacks, in words; None when it is complete.
    """

    name: str
    length: int
    token_ids: torch.Tensor
    trained: tuple[AlignedRows, ...]
    live: tuple[AlignedRows, ...]
    trained_last: AlignedRows | None
    live_last: AlignedRows | None
    noise: tuple[AlignedRows, ...]
    known: tuple[tuple[Candidate, AlignedRows | EmbeddingRows], ...]
    with_reference: bool
    missing: str | None

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[tuple[int, int]]:
        """Row ranges that cover the pair, so many rows each."""
        return ((low, min(low + rows, self.length)) for low in range(0, self.length, rows))


@dataclass(frozen=True, slots=True)
class EmbeddingRows:
    """Boundary 0 from the target's own weights."""

    table: EmbeddingTable
    token_ids: torch.Tensor
    hidden_size: int

    @property
    def row_bytes(self) -> int:
        """Of one row, as it is read."""
        return 4 * self.hidden_size

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Float32 ``[stop - start, D]``."""
        return self.table.rows(self.token_ids[start:stop])

    def place(self, start: int, stop: int) -> FilePlace | None:  # noqa: ARG002  as the stored ones have it
        """None: they are looked up."""
        return None

    def read_stored(self, start: int, stop: int) -> torch.Tensor:
        """As ``read``: the table's own dtype is of no use to a comparison."""
        return self.read(start, stop)


@dataclass(frozen=True)
class Aligner:
    """Opens the sequences of a pair and puts their states on the same rows."""

    trained: HiddenStates
    live: HiddenStates
    reference: HiddenStates | None
    reference_index: PrefixIndex | None
    reference_boundaries: tuple[BoundaryEntry, ...]
    noise: HiddenStates | None
    noise_index: PrefixIndex | None
    embedding: EmbeddingTable | None

    def align(self, pair: SequencePair) -> AlignedPair | Lost:
        """One pair; a file that has become unreadable since it was listed is told."""
        trained = self.trained.open(pair.trained.name)
        live = self.live.open(pair.live.name)
        if isinstance(trained, Unreadable):
            return Lost("trained", trained)
        if isinstance(live, Unreadable):
            return Lost("live", live)
        for role, sequence, ids in (("trained", trained, pair.trained.ids), ("live", live, pair.live.ids)):
            if sequence.token_ids is None or not torch.equal(sequence.token_ids, ids):
                return Lost(role, Unreadable(sequence.name, "was written again since its token ids were read"))
        trained_offset, live_offset = _row_offsets(pair, trained, live)
        trained_start, live_start = pair.trained_start - trained_offset, pair.live_start - live_offset
        # Tokens without a row on either side are missing, not NaN: the pair is narrowed to what both sides have.
        first = max(0, -trained_start, -live_start)
        last = min(pair.length, trained.rows - trained_start, live.rows - live_start)
        if last <= first:
            return Lost("live", Unreadable(pair.live.name, "no row of it is among those of the trained side"))
        known, covered = self._known(pair, first, last)
        return AlignedPair(
            name=pair.trained.name,
            length=last - first,
            token_ids=pair.trained.ids[pair.trained_start + first : pair.trained_start + last],
            trained=tuple(AlignedRows(rows, trained_start + first) for rows in trained.slots),
            live=tuple(AlignedRows(rows, live_start + first) for rows in live.slots),
            trained_last=None if trained.last_state is None else AlignedRows(trained.last_state, trained_start + first),
            live_last=None if live.last_state is None else AlignedRows(live.last_state, live_start + first),
            noise=self._noise(pair, first),
            known=known,
            with_reference=covered,
            missing=_missing(pair, trained, live),
        )

    def _known(
        self, pair: SequencePair, first: int, last: int
    ) -> tuple[tuple[tuple[Candidate, AlignedRows | EmbeddingRows], ...], bool]:
        known: list[tuple[Candidate, AlignedRows | EmbeddingRows]] = []
        found = self.reference_index.longest(pair.trained.ids) if self.reference_index else None
        covered = False
        start = pair.trained_start + first
        # A template's first words in common are no cover.
        if self.reference is not None and found is not None and found[1] - start >= min(MIN_COMMON, last - first):
            sequence = self.reference.open(found[0].name)
            if isinstance(sequence, StateSequence):
                # Beyond the common prefix the reference is about other tokens: there it has no rows.
                usable = found[1]
                states = [*sequence.slots, *([sequence.last_state] if sequence.last_state else [])]
                covered = True
                for boundary, rows in zip(self.reference_boundaries, states, strict=False):
                    if boundary is not None:
                        aligned = AlignedRows(_FirstRows(rows, min(usable, rows.tokens)), start)
                        known.append((boundary_candidate(boundary), aligned))
        if self.embedding is not None and not any(candidate.boundary == 0 for candidate, _ in known):
            token_ids = pair.trained.ids[start : pair.trained_start + last]
            candidate = Candidate(label=EMBEDDING_ROWS, boundary=0, distance=0.0)
            known.append((candidate, EmbeddingRows(self.embedding, token_ids, self.trained.layout.hidden_size)))
        return tuple(known), covered

    def _noise(self, pair: SequencePair, first: int) -> tuple[AlignedRows, ...]:
        if self.noise is None or self.noise_index is None:
            return ()
        found = self.noise_index.longest(pair.live.ids)
        if found is None:
            return ()
        sequence = self.noise.open(found[0].name)
        if isinstance(sequence, Unreadable):
            return ()
        return tuple(
            AlignedRows(_FirstRows(rows, min(found[1], rows.tokens)), pair.live_start + first)
            for rows in sequence.slots
        )


@dataclass(frozen=True, slots=True)
class _FirstRows:
    """The first rows of a state."""

    rows: Rows
    tokens: int

    @property
    def hidden_size(self) -> int:
        return self.rows.hidden_size

    @property
    def dtype(self) -> str:
        return self.rows.dtype

    def read(self, start: int, stop: int) -> torch.Tensor:
        return self.rows.read(start, stop)

    def place(self, start: int, stop: int) -> FilePlace | None:
        return place_of(self.rows, start, stop)


def boundary_candidate(boundary: BoundaryEntry) -> Candidate:
    """The candidate that a reference's boundary is."""
    label = boundary if isinstance(boundary, str) else f"boundary {boundary}"
    return Candidate(label=label, boundary=boundary, distance=0.0)


def trained_slot_candidate(slot: int) -> Candidate:
    """The candidate that a trained slot is."""
    return Candidate(label=f"trained slot {slot}", trained_slot=slot, distance=0.0)


def live_slot_candidate(slot: int) -> Candidate:
    """The candidate that a live slot is, when the trained side is what needs explaining."""
    return Candidate(label=f"live slot {slot}", distance=0.0)


def last_state_candidate() -> Candidate:
    """The candidate that the trained last state is."""
    return Candidate(label=LAST_STATE, distance=0.0)


def _row_offsets(pair: SequencePair, trained: StateSequence, live: StateSequence) -> tuple[int, int]:
    """How many leading tokens have no row, on each side.

    A side with fewer rows than tokens has lost them at one end: a prefix cache loses the first ones, a reader that
    stopped early the last ones. Which it was shows in the states.
    """
    lost_trained = max(0, len(pair.trained.ids) - trained.rows)
    lost_live = max(0, len(pair.live.ids) - live.rows)
    choices = [(a, b) for a in {0, lost_trained} for b in {0, lost_live}]
    if len(choices) == 1:
        return choices[0]
    return min(choices, key=lambda choice: (_misfit(pair, trained, live, choice), choice))


def _misfit(pair: SequencePair, trained: StateSequence, live: StateSequence, offsets: tuple[int, int]) -> float:
    low = max(0, offsets[0] - pair.trained_start, offsets[1] - pair.live_start)
    high = min(pair.length, low + PROBE_ROWS)
    if high <= low:
        return float("inf")  # no row in common
    medians = []
    for trained_rows in trained.slots:
        x_TD = AlignedRows(trained_rows, pair.trained_start - offsets[0]).read(low, high)
        for live_rows in live.slots:
            if live_rows.hidden_size != trained_rows.hidden_size:
                continue
            errors_T = row_errors(AlignedRows(live_rows, pair.live_start - offsets[1]).read(low, high), x_TD)
            errors_T = errors_T[errors_T.isfinite()]
            if len(errors_T):
                medians.append(float(errors_T.median()))
    return min(medians, default=float("inf"))


def _missing(pair: SequencePair, trained: StateSequence, live: StateSequence) -> str | None:
    parts = []
    for side, sequence, ids in (("trained", trained, pair.trained.ids), ("live", live, pair.live.ids)):
        if sequence.rows < len(ids):
            parts.append(f"the {side} side has {sequence.rows} rows for {len(ids)} tokens")
    longer, shorter = len(pair.trained.ids), len(pair.live.ids)
    if pair.how == "suffix":
        side = "live" if longer > shorter else "trained"
        parts.append(f"the {side} side lacks the first {abs(longer - shorter)} of {max(longer, shorter)} tokens")
    elif pair.how == "prefix" and not pair.padded and pair.length == min(longer, shorter) and longer != shorter:
        side = "live" if longer > shorter else "trained"
        parts.append(f"the {side} side lacks the last {abs(longer - shorter)} of {max(longer, shorter)} tokens")
    return "; ".join(parts) or None
