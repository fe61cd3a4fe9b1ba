"""Rows of all states of a sequence at once: states that lie between each other in a file are read in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.readers.containers.stored_tensor import ITEM_BYTES, StoredRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.hidden_states import Rows
    from eagle_parity.readers.containers.stored_tensor import Source, StoredTensor


def read_states(states: Sequence[Rows], start: int, stop: int) -> torch.Tensor:
    """Rows ``start`` to ``stop`` of every state, float32 ``[stop - start, S, H]``.

    Args:
        states: of one sequence, all of one hidden size.
        start: the first row; every state has the rows.
        stop: behind the last one.

    Raises:
        InputError: the file has changed since it was opened.
    """
    out_TSH = torch.empty((stop - start, len(states), states[0].hidden_size), dtype=torch.float32)
    plain = {place: state for place, state in enumerate(states) if type(state) is StoredRows}
    parts = {place: state.stored.between(0, start, stop) for place, state in plain.items()}
    for places in _together(parts):
        source = plain[places[0]].source
        read = _read([parts[place] for place in places], source)
        for place, state_TH in zip(places, read, strict=True):
            out_TSH[:, place] = state_TH
    for place, state in enumerate(states):
        if place not in plain:
            out_TSH[:, place] = state.read(start, stop)
    return out_TSH


def _together(parts: dict[int, StoredTensor]) -> list[list[int]]:
    """Which of the parts lie between each other, so that reading one reads most of the others."""
    groups: list[list[int]] = []
    behind = -1
    for place in sorted(parts, key=lambda place: parts[place].start):
        part = parts[place]
        if groups and part.start < behind and part.dtype == parts[groups[-1][0]].dtype:
            groups[-1].append(place)
        else:
            groups.append([place])
        behind = max(behind if len(groups[-1]) > 1 else -1, _end(part))
    return groups


def _end(part: StoredTensor) -> int:
    return part.start + part.span * ITEM_BYTES[part.dtype]


def _read(parts: Sequence[StoredTensor], source: Source) -> list[torch.Tensor]:
    if len(parts) == 1 or not parts[0].numbers:
        return [part.read(source) for part in parts]
    item = ITEM_BYTES[parts[0].dtype]
    first = parts[0].start
    data = source.read(first, max(map(_end, parts)) - first)
    flat = torch.frombuffer(data, dtype=getattr(torch, parts[0].dtype))
    # Offsets within one tensor of a file are whole numbers of items; of two tensors they needn't be.
    return [
        flat.as_strided(part.shape, part.stride, (part.start - first) // item)
        if (part.start - first) % item == 0
        else part.read(source)
        for part in parts
    ]
