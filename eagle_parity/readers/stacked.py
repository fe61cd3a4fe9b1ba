"""``hidden_states [T, S, H]`` with ``token_ids [T]``: vLLM's connector, and speculators 0.5 and newer on top of it.

vLLM 0.32.0 (``example_hidden_states_connector.py``) writes one safetensors file a request with the states of the
requested layers in ascending order, whatever order was asked for. Speculators (0.5 to 0.9, ``train/data.py``,
``models/utils.py``) always asks for the last layer too and takes the final state as the last state, before the norm.
The files are the same; only the arrow dataset beside speculators' tells them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.hidden_states import LastStateRule, Layout
from eagle_parity.readers.containers.stored_tensor import UnreadableFileError
from eagle_parity.readers.reader import (
    LAYERS_NOT_RECORDED,
    Reader,
    Recognised,
    StoredSequence,
    check_slot_count,
    is_state,
    mask_vector,
    token_vector,
)

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

STATES = "hidden_states"
TOKEN_IDS = "token_ids"  # noqa: S105  a tensor's name
SCALES = "hidden_states_scales"

_RANK = 3
_FEWEST_WITH_LAST = 2
"""A slot and a last state; speculators never stores fewer."""

_LAST_UNDECIDED = (
    "whether the final state is a slot or the last state: `diff-captures --reference` measures it,"
    " `--trained-boundaries` with one more entry than slots states it"
)


def _recognise(table: TensorTable, companions: Companions) -> Recognised | None:
    states = table.tensors.get(STATES)
    token_ids = table.tensors.get(TOKEN_IDS)
    if states is None or token_ids is None or len(states.shape) != _RANK:
        return None
    if SCALES in table.tensors or states.dtype.startswith("float8"):
        raise UnreadableFileError(
            f"{STATES} is {states} with scales (hs-connectors' FP8 files); only unquantised states are read"
        )
    if not is_state(states, _RANK):
        raise UnreadableFileError(f"{STATES} is {states}; expected half or full precision [T, S, H]")
    _, count, hidden_size = states.shape
    check_slot_count(count)
    parts = tuple(states.at(1, i) for i in range(count))
    has_last = companions.prepared_dataset and count >= _FEWEST_WITH_LAST
    layout = Layout(
        format="stacked",
        description=(
            f"speculators 0.5 or newer: {STATES} [T, {count}, {hidden_size}], the final state is the last state"
            if has_last
            else f"vLLM's hidden states connector or speculators 0.5 and newer: {STATES} [T, {count}, {hidden_size}]"
        ),
        slots=count - 1 if has_last else count,
        hidden_size=hidden_size,
        dtype=states.dtype,
        last_state=LastStateRule.STORED if has_last else LastStateRule.UNDECIDED,
        unknown=(LAYERS_NOT_RECORDED,) if has_last else (LAYERS_NOT_RECORDED, _LAST_UNDECIDED),
        # Which number the last boundary has depends on the target, which these files don't name.
        facts={"order": "ascending layers", **({"last_state_stage": "pre_norm"} if has_last else {})},
    )
    return Recognised(
        layout,
        StoredSequence(
            token_ids=token_vector(token_ids, TOKEN_IDS),
            slots=parts[:-1] if has_last else parts,
            last_state=parts[-1] if has_last else None,
            loss_mask=mask_vector(table),
        ),
    )


STACKED = Reader("stacked", "vLLM's hidden states connector, speculators 0.5 and newer", _recognise)
