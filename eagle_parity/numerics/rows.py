"""Per-token distances, and which tokens are sinks."""

from __future__ import annotations

import torch

SINK_RATIO = 6.0
"""A row whose norm exceeds the sequence's median by this factor is a sink. On SmolLM2-135M the first token stands at 9
to 150 times the median from boundary 3 on, every other token but one below 3."""
SINK_SHARE = 0.02
"""At most this share of a sequence's rows (and at least one) can be sinks: more would be the signal itself."""


def row_norms(rows_TD: torch.Tensor) -> torch.Tensor:
    """Euclidean norms ``[T]`` in float64; float32 sums of 7,168 squares of 22,000 would still fit, half ones not."""
    norms_T: torch.Tensor = torch.linalg.vector_norm(rows_TD.float(), dim=1, dtype=torch.float64)
    return norms_T


def row_errors(rows_TD: torch.Tensor, expected_TD: torch.Tensor) -> torch.Tensor:
    """``|rows - expected| / |expected|`` for each token: ``[T]`` float64.

    Inf where only ``expected`` is zero, NaN where either row has a NaN: a row that isn't there is no match.
    """
    difference_T = row_norms(rows_TD.float() - expected_TD.float())
    expected_T = row_norms(expected_TD)
    # Not "where expected > 0": that is false for NaN too, and would make a missing row an exact match.
    return torch.where((expected_T == 0) & (difference_T == 0), 0.0, difference_T / expected_T)


def find_sinks(norms_T: torch.Tensor) -> torch.Tensor:
    """Marks the sink tokens of one sequence: bool ``[T]``, from the norms of one state.

    Non-finite norms are no sinks: they are told apart as what they are.
    """
    finite_T = norms_T.isfinite()
    if not bool(finite_T.any()):
        return torch.zeros_like(finite_T)
    median = norms_T[finite_T].median()
    sinks_T = finite_T & (norms_T > SINK_RATIO * median)
    allowed = allowed_sinks(len(norms_T))
    if int(sinks_T.sum()) > allowed:
        # By place and not by a threshold: rows of one repeated token have one norm, however many they are.
        order_T = torch.where(sinks_T, norms_T, -torch.inf).argsort(descending=True, stable=True)
        sinks_T = torch.zeros_like(sinks_T)
        sinks_T[order_T[:allowed]] = True
    return sinks_T


def allowed_sinks(rows: int) -> int:
    """How many rows of a sequence can be sinks."""
    return max(1, int(SINK_SHARE * rows))


def repeated_token_errors(rows_TD: torch.Tensor, token_ids_T: torch.Tensor) -> torch.Tensor:
    """Errors between rows of equal tokens at different places of one sequence: ``[pairs]`` float64.

    Only the embedding gives one row a token wherever it stands: every decoder layer mixes its context in. Measured on
    SmolLM2-135M: exactly 0 at boundary 0, a median of 0.03 at boundary 1 and of 0.4 at boundary 28.
    """
    first, second, same_T = token_neighbours(token_ids_T)
    return row_errors(rows_TD[second[same_T]], rows_TD[first[same_T]])


def different_token_errors(rows_TD: torch.Tensor, token_ids_T: torch.Tensor) -> torch.Tensor:
    """Errors between rows of different tokens of one sequence: ``[pairs]`` float64.

    What tells the embedding from a dead state: zeros are one row a token as well, but the same for every token.
    """
    first, second, same_T = token_neighbours(token_ids_T)
    return row_errors(rows_TD[second[~same_T]], rows_TD[first[~same_T]])


def token_neighbours(token_ids_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Places (int64, two vectors) that follow each other in the order of their ids, and whether they have one token."""
    order_T = torch.argsort(token_ids_T, stable=True)
    return order_T[:-1], order_T[1:], token_ids_T[order_T][1:] == token_ids_T[order_T][:-1]
