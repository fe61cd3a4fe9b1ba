"""``hidden_states [1, T, K*H]`` with ``target_hiddens [1, T, H]``: Tencent's AngelSlim.

``tools/generate_hidden_for_draft_model.py:265-269`` at 67394ce. What else its backend returns is stored too, such as
the position ids of a vision model; it isn't needed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.hidden_states import LastStateRule, Layout
from eagle_parity.readers.reader import (
    LAYERS_NOT_RECORDED,
    Reader,
    Recognised,
    StoredSequence,
    mask_vector,
    slots_beside,
    state_matrix,
    token_vector,
)
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

AUX = "hidden_states"
LAST = "target_hiddens"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    if not {AUX, LAST, TOKEN_IDS} <= table.tensors.keys():
        return None
    aux, last = (state_matrix(table, key, batch=True) for key in (AUX, LAST))
    slots = slots_beside(aux, last, AUX, LAST)
    layout = Layout(
        format="angelslim",
        description=f"AngelSlim: {AUX} [1, T, {len(slots)} * {last.shape[1]}], {LAST} after the final norm",
        slots=len(slots),
        hidden_size=last.shape[1],
        dtype=aux.dtype,
        last_state=LastStateRule.STORED,
        last_state_boundary=POST_NORM,
        unknown=(LAYERS_NOT_RECORDED,),
        facts={"order": "as listed in the trainer's config"},
    )
    return Recognised(
        layout,
        StoredSequence(
            token_ids=token_vector(table.tensors[TOKEN_IDS], TOKEN_IDS),
            slots=slots,
            last_state=last,
            loss_mask=mask_vector(table),
        ),
    )


ANGELSLIM = Reader("angelslim", "AngelSlim", _recognise)
