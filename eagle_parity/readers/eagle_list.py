"""``hs``, a list of ``[T, H]``: the tensors that EAGLE-3's own training captures, saved.

EAGLE-3 trains online and writes no shard: its model collects the states in a list
(``traineagle3/modeling_llama_kv.py:1139`` at cb7e084), and this is that list under the name that it has there. It has
no last state: the trainer keeps logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.hidden_states import Layout
from eagle_parity.readers.containers.stored_tensor import UnreadableFileError
from eagle_parity.readers.reader import (
    LAYERS_NOT_RECORDED,
    Reader,
    Recognised,
    StoredSequence,
    all_alike,
    check_slot_count,
    is_state,
    mask_vector,
    token_vector,
)

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.stored_tensor import StoredTensor
    from eagle_parity.readers.containers.tensor_table import TensorTable

STATES = "hs"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name

_RANK = 2


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    states, token_ids = table.lists.get(STATES), table.tensors.get(TOKEN_IDS)
    if states is None or token_ids is None:
        return None
    slots = tuple(_without_batch(state) for state in states)
    if not all(is_state(slot, _RANK) for slot in slots) or not all_alike(slots):
        told = ", ".join(str(state) for state in states[:4])
        raise UnreadableFileError(f"{STATES} is a list of {told}; expected floats [T, H] of one width")
    check_slot_count(len(slots))
    layout = Layout(
        format="eagle-list",
        description=f"EAGLE-3's own captures, saved: a list of {len(slots)} {STATES} [T, {slots[0].shape[1]}]",
        slots=len(slots),
        hidden_size=slots[0].shape[1],
        dtype=slots[0].dtype,
        unknown=(LAYERS_NOT_RECORDED,),
        facts={
            "order": "ascending layers",
            "layers_by_the_script": "boundaries 2, N//2 and N - 3 of a target with N layers",
        },
    )
    return Recognised(
        layout,
        StoredSequence(token_ids=token_vector(token_ids, TOKEN_IDS), slots=slots, loss_mask=mask_vector(table)),
    )


def _without_batch(state: StoredTensor) -> StoredTensor:
    return state.at(0, 0) if len(state.shape) == _RANK + 1 and state.shape[0] == 1 else state


EAGLE_LIST = Reader("eagle-list", "EAGLE-3 (SafeAILab), its captured states saved", _recognise)
