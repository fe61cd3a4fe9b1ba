"""Which tokens of a pair are sinks, without reading a long sequence twice.

A sink stands out from the median of its sequence, which is known when all of it was read. What stands out from its
first 256 rows is set aside while the rest is compared, and looked at once at the end: a sequence's norms don't drift by
the factor that makes a sink, and of shorter ones these rows are the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.numerics.rows import SINK_RATIO, allowed_sinks, row_norms

if TYPE_CHECKING:
    from eagle_parity.comparison.alignment import AlignedPair

SAMPLED_ROWS = 256


def sink_limits(pair: AlignedPair) -> torch.Tensor:
    """The norm beyond which a row of each state stands out, trained slots first, then live ones: float64 ``[N]``.

    NaN where no row that was looked at is a number: nothing stands out there.
    """
    return limits_of(_norms(pair, 0, min(SAMPLED_ROWS, pair.length)))


def limits_of(norms_NT: torch.Tensor) -> torch.Tensor:
    """The limits ``[N]`` by the norms of a sequence's first rows, float64 ``[N, T]``."""
    finite_NT = torch.where(norms_NT.isfinite(), norms_NT, torch.nan)
    return SINK_RATIO * finite_NT.nanmedian(1).values


def stands_out(norms_NT: torch.Tensor, limits_N: torch.Tensor) -> torch.Tensor:
    """Rows that stand out in any state: bool ``[T]``."""
    return ((norms_NT > limits_N[:, None]) & norms_NT.isfinite()).any(0)


def choose_sinks(norms_NT: torch.Tensor, limits_N: torch.Tensor, length: int) -> torch.Tensor:
    """Which of the rows that stand out are sinks: bool ``[T]``.

    Args:
        norms_NT: float64, of the rows that stand out, all of one sequence.
        limits_N: as above.
        length: of the sequence, of which a share at most can be sinks.
    """
    sinks_T = torch.zeros(norms_NT.shape[1], dtype=torch.bool)
    allowed = allowed_sinks(length)
    for norms_T, limit in zip(norms_NT, limits_N, strict=True):
        beyond_T = (norms_T > limit) & norms_T.isfinite()
        # By place and not by a threshold: rows of one repeated token have one norm, however many they are.
        order_T = torch.where(beyond_T, norms_T, -torch.inf).argsort(descending=True, stable=True)
        first_T = order_T[: min(allowed, int(beyond_T.sum()))]
        sinks_T[first_T] = True
    return sinks_T


def pair_sinks(pair: AlignedPair) -> torch.Tensor:
    """The sink tokens of a pair, bool ``[length]``: a sink in any slot of either side is one in all."""
    limits_N = sink_limits(pair)
    sinks_T = torch.zeros(pair.length, dtype=torch.bool)
    norms_NT = torch.cat([_norms(pair, low, high) for low, high in pair.blocks()], dim=1)
    standing = stands_out(norms_NT, limits_N).nonzero().flatten()
    sinks_T[standing] = choose_sinks(norms_NT[:, standing], limits_N, pair.length)
    return sinks_T


def _norms(pair: AlignedPair, low: int, high: int) -> torch.Tensor:
    return torch.stack([row_norms(state.read(low, high)) for state in (*pair.trained, *pair.live)])
