"""``hidden_state [1, T, K*H]`` alone: SpecForge of 9 November 2025, whose concatenation stands under that name.

SpecForge at 35504d45 mixed up its SGLang and transformers paths: there is no ``aux_hidden_state``, and ``hidden_state``
holds what belongs there. Ids and mask are padded, the states aren't, so there can be more ids than rows.
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
    is_state,
    mask_vector,
    split_columns,
    state_matrix,
    token_vector,
)

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

AUX = "hidden_state"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name

_RANK = 3
_SLOTS = 3
"""SpecForge captures three layers by default, and nothing in the file tells H."""
_TENSORS = frozenset({AUX, TOKEN_IDS, "loss_mask"})
"""No other: beside any further tensor of states ``hidden_state`` means something else."""

_WIDTH_ASSUMED = (
    "how wide a state is: nothing in the file tells H, so three slots are taken for granted, as SpecForge captures by"
    " default. Hold H against hidden_size in the target's config.json (`inspect TARGET`); if the whole width is H, this"
    " is a single last state and no file of SpecForge's"
)


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    states, token_ids = table.tensors.get(AUX), table.tensors.get(TOKEN_IDS)
    if states is None or token_ids is None or not table.tensors.keys() <= _TENSORS or not is_state(states, _RANK):
        return None
    aux = state_matrix(table, AUX, batch=True)
    width = aux.shape[1]
    if width % _SLOTS:
        raise UnreadableFileError(
            f"ambiguous: {AUX} is {states} and no other state is beside it. SpecForge of 9 November 2025 stored three"
            f" slots that way, but {width:,} is no multiple of three; as a single last state no trainer is known to"
        )
    layout = Layout(
        format="specforge-aux-only",
        description=f"SpecForge of 9 November 2025: {AUX} [1, T, {_SLOTS} * {width // _SLOTS}] holds the slots",
        slots=_SLOTS,
        hidden_size=width // _SLOTS,
        dtype=aux.dtype,
        unknown=(LAYERS_NOT_RECORDED, _WIDTH_ASSUMED),
        facts={"order": "as listed in the trainer's config", "padding": "of the ids alone: right, token id 0"},
    )
    return Recognised(
        layout,
        StoredSequence(
            token_ids=token_vector(token_ids, TOKEN_IDS),
            slots=split_columns(aux, width // _SLOTS),
            loss_mask=mask_vector(table),
        ),
    )


SPECFORGE_AUX_ONLY = Reader("specforge-aux-only", "SpecForge of 9 November 2025", _recognise)
