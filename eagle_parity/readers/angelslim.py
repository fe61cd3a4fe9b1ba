"""``hidden_states [1, T, K*H]`` with ``target_hiddens [1, T, H]``: Tencent's AngelSlim.

``tools/generate_hidden_for_draft_model.py:265-269`` at 67394ce. What else its backend returns is stored too, such as
the position ids of a vision model; it isn't needed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.hidden_states import LastStateRule, Layout
from eagle_parity.readers.reader import LAYERS_NOT_RECORDED, Reader, Recognised, beside_last_state
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
    sequence = beside_last_state(table, AUX, LAST, TOKEN_IDS, batch=True)
    slots, hidden_size = sequence.slots, sequence.slots[0].shape[1]
    layout = Layout(
        format="angelslim",
        description=f"AngelSlim: {AUX} [1, T, {len(slots)} * {hidden_size}], {LAST} after the final norm",
        slots=len(slots),
        hidden_size=hidden_size,
        dtype=slots[0].dtype,
        last_state=LastStateRule.STORED,
        last_state_boundary=POST_NORM,
        unknown=(LAYERS_NOT_RECORDED,),
        facts={"order": "as listed in the trainer's config"},
    )
    return Recognised(layout, sequence)


ANGELSLIM = Reader("angelslim", "AngelSlim", _recognise)
