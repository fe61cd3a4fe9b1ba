"""A list of dicts ``{id, input_ids, hidden_state, hidden_state_features}``: TensorRT-LLM's SaveHiddenStates.

``tensorrt_llm/_torch/speculative/save_hidden_state.py`` at 17c59c36 and newer, by reading; no file of it was at hand.
One file an iteration, one dict a request. Each request's rows are read from the start of one buffer, so with several
requests in an iteration the rows of all but one can be another's. ``input_ids`` are all tokens of the request, the
generated one maybe included, so there can be one more than rows. Where -1 was asked for, the final slot repeats the
last state.
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
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

AUX_KEYS = ("hidden_state_features", "aux_hidden_states")
"""The older name and the newer one."""
LAST = "hidden_state"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name

_ROWS_NOT_TOLD = (
    "whose rows they are, where an iteration had several requests: all are read from the start of one buffer;"
    " `diff-captures --reference` shows it"
)


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    if not table.records or not all({LAST, TOKEN_IDS} <= record.tensors.keys() for record in table.records):
        return None
    first = _sequence(table.records[0])
    count, hidden_size, dtype = len(first.slots), first.slots[0].shape[1], first.slots[0].dtype
    if len({_widths(record) for record in table.records}) > 1:
        raise UnreadableFileError("its requests differ in slots, hidden size or dtype")
    layout = Layout(
        format="tensorrt-llm",
        description=(
            f"TensorRT-LLM: a list of requests with states [T, {count} * {hidden_size}], {LAST} after the final norm"
        ),
        slots=count,
        hidden_size=hidden_size,
        dtype=dtype,
        last_state=LastStateRule.STORED,
        last_state_boundary=POST_NORM,
        unknown=(LAYERS_NOT_RECORDED, _ROWS_NOT_TOLD),
        facts={
            "order": "ascending layers, -1 (the last state again) at the end",
            "loss_mask": "not stored",
            "token_ids": "can have the generated one, which has no row",
        },
    )

    def nth(index: int) -> StoredSequence:
        return _sequence(table.records[index])

    return Recognised(layout, first, count=len(table.records), nth=nth)


def _aux_key(record: TensorTable) -> str:
    keys = [key for key in AUX_KEYS if key in record.tensors]
    if len(keys) != 1:
        raise UnreadableFileError(f"a request with {len(keys)} of {' and '.join(AUX_KEYS)}; expected one: {record}")
    return keys[0]


def _widths(record: TensorTable) -> tuple[int, int, str]:
    key = _aux_key(record)
    aux, last = (state_matrix(record, name, batch=False) for name in (key, LAST))
    token_vector(record.tensors[TOKEN_IDS], TOKEN_IDS)
    return aux.shape[1], last.shape[1], aux.dtype


def _sequence(record: TensorTable) -> StoredSequence:
    key = _aux_key(record)
    last = state_matrix(record, LAST, batch=False)
    return StoredSequence(
        token_ids=token_vector(record.tensors[TOKEN_IDS], TOKEN_IDS),
        slots=slots_beside(state_matrix(record, key, batch=False), last, key, LAST),
        last_state=last,
        loss_mask=mask_vector(record),
    )


TENSORRT_LLM = Reader("tensorrt-llm", "TensorRT-LLM, SaveHiddenStates", _recognise)
