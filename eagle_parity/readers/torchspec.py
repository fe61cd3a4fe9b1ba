"""``hidden_states [1, T, K*H]`` with ``last_hidden_states [1, T, H]``: TorchSpec, whose tensors are in Mooncake.

``transfer/mooncake/eagle_store.py`` at 6dda2bf. Nothing is on disk but what somebody saves: the bare objects with the
controller's metadata (``containers/raw_objects.py``), or the same tensors in a container. The loss mask travels with
the task and isn't among them. With its transformers and SGLang backends the last state is after the final norm; with
vLLM (``vllm_engine.py:157-180``, ``inference_config.py:118-132``) it is before it, and by those lines one layer early.
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
    mask_vector,
    slots_beside,
    state_matrix,
    token_vector,
)

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

AUX = "hidden_states"
LAST = "last_hidden_states"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name

_STAGE_NOT_RECORDED = (
    "which state the last state is: after the final norm with the transformers and SGLang backends, before it and maybe"
    " a layer early with vLLM; `diff-captures --reference` measures it"
)


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    aux, token_ids = table.tensors.get(AUX), table.tensors.get(TOKEN_IDS)
    if aux is None or token_ids is None:
        return None
    if LAST not in table.tensors:
        if table.container == "torchspec":
            raise UnreadableFileError(
                f"{AUX} is {aux} without {LAST}: nothing tells the hidden size, so nothing the slots"
            )
        return None
    aux, last = (state_matrix(table, key, batch=True) for key in (AUX, LAST))
    slots = slots_beside(aux, last, AUX, LAST)
    layout = Layout(
        format="torchspec",
        description=f"TorchSpec: {AUX} [1, T, {len(slots)} * {last.shape[1]}], {LAST} of an unknown stage",
        slots=len(slots),
        hidden_size=last.shape[1],
        dtype=aux.dtype,
        last_state=LastStateRule.STORED,
        unknown=(LAYERS_NOT_RECORDED, _STAGE_NOT_RECORDED),
        facts={"order": "as listed with its transformers backend, ascending with the others"},
    )
    return Recognised(
        layout,
        StoredSequence(
            token_ids=token_vector(token_ids, TOKEN_IDS),
            slots=slots,
            last_state=last,
            loss_mask=mask_vector(table),
        ),
    )


TORCHSPEC = Reader("torchspec", "TorchSpec, its Mooncake objects saved", _recognise)
