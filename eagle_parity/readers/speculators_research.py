"""``hidden_state [T, K*H]`` with ``target [T, H]``: the research scripts of speculators 0.0 to 0.2, EAGLE-3 and HASS.

speculators v0.2.0, ``research/eagle3/ge_data/llamaultrachat.py:121-126`` and ``research/hass/ge_data``: the states are
taken from transformers' list, the third, the one behind the middle and the third from the end; ``target`` is its final
entry, which is after the final norm.
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
LAST = "target"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    if not {AUX, LAST, TOKEN_IDS} <= table.tensors.keys():
        return None
    sequence = beside_last_state(table, AUX, LAST, TOKEN_IDS, batch=False)
    slots, hidden_size = sequence.slots, sequence.slots[0].shape[1]
    layout = Layout(
        format="speculators-research",
        description=(
            f"speculators 0.0 to 0.2, research scripts: {AUX} [T, {len(slots)} * {hidden_size}], {LAST} after the"
            " final norm"
        ),
        slots=len(slots),
        hidden_size=hidden_size,
        dtype=slots[0].dtype,
        last_state=LastStateRule.STORED,
        last_state_boundary=POST_NORM,
        unknown=(LAYERS_NOT_RECORDED,),
        facts={
            "order": "as listed in the script",
            "layers_by_the_script": "boundaries 3, N//2 + 1 and N - 2 of a target with N layers",
        },
    )
    return Recognised(layout, sequence)


SPECULATORS_RESEARCH = Reader(
    "speculators-research", "speculators 0.0 to 0.2, research/eagle3 and research/hass", _recognise
)
