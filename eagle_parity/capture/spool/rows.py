"""Rows out of the tensors of a forward: looked at before they are believed, and copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.capture.spool.files import PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch


def check_rows(tensors: Mapping[str, torch.Tensor], end: int, *, alone: bool) -> None:
    """Whether the tensors can hold the rows that are asked of them.

    Args:
        tensors: ``[n]`` where they are ``PER_TOKEN``, ``[n, H]`` else.
        end: the last row that is asked for, and one.
        alone: whether one request has all rows from the first on.

    Raises:
        ValueError: one of them has another shape.
    """
    for name, tensor in tensors.items():
        per_token = name in PER_TOKEN
        # A state may be a rank's share of the rows: of one request that can be told, of several it can't.
        if tensor.ndim != (1 if per_token else 2) or (tensor.shape[0] < end and (per_token or not alone)):
            raise ValueError(f"{name} is {tuple(tensor.shape)}, and the batch has {end} rows or more")


def row_bytes(tensor: torch.Tensor) -> int:
    """What one row of it takes."""
    return tensor.element_size() * (tensor.numel() // max(1, tensor.shape[0]))


def copied_rows(tensor: torch.Tensor, where: Sequence[slice]) -> torch.Tensor:
    """The rows in memory of their own: the engine uses its buffers again with the next forward."""
    import torch

    picked = tensor.detach()[where[0]] if len(where) == 1 else torch.cat([tensor.detach()[one] for one in where])
    return picked.to("cpu", copy=True).contiguous()
