"""``aux_hidden_states [T, K*H]`` with ``hidden_states [T, H]``: NVIDIA ModelOpt, ``<conversation_id>.pt``.

``examples/speculative_decoding/collect_hidden_states`` at a2fbac7ba. Its two dumps have the same keys, shapes and
dtypes:

- ``compute_hidden_states_hf.py:153-197`` takes id k for the output of layer k, boundary k + 1, and stores the state
  after the final norm.
- ``compute_hidden_states_vllm.py:178,262,295-325`` (since June 2026) hands the same ids to vLLM, which reads them as
  boundaries: each slot is one layer early, and the last state is before the norm.

What the third, with TensorRT-LLM, leaves after post-processing has the same keys too. Only a reference tells them
apart.
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

AUX = "aux_hidden_states"
LAST = "hidden_states"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name
PRE_NORM_FLAG = "hidden_states_prenorm"
"""What ModelOpt's trainer looks for, and its own vLLM dump doesn't write."""

_DUMPS_ALIKE = (
    "which of ModelOpt's dumps it is: the one with transformers (last state after the final norm) and the one with vLLM"
    " (each slot one layer early, last state before the norm) can't be told apart by their files;"
    " `diff-captures --reference` measures which"
)


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    if not {AUX, LAST, TOKEN_IDS} <= table.tensors.keys():
        return None
    last = state_matrix(table, LAST, batch=False)
    # Without an aux layer it holds torch.empty(0).
    slots = (
        () if table.tensors[AUX].shape == (0,) else slots_beside(state_matrix(table, AUX, batch=False), last, AUX, LAST)
    )
    flag = table.constants.get(PRE_NORM_FLAG)
    facts = {"order": "ascending layers"}
    if flag is True:
        facts["last_state_stage"] = "pre_norm"
    layout = Layout(
        format="modelopt",
        description=(
            f"ModelOpt: {AUX} [T, {len(slots)} * {last.shape[1]}], {LAST} [T, {last.shape[1]}] "
            + (_stage(flag) if isinstance(flag, bool) else "before or after the final norm, which can't be told")
        ),
        slots=len(slots),
        hidden_size=last.shape[1],
        dtype=last.dtype,
        last_state=LastStateRule.STORED,
        last_state_boundary=POST_NORM if flag is False else None,
        unknown=(LAYERS_NOT_RECORDED, _DUMPS_ALIKE),
        facts=facts,
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


def _stage(before_norm: bool) -> str:  # noqa: FBT001  what the flag says
    return f"{'before' if before_norm else 'after'} the final norm, says {PRE_NORM_FLAG}"


MODELOPT = Reader("modelopt", "NVIDIA ModelOpt, its transformers, vLLM and TensorRT-LLM dumps", _recognise)
