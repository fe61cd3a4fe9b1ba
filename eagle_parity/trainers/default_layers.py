"""The layers that trainers take where nothing names any: low, middle and high, in the two ways of counting."""

from __future__ import annotations


def as_boundaries(num_layers: int) -> tuple[int, ...]:
    """``[2, n//2, n-3]``, which engines take as boundaries, and old speculators as layer outputs."""
    return (2, num_layers // 2, num_layers - 3)


def as_layer_outputs(num_layers: int) -> tuple[int, ...]:
    """``[1, n//2-1, n-4]``: the same layers by their outputs, counted from 0."""
    return (1, num_layers // 2 - 1, num_layers - 4)
