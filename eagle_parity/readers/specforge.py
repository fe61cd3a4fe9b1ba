"""SpecForge's ``.ckpt``: ``aux_hidden_state [1, T, K*H]`` and ``hidden_state [1, T, H]`` of ``torch.save``.

SpecForge 0.1.0 to 0.2.0, ``scripts/prepare_hidden_states.py``. The concatenation holds the slots in the order of the
configured layers, ``hidden_state`` is the state after the final norm. Since November 2025 all tensors are padded on the
right to the longest of their batch with token id 0; the real length isn't stored, and the padding's rows are real
results of a forward over those tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    split_columns,
    token_vector,
)
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.stored_tensor import StoredTensor
    from eagle_parity.readers.containers.tensor_table import TensorTable

AUX = "aux_hidden_state"
LAST = "hidden_state"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name

_RANK = 3
_SLOTS_OF_LOGITS_WEEK = 3
"""SpecForge captures three layers by default, and nothing else tells H where there is no last state."""

_LENGTH_NOT_RECORDED = (
    "how long each sequence is without its padding: trailing tokens of id 0 with loss_mask 0 may be padding"
)


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    aux = table.tensors.get(AUX)
    last = table.tensors.get(LAST)
    token_ids = table.tensors.get(TOKEN_IDS)
    if aux is None or last is None or token_ids is None:
        return None
    for key, tensor in ((AUX, aux), (LAST, last)):
        if not is_state(tensor, _RANK) or tensor.shape[0] != 1:
            raise UnreadableFileError(f"{key} is {tensor}; expected floats [1, T, width]")
    width, last_width = aux.shape[-1], last.shape[-1]
    facts: dict[str, Any] = {"order": "as listed in the trainer's config", "padding": "right, token id 0"}
    last_state: StoredTensor | None = last.at(0, 0)
    hidden_size = last_width
    if width % last_width:
        hidden_size = _hidden_size_beside_logits(width, last_width)
        last_state = None
        facts["hidden_state"] = f"logits of {last_width:,} tokens (SpecForge of 10 to 13 November 2025): left out"
    count = width // hidden_size
    check_slot_count(count)
    layout = Layout(
        format="specforge",
        description=f"SpecForge: {AUX} [1, T, {count} * {hidden_size}]"
        + (f", {LAST} [1, T, {hidden_size}] after the final norm" if last_state else f", {LAST} holds logits"),
        slots=count,
        hidden_size=hidden_size,
        dtype=aux.dtype,
        last_state=LastStateRule.STORED if last_state else LastStateRule.ABSENT,
        last_state_boundary=POST_NORM if last_state else None,
        unknown=(LAYERS_NOT_RECORDED, _LENGTH_NOT_RECORDED),
        facts=facts,
    )
    return Recognised(
        layout,
        StoredSequence(
            token_ids=token_vector(token_ids, TOKEN_IDS),
            slots=split_columns(aux.at(0, 0), hidden_size),
            last_state=last_state,
            loss_mask=mask_vector(table),
        ),
    )


def _hidden_size_beside_logits(width: int, last_width: int) -> int:
    """H where ``hidden_state`` isn't a state: for one week it held the logits, as wide as the vocabulary."""
    if last_width < width or width % _SLOTS_OF_LOGITS_WEEK:
        raise UnreadableFileError(
            f"{AUX} is {width:,} wide and {LAST} {last_width:,}: the one is no multiple of the other"
        )
    return width // _SLOTS_OF_LOGITS_WEEK


SPECFORGE = Reader("specforge", "SpecForge 0.1.0 to 0.2.0", _recognise)
