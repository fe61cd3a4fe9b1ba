"""What every reader of an on-disk layout gives: from a table of tensors to slots, without reading a number."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003  a dataclass field
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.hidden_states import Layout  # noqa: TC001  a dataclass field
from eagle_parity.readers.companions import Companions  # noqa: TC001  as above
from eagle_parity.readers.containers.stored_tensor import (
    INTEGER_DTYPES,
    STATE_DTYPES,
    StoredTensor,
    UnreadableFileError,
)
from eagle_parity.readers.containers.tensor_table import TensorTable  # noqa: TC001  as above
from eagle_parity.readers.prepared_dataset import PreparedDataset  # noqa: TC001  as above
from eagle_parity.wiring import MAX_BOUNDARIES

if TYPE_CHECKING:
    from collections.abc import Sequence

LAYERS_NOT_RECORDED = (
    "of which layers the states are: `diff-captures --reference` measures it, `--trained-with` (the trainer and its"
    " version) or `--trained-boundaries` states it"
)
"""What most layouts can't say."""


MAX_SEQUENCES = 65_536
"""In one file; NeMo writes 256. A header that claims more is refused before a name is made for each."""


@dataclass(frozen=True, slots=True)
class StoredSequence:
    """Where the parts of one sequence lie in a file.

    Attributes:
        token_ids: integers ``[T]``.
        slots: ``[T, H]`` each, in concatenation order.
        last_state: ``[T, H]``, where the layout stores one.
        loss_mask: ``[T]``, where there is one.
        prepared_dataset: which keeps the loss mask, where the file doesn't.
        scales: ``[T]``, where the states are quantised: a row is what is stored times its scale.
        attention_mask: ``[T]``, where the sequence is padded on the right and this tells by how much.
        left_shifted: whether ids and loss mask stand one row early: row t of them is about the token of state t + 1.
            What belongs to the first state is not in the file.
        first_token: its id, where somebody has stated it.
    """

    token_ids: StoredTensor
    slots: tuple[StoredTensor, ...]
    last_state: StoredTensor | None = None
    loss_mask: StoredTensor | None = None
    prepared_dataset: PreparedDataset | None = None
    scales: StoredTensor | None = None
    attention_mask: StoredTensor | None = None
    left_shifted: bool = False
    first_token: int | None = None


@dataclass(frozen=True, slots=True)
class Recognised:
    """One file that a reader knows.

    Attributes:
        layout: what it says of itself and of the files beside it.
        sequence: the one in it, or the first of several.
        count: how many there are.
        nth: gives each of them, where files of this layout hold several.
    """

    layout: Layout
    sequence: StoredSequence
    count: int = 1
    nth: Callable[[int], StoredSequence] | None = None

    def at(self, index: int) -> StoredSequence:
        """One of the file's sequences."""
        return self.sequence if self.nth is None else self.nth(index)


@dataclass(frozen=True, slots=True)
class Reader:
    """One on-disk layout.

    Attributes:
        name: as ``Layout.format`` has it.
        written_by: who writes it.
        recognise: the file's parts, or None where it is of another layout. Raises UnreadableFileError where it is of
            this one and can't be used.
    """

    name: str
    written_by: str
    recognise: Callable[[TensorTable, Companions], Recognised | None]


def is_state(tensor: StoredTensor | None, rank: int) -> bool:
    """Whether a tensor can hold hidden states: a float dtype, this many dimensions, a hidden size above zero."""
    return tensor is not None and tensor.dtype in STATE_DTYPES and len(tensor.shape) == rank and tensor.shape[-1] > 0


def token_vector(tensor: StoredTensor, key: str) -> StoredTensor:
    """Token ids or a mask as ``[T]``, from ``[T]`` or ``[1, T]``.

    Raises:
        UnreadableFileError: it is neither.
    """
    vector = tensor
    if len(vector.shape) == 2 and vector.shape[0] == 1:  # noqa: PLR2004  a batch of one
        vector = vector.at(0, 0)
    if len(vector.shape) != 1 or vector.dtype not in INTEGER_DTYPES | {"bool"}:
        raise UnreadableFileError(f"{key} is {tensor}; expected integers, one a token")
    return vector


def mask_vector(table: TensorTable) -> StoredTensor | None:
    """``loss_mask`` as ``[T]``, where there is one.

    Raises:
        UnreadableFileError: it isn't integers, one a token.
    """
    mask = table.tensors.get("loss_mask")
    return None if mask is None else token_vector(mask, "loss_mask")


def check_slot_count(count: int) -> None:
    """Whether a number of slots can be one.

    Raises:
        UnreadableFileError: no slot, or more than any model has layers.
    """
    if not 1 <= count <= MAX_BOUNDARIES:
        raise UnreadableFileError(f"{count:,} states a token; expected 1 to {MAX_BOUNDARIES}")


def state_matrix(table: TensorTable, key: str, *, batch: bool) -> StoredTensor:
    """A state or a concatenation of states as ``[T, width]``, from that or from ``[1, T, width]``.

    Raises:
        UnreadableFileError: it is no such thing.
    """
    tensor = table.tensors[key]
    shape = "[1, T, width]" if batch else "[T, width]"
    if not is_state(tensor, 3 if batch else 2) or (batch and tensor.shape[0] != 1):
        raise UnreadableFileError(f"{key} is {tensor}; expected floats {shape}")
    return tensor.at(0, 0) if batch else tensor


def slots_beside(aux: StoredTensor, last: StoredTensor, aux_key: str, last_key: str) -> tuple[StoredTensor, ...]:
    """The slots of a concatenation, by the width of the last state that is stored beside it.

    Raises:
        UnreadableFileError: the one is no multiple of the other.
    """
    width, hidden_size = aux.shape[1], last.shape[1]
    if width % hidden_size:
        raise UnreadableFileError(
            f"{aux_key} is {width:,} wide and {last_key} {hidden_size:,}: the one is no multiple of the other"
        )
    check_slot_count(width // hidden_size)
    return split_columns(aux, hidden_size)


def beside_last_state(table: TensorTable, aux_key: str, last_key: str, ids_key: str, *, batch: bool) -> StoredSequence:
    """One sequence of a file that holds the slots' concatenation and, beside it, the last state.

    Args:
        table: of the file; the keys are in it.
        aux_key: ``[T, K * H]``.
        last_key: ``[T, H]``, which settles H.
        ids_key: ``[T]``.
        batch: whether the states have a batch dimension of one in front.

    Raises:
        UnreadableFileError: ranks or widths don't fit.
    """
    aux, last = (state_matrix(table, key, batch=batch) for key in (aux_key, last_key))
    return StoredSequence(
        token_ids=token_vector(table.tensors[ids_key], ids_key),
        slots=slots_beside(aux, last, aux_key, last_key),
        last_state=last,
        loss_mask=mask_vector(table),
    )


def split_columns(states: StoredTensor, hidden_size: int) -> tuple[StoredTensor, ...]:
    """The slots of a concatenation ``[T, K * H]``."""
    width = states.shape[1]
    return tuple(states.between(1, first, first + hidden_size) for first in range(0, width, hidden_size))


def all_alike(states: Sequence[StoredTensor]) -> bool:
    """Whether several states have one hidden size and one dtype."""
    return len({(state.shape[-1], state.dtype) for state in states}) == 1
