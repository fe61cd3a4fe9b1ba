"""``aux_hidden_states [n, S, K*H]`` of several padded sequences, with a ``manifest.json``: NeMo Automodel.

``components/speculative/eagle/precompute_eagle3.py:234-262`` and ``eagle3_cache.py:33-45`` at 36044ad3d. Ids and loss
mask are shifted left when they are written (row t holds token t + 1), the states aren't, so the first token of a
sequence is nowhere. The ids of the manifest count layer outputs: id k is the output of layer k, boundary k + 1, -1 the
embedding. Its transformers backend concatenates as listed, its vLLM backend in ascending order
(``vllm_runner.py:235-256``), its SGLang backend hands the ids on as they are (``sglang_runner.py:269``), which SGLang
reads by rules of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.capture.format import MAX_SEQUENCE_TOKENS
from eagle_parity.hidden_states import Layout
from eagle_parity.quoting import evidence_value
from eagle_parity.readers.companions import NEMO_MANIFEST
from eagle_parity.readers.containers.stored_tensor import INTEGER_DTYPES, UnreadableFileError
from eagle_parity.readers.reader import (
    LAYERS_NOT_RECORDED,
    MAX_SEQUENCES,
    Reader,
    Recognised,
    StoredSequence,
    check_slot_count,
    is_state,
    split_columns,
)
from eagle_parity.wiring import MAX_BOUNDARIES, Wiring, format_boundaries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.stored_tensor import StoredTensor
    from eagle_parity.readers.containers.tensor_table import TensorTable

AUX = "aux_hidden_states"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name
ATTENTION_MASK = "attention_mask"
LOSS_MASK = "loss_mask"

_RANK = 3
_LAYER_OUTPUT = 1
"""Id k is the output of layer k counted from 0, which is boundary k + 1; -1 is the embedding, boundary 0."""

_BEGINNING_NOT_STORED = (
    "the token that each sequence begins with: `--first-token ID` of `capture transformers` and `diff-captures` states"
    " it (the first id that the target's chat template gives, for many its BOS). Without it the first row is left out"
    " and there is nothing to replay"
)
_BACKEND = (
    "which backend recorded: with SGLang on DeepSeek-like targets the ids meant other layers than the manifest's rule"
    " says; `diff-captures --reference` measures it"
)


def _recognise(table: TensorTable, companions: Companions) -> Recognised | None:
    aux = table.tensors.get(AUX)
    if aux is None or not {TOKEN_IDS, ATTENTION_MASK} <= table.tensors.keys() or len(aux.shape) != _RANK:
        return None
    count, length, width = aux.shape
    if not is_state(aux, _RANK) or not 0 < count <= MAX_SEQUENCES or not 0 < length <= MAX_SEQUENCE_TOKENS:
        raise UnreadableFileError(f"{AUX} is {aux}; expected floats [n, S, width]")
    for key in (TOKEN_IDS, ATTENTION_MASK, LOSS_MASK):
        _check_table(table.tensors.get(key), key, count, length)
    manifest = companions.nemo_manifest
    ids = _layer_ids(manifest, width)
    hidden_size = width // len(ids)
    ascending = list(ids) == sorted(set(ids))
    known = companions.first_token is not None
    declared = Wiring(tuple(i + _LAYER_OUTPUT for i in ids)) if ascending else None
    unsorted = f"{LAYERS_NOT_RECORDED} (ids {list(ids)} aren't ascending, and the order depends on the backend)"
    layout = Layout(
        format="nemo",
        description=f"NeMo Automodel: {AUX} [n, S, {len(ids)} * {hidden_size}], n sequences a file, no last state",
        slots=len(ids),
        hidden_size=hidden_size,
        dtype=aux.dtype,
        declared=declared,
        declared_by=None if declared is None else _declared_by(ids),
        unknown=(*(() if ascending else (unsorted,)), *(() if known else (_BEGINNING_NOT_STORED,)), _BACKEND),
        facts=_facts(manifest, companions.first_token),
        first_token=known,
    )

    def nth(index: int) -> StoredSequence:
        mask = table.tensors.get(LOSS_MASK)
        return StoredSequence(
            token_ids=table.tensors[TOKEN_IDS].at(0, index),
            slots=split_columns(aux.at(0, index), hidden_size),
            loss_mask=None if mask is None else mask.at(0, index),
            attention_mask=table.tensors[ATTENTION_MASK].at(0, index),
            left_shifted=True,
            first_token=companions.first_token,
        )

    return Recognised(layout, nth(0), count=count, nth=nth)


def _check_table(tensor: StoredTensor | None, key: str, count: int, length: int) -> None:
    if tensor is None:
        return
    if tensor.shape != (count, length) or tensor.dtype not in INTEGER_DTYPES | {"bool"}:
        raise UnreadableFileError(f"{key} is {tensor}; expected integers [{count}, {length}], as {AUX} has rows")


def _layer_ids(manifest: Mapping[str, Any], width: int) -> tuple[int, ...]:
    """The ids, which also tell how many slots share the width."""
    if not manifest:
        raise UnreadableFileError(
            f"{AUX} is {width:,} wide, and how many slots that is only {NEMO_MANIFEST} says, which isn't beside it:"
            " put it there"
        )
    ids = manifest.get("aux_layer_ids")
    if not isinstance(ids, list) or not ids or not all(type(i) is int and -1 <= i < MAX_BOUNDARIES for i in ids):
        raise UnreadableFileError(f"{NEMO_MANIFEST} has no aux_layer_ids that are numbers of layers")
    check_slot_count(len(ids))
    if manifest.get("aux_hidden_dim") != width or width % len(ids):
        raise UnreadableFileError(
            f"{AUX} is {width:,} wide; {NEMO_MANIFEST} states {evidence_value(manifest.get('aux_hidden_dim'))} for"
            f" {len(ids)} layers"
        )
    return tuple(ids)


def _declared_by(ids: tuple[int, ...]) -> str:
    return (
        f"{NEMO_MANIFEST}: aux_layer_ids {list(ids)}, read by the rule of NeMo Automodel (id k is the output of layer"
        f" k) as boundaries {format_boundaries([i + _LAYER_OUTPUT for i in ids])}"
    )


def _facts(manifest: Mapping[str, Any], first_token: int | None) -> dict[str, Any]:
    found = {
        "target": manifest.get("target_model"),
        "seq_length": manifest.get("seq_length"),
        "num_samples": manifest.get("num_samples"),
        "format_version": manifest.get("format_version"),
    }
    return {
        "order": "as listed with its transformers backend, ascending with vLLM",
        "padding": "right, cut off by attention_mask",
        "first_token": "not stored" if first_token is None else f"{first_token}, as stated",
        **{key: evidence_value(value) for key, value in found.items() if isinstance(value, str | int)},
    }


NEMO = Reader("nemo", "NeMo Automodel, precompute_eagle3", _recognise)
