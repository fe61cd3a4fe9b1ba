"""Which rows of a sequence are sinks, by their norms.

Shape letters: T rows, N states.
"""

from __future__ import annotations

import torch

SAMPLED_ROWS = 128
"""First rows of a sequence by whose median the others are judged: norms don't drift by the factor that makes a sink."""
SINK_RATIO = 6.0
"""A row whose norm exceeds the sequence's median by this factor is a sink. On SmolLM2-135M the first token stands at 9
to 150 times the median from boundary 3 on, every other token but one below 3."""
SINK_SHARE = 0.02
"""At most this share of a sequence's rows (and at least one) can be sinks: more would be the signal itself."""


def allowed_sinks(rows: int) -> int:
    """How many rows of a sequence can be sinks."""
    return max(1, int(SINK_SHARE * rows))


def limits_of(norms_NT: torch.Tensor) -> torch.Tensor:
    """The norms ``[..., N]`` beyond which a row stands out, from those of a sequence's first rows.

    ``norms_NT`` is float64 ``[..., N, T]``: of several sequences, say, padded with NaN. NaN where no row that was
    looked at is a number: nothing stands out there.
    """
    norms_NT = norms_NT[..., :SAMPLED_ROWS]
    finite_NT = torch.where(norms_NT.isfinite(), norms_NT, torch.nan)
    return SINK_RATIO * finite_NT.nanmedian(-1).values


def stands_out(norms_NT: torch.Tensor, limits_NT: torch.Tensor) -> torch.Tensor:
    """Rows that stand out in any state: bool ``[T]``; limits are a row's own, or ``[N, 1]`` those of all."""
    return ((norms_NT > limits_NT) & norms_NT.isfinite()).any(0)


def choose_sinks(norms_NT: torch.Tensor, limits_N: torch.Tensor, length: int) -> torch.Tensor:
    """Which of the rows that stand out are sinks: bool ``[T]``.

    Args:
        norms_NT: float64, of the rows that stand out, all of one sequence.
        limits_N: as above.
        length: of the sequence, of which a share at most can be sinks.
    """
    if len(norms_NT) != len(limits_N):
        raise ValueError(f"{len(limits_N)} limits for {len(norms_NT)} states")
    sinks_T = torch.zeros(norms_NT.shape[1], dtype=torch.bool)
    beyond_NT = (norms_NT > limits_N[:, None]) & norms_NT.isfinite()
    # By place and not by a threshold: rows of one repeated token have one norm, however many they are.
    order_NT = torch.where(beyond_NT, norms_NT, -torch.inf).argsort(dim=1, descending=True, stable=True)
    first_NR = order_NT[:, : allowed_sinks(length)]
    sinks_T[first_NR[beyond_NT.gather(1, first_NR)]] = True
    return sinks_T


def find_sinks(norms_NT: torch.Tensor) -> torch.Tensor:
    """The sinks of a whole sequence: bool ``[T]``, a sink in any state is one in all."""
    limits_N = limits_of(norms_NT)
    sinks_T = torch.zeros(norms_NT.shape[1], dtype=torch.bool)
    standing = stands_out(norms_NT, limits_N[:, None]).nonzero().flatten()
    sinks_T[standing] = choose_sinks(norms_NT[:, standing], limits_N, norms_NT.shape[1])
    return sinks_T
