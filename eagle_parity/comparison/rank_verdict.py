"""What the ranks of a slot hold together, if they hold a known state: judged from numbers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.comparison.identity import Identity, identify
from eagle_parity.comparison.recording import SUM, SUM_LESS_RESIDUAL
from eagle_parity.comparison.thresholds import prior_floor
from eagle_parity.numerics.axis import STEP_RATIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from eagle_parity.comparison.recording import RankAgreement, RankCombination, RankSlot, ResidualFit
    from eagle_parity.comparison.states import Candidate, StateMeasurement
    from eagle_parity.comparison.thresholds import Thresholds
    from eagle_parity.wiring import Label

LEAST_SHARE, GREATEST_SHARE = 0.15, 1.05
"""How much of a layer's way the ranks' parts can go. Measured on SmolLM2-135M, with its MLPs' real partial sums on 2,
3, 4 and 8 ranks in bfloat16: 0.27 to 1.00 at the right boundary, 0.00 for ranks that merely diverge."""
GREATEST_DETOUR = 1.75
"""Measured there: at most 1.59 at the right boundary; at wrong ones whose share is in its range at least 2.15."""
DETOUR_MARGIN = 1.2
"""The runner-up's way must be so much longer; 1.4 times is the least that was measured."""


@dataclass(frozen=True)
class RankVerdict:
    """The ranks of one slot are parts of a known state.

    Attributes:
        slot: its position.
        combination: what they make.
        label: the state that it is.
        identity: of the combination; None for a sum less its residual.
        residual: for that one.
        confidence: from the margin.
    """

    slot: int
    combination: RankCombination
    label: Label
    identity: Identity | None
    residual: ResidualFit | None
    confidence: float


def judge_ranks(
    slot: RankSlot,
    alone: StateMeasurement | None,
    thresholds: Thresholds,
    names: Callable[[Candidate], Label],
) -> RankVerdict | None:
    """What the ranks of a slot make together; None where nothing that was tried is a known state.

    Args:
        slot: with its combinations.
        alone: the first rank's own state against the known ones: a rank that is a state by itself is no part of it.
        thresholds: to judge by.
        names: what each candidate is.
    """
    for combination in slot.combinations:
        found = (
            _by_residual(slot.slot, combination, thresholds)
            if combination.how == SUM_LESS_RESIDUAL
            else _by_identity(slot.slot, combination, alone, thresholds, names)
        )
        if found is not None:
            return found
    return None


def _by_identity(
    slot: int,
    combination: RankCombination,
    alone: StateMeasurement | None,
    thresholds: Thresholds,
    names: Callable[[Candidate], Label],
) -> RankVerdict | None:
    if combination.state is None:
        return None
    for family in ("boundaries", "trained"):
        identity = identify(combination.state, thresholds, family=family, names=names)
        if identity is None or not identity.settled:
            continue
        if combination.how == SUM and alone is not None and _is_near(alone, identity, thresholds):
            continue
        label = names(identity.candidate)
        return RankVerdict(slot, combination, label, identity, None, identity.confidence)
    return None


def _is_near(alone: StateMeasurement, identity: Identity, thresholds: Thresholds) -> bool:
    """Whether one rank alone is about as near to the state as all of them together."""
    own = next((c.distance for c in alone.candidates if c.label == identity.candidate.label), None)
    return own is not None and own <= max(thresholds.parity_distance, thresholds.margin * identity.candidate.distance)


def _by_residual(slot: int, combination: RankCombination, thresholds: Thresholds) -> RankVerdict | None:
    fits = [fit for fit in combination.residuals if fit.rows >= thresholds.min_tokens]
    plausible = [fit for fit in fits if LEAST_SHARE <= fit.share <= GREATEST_SHARE]
    if not plausible:
        return None
    best = plausible[0]
    if best.detour > GREATEST_DETOUR or best.candidate.boundary is None:
        return None
    runner_up = plausible[1].detour if len(plausible) > 1 else 2 * GREATEST_DETOUR
    margin = runner_up / best.detour
    if margin < DETOUR_MARGIN:
        return None
    return RankVerdict(
        slot, combination, best.candidate.boundary, None, best, round(min(0.999, 1 - 1 / (1 + margin) ** 2), 3)
    )


def rank_limit(rank: RankAgreement, thresholds: Thresholds) -> float:
    """Up to where a row that isn't equal to the first rank's can be the same row, rounded in another order."""
    return max(thresholds.parity_distance, thresholds.floor_factor * prior_floor(rank.dtype, None))


def rows_beyond(rank: RankAgreement, thresholds: Thresholds) -> int:
    """Rows that differ by more than that; those of a share of a state are no rows to compare."""
    if rank.shares is not None:
        return rank.rows
    limit = rank_limit(rank, thresholds)
    return sum(count for edge, count in rank.errors if edge > limit * STEP_RATIO)


def rows_apart(slot: RankSlot, thresholds: Thresholds) -> float:
    """The share of rows that differ by more than rounding, in the rank that differs most; 1 for shares of states."""
    shares = [
        1.0 if rank.shares is not None else rows_beyond(rank, thresholds) / rank.rows
        for rank in slot.ranks
        if rank.rows or rank.shares is not None
    ]
    return max(shares, default=0.0)
