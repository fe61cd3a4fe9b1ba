"""What was measured of a running server's capture by itself, as plain numbers: ranks, draft inputs, conditions."""

from __future__ import annotations

import msgspec

from eagle_parity.comparison.states import Candidate, StateMeasurement
from eagle_parity.wiring import BoundaryEntry

SUM, COLUMNS, ROWS, SUM_LESS_RESIDUAL = "sum", "columns", "rows", "sum-less-residual"
"""What ranks can make together."""
SERVES = "serves"
"""The outcome of a rule by which the engine runs."""


class RecordedRank(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as the manifest has it.

    Attributes:
        name: ``tp1``.
        group, group_size: the ranks that compute the same rows as this one, and how many there are.
        limit: why it stopped storing; None where it didn't.
        failures: of its hook.
        missing: sequences that other ranks of its group recorded whole, and this one didn't.
    """

    name: str
    group: str
    group_size: int
    limit: str | None = None
    failures: list[str] = []
    missing: int = 0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A row: the sequence's name and its position."""

    sequence: str
    position: int

    def __str__(self) -> str:
        return f"{self.sequence}, position {self.position}"


class RankAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of one rank against the first rank of its group.

    Attributes:
        slot: its position.
        rank, first_rank: their names.
        rows: that both have.
        differing: rows that aren't equal to the last bit.
        distance: median over the differing rows of the relative error; None without any.
        largest: greatest relative error.
        errors: ``[upper edge, count]`` of the differing rows.
        first: where the first one is.
        sequences: that were compared.
        differing_sequences: with a differing row.
        shares: of shapes, where the rank doesn't hold a whole state: ``[20, 576] of [39, 576]``.
        dtype: as stored.
        first_dtype: of the first rank's, in the first sequence where that is another one; the same otherwise.
    """

    slot: int
    rank: str
    first_rank: str
    rows: int
    differing: int
    distance: float | None
    largest: float | None
    errors: list[tuple[float, int]]
    first: Place | None
    sequences: int
    differing_sequences: int
    dtype: str
    first_dtype: str | None = None
    shares: str | None = None

    @property
    def is_in_another_dtype(self) -> bool:
        """Whether some sequence's states are of another dtype than the first rank's."""
        return self.first_dtype is not None and self.first_dtype != self.dtype


class RankTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The token ids of one rank against those of the first rank of its group: what each of them computed.

    Attributes:
        rank, first_rank: their names.
        tokens: that both have.
        differing: of these, and what one of them has more.
        sequences: that were compared.
        differing_sequences: with another token, or another number of them.
        first: where the first one is.
        token, first_token: what each has there; None where it has none.
    """

    rank: str
    first_rank: str
    tokens: int
    differing: int
    sequences: int
    differing_sequences: int
    first: Place | None
    token: int | None
    first_token: int | None


class ResidualFit(msgspec.Struct, frozen=True, kw_only=True):
    """The residual that partial sums would share, if their state were some boundary.

    Attributes:
        candidate: the boundary.
        before: the boundary before it.
        share: how much of the way from ``before`` to ``candidate`` the ranks' parts go: the median over rows.
        detour: the way over the residual in units of the direct one: the median over rows.
        rows: measured on.
    """

    candidate: Candidate
    before: BoundaryEntry
    share: float
    detour: float
    rows: int


class RankCombination(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks of a slot make together.

    Attributes:
        how: ``sum``, ``columns`` and ``rows`` (their concatenation), or ``sum-less-residual``.
        order: the ranks in the order of the concatenation; for a sum, all of them.
        state: the combination against the known states; None for ``sum-less-residual``.
        norms_ratio: the norms of the summands over that of the sum: by so much rounding grows.
        residuals: for ``sum-less-residual``, the boundaries that it could be, best first.
    """

    how: str
    order: list[str]
    state: StateMeasurement | None = None
    norms_ratio: float = 1.0
    residuals: list[ResidualFit] = []


class RankSlot(msgspec.Struct, frozen=True, kw_only=True):
    """All about the ranks of one slot.

    Attributes:
        slot: its position.
        ranks: each rank against the first one of its group.
        combinations: what was tried where they differ throughout.
        not_tried: combinations that could not be, with the reason.
    """

    slot: int
    ranks: list[RankAgreement]
    combinations: list[RankCombination] = []
    not_tried: dict[str, str] = {}


class DraftChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk of what the head's ``fc`` got, against the slot of its place.

    Attributes:
        chunk: its place.
        rows: compared.
        differing: rows that aren't equal to the last bit.
        distance: median over these of the relative error; None without any.
        first: where the first one is.
        equals: the slot that it is instead, to the last bit; None where it is none.
    """

    chunk: int
    rows: int
    differing: int
    distance: float | None
    first: Place | None
    equals: int | None = None


class DraftInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of what the head's ``fc`` got.

    Attributes:
        states: sequences by what the manifest says of theirs: equal, differs, normed, absent, unknown.
        examples: some of those that differ.
        widths: of stored ones that aren't as wide as the slots together, and how many sequences have them.
        chunks: of those that are.
        unreadable: some of those that can't be read: name and reason.
        unreadable_count: all of them.
    """

    states: dict[str, int]
    examples: list[str] = []
    widths: dict[str, int] = {}
    chunks: list[DraftChunk] = []
    unreadable: list[tuple[str, str]] = []
    unreadable_count: int = 0


class RuleVariant(msgspec.Struct, frozen=True, kw_only=True):
    """What the rule makes of the draft for one variant of the engine.

    Attributes:
        options: of the variant.
        asked: boundaries that the class asks for.
        outcome: whether the rule has it serve.
        reason: the failure that the rule expects.
        source: where the rule was read.
    """

    options: dict[str, str]
    asked: list[BoundaryEntry]
    outcome: str
    reason: str | None
    source: str


class RuleCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The live module's layer set against the rule.

    Attributes:
        engine: as the manifest names it.
        layer_set: as recorded.
        live: the boundaries that it asks for.
        variants: what the rule says; empty where there is none.
        not_compared: why it couldn't be.
    """

    engine: str
    layer_set: dict[str, list[int]] | None = None
    live: list[BoundaryEntry] | None = None
    variants: list[RuleVariant] = []
    not_compared: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether some variant that the launch can be asks for what the live module holds, and is to run."""
        return any(variant.asked == self.live and variant.outcome == SERVES for variant in self.variants)


class ConditionSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot under a condition against the same slot without it.

    Attributes:
        slot: its position.
        rows: compared.
        distance: median relative error.
        largest: the greatest one.
        errors: ``[upper edge, count]``.
        bad_sequences: sequences with a row beyond ``bad_row_distance``.
        sequences: compared.
        places: of some of these rows: sequence, first and last position, and how many.
        dtype: as stored.
    """

    slot: int
    rows: int
    distance: float
    largest: float
    errors: list[tuple[float, int]]
    bad_sequences: int
    sequences: int
    places: list[tuple[str, int, int, int]]
    dtype: str


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition: ``batch``, ``chunk``, ``prefix``.

    Attributes:
        name: see there.
        slots: empty where nothing could be compared.
        unpaired: sequences of it that the main capture doesn't have.
        unreadable: some of those that can't be read: name and reason.
        unreadable_count: all of them.
        not_compared: why nothing was.
        rank_slots, rank_tokens, rank_unreadable, rank_unreadable_count: the ranks under it, as those of the capture.
    """

    name: str
    slots: list[ConditionSlot] = []
    unpaired: int = 0
    unreadable: list[tuple[str, str]] = []
    unreadable_count: int = 0
    not_compared: str | None = None
    rank_slots: list[RankSlot] = []
    rank_tokens: list[RankTokens] = []
    rank_unreadable: list[tuple[str, str]] = []
    rank_unreadable_count: int = 0


class TokenDivergence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank generated another token than the first rank of its group.

    Attributes:
        sequence: its name.
        position: of the token in the sequence, prompt included.
        generated: which of the generated tokens it is, from 1.
        rank, first_rank: their names.
        token, first_token: what each chose.
    """

    sequence: str
    position: int
    generated: int
    rank: str
    first_rank: str
    token: int
    first_token: int


class GeneratedTokens(msgspec.Struct, frozen=True, kw_only=True):
    """What ranks generated, each against the first rank of its group.

    Attributes:
        temperature: of the requests; 0 is greedy, None where it isn't known.
        sequences: that were compared.
        tokens: that were compared, once for each rank but the first.
        differing: of these.
        diverged_sequences: sequences with one.
        diverged: the first one of some of them.
        rank_slots: the states up to there.
        rows_behind: that weren't compared: the ranks compute other texts there.
        unreadable: some of the files that can't be read: name and reason.
        unreadable_count: all of them.
        missing: some of the sequences behind which no row was recorded: name and reason.
        missing_count: all of them.
        not_compared: why nothing was.
    """

    temperature: float | None = None
    sequences: int = 0
    tokens: int = 0
    differing: int = 0
    diverged_sequences: int = 0
    diverged: list[TokenDivergence] = []
    rank_slots: list[RankSlot] = []
    rows_behind: int = 0
    unreadable: list[tuple[str, str]] = []
    unreadable_count: int = 0
    missing: list[tuple[str, str]] = []
    missing_count: int = 0
    not_compared: str | None = None


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A capture of a running server, apart from any other side.

    Attributes:
        engine: with its version.
        complete: whether everything that was meant is there.
        sequences: in the capture.
        incomplete: some of those that aren't: name and reason.
        incomplete_count: all of them.
        declared: the live wiring as the manifest has it.
        num_layers: N.
        ranks: the workers.
        rank_slots: empty where there is one rank.
        rank_tokens: what each rank but the first of its group computed.
        rank_unreadable: some of the ranks' files that can't be read: name and reason.
        rank_unreadable_count: all of them.
        draft_inputs: of the head.
        rule: of the layer set.
        conditions: that were recorded.
        generation: what was generated, where that was recorded.
        skipped_conditions: conditions that could not be, with the reason.
        not_written: by rank, what it recorded and isn't in the capture.
    """

    engine: str
    complete: bool
    sequences: int
    incomplete: list[tuple[str, str]]
    incomplete_count: int
    declared: list[BoundaryEntry]
    num_layers: int
    ranks: list[RecordedRank]
    rank_slots: list[RankSlot] = []
    rank_tokens: list[RankTokens] = []
    rank_unreadable: list[tuple[str, str]] = []
    rank_unreadable_count: int = 0
    draft_inputs: DraftInputs
    rule: RuleCheck
    conditions: list[Condition] = []
    generation: GeneratedTokens | None = None
    skipped_conditions: dict[str, str] = {}
    not_written: dict[str, str] = {}
