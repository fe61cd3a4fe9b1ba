"""Partial sums that share a residual, ``live_r = R + p_r`` where the state is ``R + p_0 + p_1 + ...``.

Their sum has ``ranks - 1`` residuals too many. R isn't known, but each boundary k that the state could be gives one,
``R = (sum - boundary k) / (ranks - 1)``. It is the stream between the boundaries k-1 and k if the way over it is hardly
longer than the direct one, and if the ranks' parts go along that way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.alignment import Lost
from eagle_parity.comparison.recording import SUM_LESS_RESIDUAL, RankCombination, ResidualFit
from eagle_parity.comparison.sinks import pair_sinks
from eagle_parity.wiring import boundary_before

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.comparison.alignment import AlignedPair, Aligner
    from eagle_parity.comparison.pairing import SequencePair
    from eagle_parity.comparison.states import Candidate

KEPT_RESIDUALS = 4
"""Boundaries that a result keeps of those that partial sums could be."""


def measure_residuals(
    slots: Sequence[int], summed: Aligner, pairs: Sequence[SequencePair], ranks: Sequence[str]
) -> dict[int, RankCombination]:
    """For each slot the boundaries that partial sums with a residual could be, the shortest way first.

    Args:
        slots: which.
        summed: opens the pairs with the sum of the ranks as live side.
        pairs: a bounded number of them.
        ranks: two or more.
    """
    seen: dict[str, tuple[Candidate, int]] = {}
    values: dict[tuple[int, str], list[torch.Tensor]] = {}
    for pair in pairs:
        aligned = summed.align(pair)
        if not isinstance(aligned, Lost):
            _measure_pair(aligned, slots, len(ranks), seen, values)
    found = {}
    for slot in slots:
        fits = [
            fit
            for label, (candidate, before) in seen.items()
            if (fit := _fit(candidate, before, values[slot, label])) is not None
        ]
        fits.sort(key=lambda fit: fit.detour)
        if fits:
            found[slot] = RankCombination(how=SUM_LESS_RESIDUAL, order=list(ranks), residuals=fits[:KEPT_RESIDUALS])
    return found


def _measure_pair(
    aligned: AlignedPair,
    slots: Sequence[int],
    ranks: int,
    seen: dict[str, tuple[Candidate, int]],
    values: dict[tuple[int, str], list[torch.Tensor]],
) -> None:
    keep_T = ~pair_sinks(aligned)
    known = {candidate.boundary: (candidate, rows) for candidate, rows in aligned.known}
    for boundary, (candidate, rows) in known.items():
        before = boundary_before(boundary)
        if before is None or before not in known:
            continue
        seen[candidate.label] = candidate, before
        for low, high in aligned.blocks():
            kept_T = keep_T[low:high]
            after_TD, before_TD = rows.read(low, high)[kept_T], known[before][1].read(low, high)[kept_T]
            for slot in slots:
                sum_TD = aligned.live[slot].read(low, high)[kept_T]
                measured = share_and_detour(sum_TD.double(), after_TD.double(), before_TD.double(), ranks)
                values.setdefault((slot, candidate.label), []).append(measured)


def _fit(candidate: Candidate, before: int, measured: Sequence[torch.Tensor]) -> ResidualFit | None:
    both_2T = torch.cat(list(measured), dim=1)
    both_2T = both_2T[:, both_2T.isfinite().all(0)]
    if not both_2T.shape[1]:
        return None
    share, detour = both_2T.median(1).values.tolist()
    return ResidualFit(candidate=candidate, before=before, share=share, detour=detour, rows=both_2T.shape[1])


def share_and_detour(sum_TD: torch.Tensor, after_TD: torch.Tensor, before_TD: torch.Tensor, ranks: int) -> torch.Tensor:
    """How the residual that a boundary implies lies between it and the one before: float64 ``[2, T]``.

    Row 0 is the share of the way from ``before`` to ``after`` that the ranks' parts, ``after - R``, go along; row 1 the
    length of the way over R in units of the direct one.

    Args:
        sum_TD: of the ranks' states.
        after_TD: the boundary that the state could be.
        before_TD: the one before it.
        ranks: how many; at least two.
    """
    residual_TD = (sum_TD - after_TD) / (ranks - 1)
    parts_TD, way_TD = after_TD - residual_TD, after_TD - before_TD
    length_T = torch.linalg.vector_norm(way_TD, dim=1)
    share_T = (parts_TD * way_TD).sum(1) / length_T**2
    over_T = torch.linalg.vector_norm(parts_TD, dim=1) + torch.linalg.vector_norm(residual_TD - before_TD, dim=1)
    return torch.stack([share_T, over_T / length_T])
