"""``hidden_states [T, S, H]`` with ``token_ids [T]``: vLLM's connector, and speculators 0.5 and newer on top of it.

vLLM 0.32.0 (``example_hidden_states_connector.py``) writes one safetensors file a request with the states of the
requested layers in ascending order, whatever order was asked for. Speculators (0.5 to 0.9, ``train/data.py``,
``models/utils.py``) always asks for the last layer too and takes the final state as the last state, before the norm.
The files are the same; only the Arrow dataset beside speculators' tells them apart, and keeps the loss masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.hidden_states import LastStateRule, Layout
from eagle_parity.readers.containers.stored_tensor import QUANTISED_DTYPES, UnreadableFileError
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
    from eagle_parity.readers.containers.stored_tensor import StoredTensor
    from eagle_parity.readers.containers.tensor_table import TensorTable

STATES = "hidden_states"
TOKEN_IDS = "token_ids"  # noqa: S105  a tensor's name
SCALES = "hidden_states_scales"
MOONCAKE_CONTAINER = "mooncake"

_RANK = 3
_FEWEST_WITH_LAST = 2
"""A slot and a last state; speculators never stores fewer."""

_LAST_UNDECIDED = (
    "whether the final state is a slot or the last state: `diff-captures --reference` measures it,"
    " `--trained-boundaries` with one more entry than slots states it"
)


def _recognise(table: TensorTable, companions: Companions) -> Recognised | None:
    states = table.tensors.get(STATES)
    if states is None or table.container == MOONCAKE_CONTAINER or is_quantised(table):
        return None
    return stacked(
        table, companions, format="stacked", writer="vLLM's hidden states connector or speculators 0.5 and newer"
    )


def is_quantised(table: TensorTable) -> bool:
    """Whether the states have scales beside them, or would need some."""
    return SCALES in table.tensors or table.tensors[STATES].dtype in QUANTISED_DTYPES


def stacked(
    table: TensorTable,
    companions: Companions,
    *,
    format: str,  # noqa: A002  as Layout calls it
    writer: str,
    scales: StoredTensor | None = None,
) -> Recognised | None:
    """``hidden_states [T, S, H]`` with ``token_ids [T]``, however they are stored.

    Args:
        table: has ``hidden_states``.
        companions: what lies beside.
        format: the reader's name.
        writer: who writes it.
        scales: ``[T]``, where the states are quantised.

    Raises:
        UnreadableFileError: the states are none.
    """
    states, token_ids = table.tensors[STATES], table.tensors.get(TOKEN_IDS)
    if token_ids is None or len(states.shape) != _RANK:
        return None
    if scales is None and not is_state(states, _RANK):
        raise UnreadableFileError(f"{STATES} is {states}; expected half or full precision [T, S, H]")
    _, count, hidden_size = states.shape
    check_slot_count(count)
    parts = tuple(states.at(1, i) for i in range(count))
    has_last = companions.prepared_dataset is not None and count >= _FEWEST_WITH_LAST
    facts: dict[str, Any] = {"order": "ascending layers"}
    if has_last:
        # Which number the last boundary has depends on the target, which these files don't name.
        facts["last_state_stage"] = "pre_norm"
    layout = Layout(
        format=format,
        description=(
            f"speculators 0.5 or newer: {STATES} [T, {count}, {hidden_size}], the final state is the last state"
            if has_last
            else f"{writer}: {STATES} [T, {count}, {hidden_size}]"
        ),
        slots=count - 1 if has_last else count,
        hidden_size=hidden_size,
        dtype=states.dtype,
        last_state=LastStateRule.STORED if has_last else LastStateRule.UNDECIDED,
        unknown=(LAYERS_NOT_RECORDED,) if has_last else (LAYERS_NOT_RECORDED, _LAST_UNDECIDED),
        facts=facts,
    )
    return Recognised(
        layout,
        StoredSequence(
            token_ids=token_vector(token_ids, TOKEN_IDS),
            slots=parts[:-1] if has_last else parts,
            last_state=parts[-1] if has_last else None,
            loss_mask=mask_vector(table),
            prepared_dataset=companions.prepared_dataset if has_last else None,
            scales=scales,
        ),
    )


STACKED = Reader("stacked", "vLLM's hidden states connector, speculators 0.5 and newer", _recognise)
