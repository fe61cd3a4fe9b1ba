"""``hidden_state [T, H]`` alone: EAGLE-1 and EAGLE-2, which train on the last state.

SafeAILab/EAGLE at f872b7f, ``eagle/ge_data/ge_data_all_llama3.py:194-211``: transformers' final hidden state, which is
after the final norm. There are no slots: of EAGLE-3's inputs only the last state can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.hidden_states import LastStateRule, Layout
from eagle_parity.readers.reader import Reader, Recognised, StoredSequence, is_state, mask_vector, token_vector
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

LAST = "hidden_state"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name

_RANK = 2
_TENSORS = frozenset({LAST, TOKEN_IDS, "loss_mask"})
"""No other: beside any further tensor of states ``hidden_state`` means something else."""

_NO_SLOTS = (
    "states of layers: there are none. EAGLE-1 and EAGLE-2 train on the last state alone, so for EAGLE-3 there is"
    " nothing to compare but that; `diff-captures --reference` measures which state it is"
)


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    last, token_ids = table.tensors.get(LAST), table.tensors.get(TOKEN_IDS)
    if last is None or token_ids is None or not table.tensors.keys() <= _TENSORS or not is_state(last, _RANK):
        return None
    layout = Layout(
        format="eagle-last-state",
        description=f"EAGLE-1 or EAGLE-2: {LAST} [T, {last.shape[1]}] after the final norm, and no slots",
        slots=0,
        hidden_size=last.shape[1],
        dtype=last.dtype,
        last_state=LastStateRule.STORED,
        last_state_boundary=POST_NORM,
        unknown=(_NO_SLOTS,),
    )
    return Recognised(
        layout,
        StoredSequence(
            token_ids=token_vector(token_ids, TOKEN_IDS), slots=(), last_state=last, loss_mask=mask_vector(table)
        ),
    )


EAGLE_LAST_STATE = Reader("eagle-last-state", "EAGLE-1 and EAGLE-2, ge_data", _recognise)
