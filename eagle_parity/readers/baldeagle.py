"""``hidden_state [1, T, K*H]`` with ``target_hidden_states [1, T, H]``: BaldEagle.

From its generator's source; no file of it was at hand. The states are cut at the longest length that it trains on, the
token ids aren't, so there can be more ids than rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.hidden_states import LastStateRule, Layout
from eagle_parity.readers.reader import LAYERS_NOT_RECORDED, Reader, Recognised, beside_last_state
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

AUX = "hidden_state"
LAST = "target_hidden_states"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    if not {AUX, LAST, TOKEN_IDS} <= table.tensors.keys():
        return None
    sequence = beside_last_state(table, AUX, LAST, TOKEN_IDS, batch=True)
    slots, hidden_size = sequence.slots, sequence.slots[0].shape[1]
    layout = Layout(
        format="baldeagle",
        description=f"BaldEagle: {AUX} [1, T, {len(slots)} * {hidden_size}], {LAST} after the final norm",
        slots=len(slots),
        hidden_size=hidden_size,
        dtype=slots[0].dtype,
        last_state=LastStateRule.STORED,
        last_state_boundary=POST_NORM,
        unknown=(LAYERS_NOT_RECORDED,),
        facts={
            "order": "ascending layers",
            "layers_by_the_script": "boundaries 2, N//2 and N - 3 of a target with N layers",
            "token_ids": "can go on where the states were cut",
        },
    )
    return Recognised(layout, sequence)


BALDEAGLE = Reader("baldeagle", "BaldEagle", _recognise)
