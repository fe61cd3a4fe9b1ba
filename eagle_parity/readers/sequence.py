"""One stored sequence, opened: padding cut off, a left shift undone, quantised states with their scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.hidden_states import StateSequence
from eagle_parity.readers.containers.stored_tensor import (
    ScaledRows,
    StoredRows,
    UnreadableFileError,
    read_integers,
)
from eagle_parity.readers.prepared_dataset import NoMask

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from eagle_parity.hidden_states import Rows
    from eagle_parity.readers.containers.stored_tensor import Source, StoredTensor
    from eagle_parity.readers.reader import StoredSequence


def read_sequence(name: str, source: Source, stored: StoredSequence) -> StateSequence:
    """Reads the token ids and the masks of a sequence, and none of its states.

    Raises:
        UnreadableFileError: its attention mask isn't ones before zeros.
        InputError: the file has changed since its header was read.
    """
    length = _length(source, stored)
    # Of the ids of a shifted sequence the final one is filling.
    ids_length = length if length is None or not stored.left_shifted else max(0, length - 1)
    token_ids = _first(stored.token_ids, ids_length).read(source).long()
    loss_mask = None if stored.loss_mask is None else _first(stored.loss_mask, ids_length).read(source)
    skipped = 0
    if stored.left_shifted and length:
        if stored.first_token is None:
            skipped = 1
        else:
            token_ids = _with_first(token_ids, stored.first_token)
            # Nothing predicts the first token, so no loss is taken on it.
            loss_mask = None if loss_mask is None else _with_first(loss_mask, 0)

    def kept(tensor: StoredTensor) -> StoredTensor:
        part = _first(tensor, length)
        return part.between(0, skipped, part.shape[0]) if skipped else part

    def rows(state: StoredTensor) -> Rows:
        if stored.scales is None:
            return StoredRows(source, kept(state))
        return ScaledRows(source, kept(state), kept(stored.scales))

    no_loss_mask = ""
    if loss_mask is None and stored.prepared_dataset is not None:
        found = stored.prepared_dataset.mask_of(name, token_ids.numpy())
        if isinstance(found, NoMask):
            no_loss_mask = found.reason
        else:
            loss_mask = _as_tensor(found)
    return StateSequence(
        name=name,
        token_ids=token_ids,
        slots=tuple(rows(slot) for slot in stored.slots),
        last_state=None if stored.last_state is None else rows(stored.last_state),
        loss_mask=loss_mask,
        no_loss_mask=no_loss_mask,
    )


def has_mask(name: str, source: Source, stored: StoredSequence) -> NoMask | None:
    """Why a sequence's mask can't be had from the dataset beside it; None where it can. Without torch.

    Raises:
        UnreadableFileError, InputError: as for ``read_sequence``.
    """
    import numpy as np

    if stored.prepared_dataset is None:
        return None
    if stored.token_ids.stride != (1,):
        raise UnreadableFileError("token ids with gaps between them")
    found = stored.prepared_dataset.mask_of(name, np.array(read_integers(source, stored.token_ids), dtype=np.int64))
    return found if isinstance(found, NoMask) else None


def count_tokens(source: Source, stored: StoredSequence) -> int:
    """The number of token ids, without torch.

    Raises:
        UnreadableFileError, InputError: as for ``read_sequence``.
    """
    length = _length(source, stored)
    count = stored.token_ids.shape[0] if length is None else length
    return max(0, count - 1) if stored.left_shifted and stored.first_token is None else count


def _length(source: Source, stored: StoredSequence) -> int | None:
    """How many leading rows aren't padding; None where all are taken."""
    if stored.attention_mask is None:
        return stored.token_ids.shape[0] if stored.left_shifted else None
    mask = read_integers(source, stored.attention_mask)
    length = sum(1 for attended in mask if attended)
    if not all(mask[:length]):
        raise UnreadableFileError(
            "its attention mask isn't ones before zeros: it is padded elsewhere than on the right"
        )
    return length


def _first(tensor: StoredTensor, length: int | None) -> StoredTensor:
    return tensor if length is None else tensor.between(0, 0, min(length, tensor.shape[0]))


def _as_tensor(values: npt.NDArray[np.int64]) -> torch.Tensor:
    import torch

    return torch.from_numpy(values)


def _with_first(vector: torch.Tensor, value: int) -> torch.Tensor:
    import torch

    return torch.cat([vector.new_tensor([value]), vector])
