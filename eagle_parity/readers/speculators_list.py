"""``hidden_states`` as a list of ``[T, H]``: speculators 0.3 and 0.4, ``data_<i>.pt`` with a ``data_config.json``.

The ids in ``data_config.json`` count layer outputs: id k is the output of layer k, boundary k + 1. The generator keeps
them in a set and records in the order in which the layers run, so the list is ascending whatever was asked for; the
trainer concatenates all but the final state, which is the last state, before the norm. Sources: speculators v0.3.0 and
v0.4.0, ``config_generator.py`` (``layer_ids``), ``vllm_hidden_states_generator.py`` (default 2, n//2, n-3, n-1),
``custom_worker.py`` (the set), ``train/data.py: standardize_data_v1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.hidden_states import LastStateRule, Layout
from eagle_parity.quoting import evidence_value
from eagle_parity.readers.companions import DATA_CONFIG
from eagle_parity.readers.containers.stored_tensor import UnreadableFileError
from eagle_parity.readers.containers.tensor_table import shorten
from eagle_parity.readers.reader import (
    LAYERS_NOT_RECORDED,
    Reader,
    Recognised,
    all_alike,
    check_slot_count,
    is_state,
    mask_vector,
    token_vector,
)
from eagle_parity.wiring import MAX_BOUNDARIES, Wiring, format_boundaries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

STATES = "hidden_states"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name

_RANK = 2
_FEWEST = 2
"""A slot and the last state."""

_LAYER_OUTPUT = 1
"""Id k is the output of layer k counted from 0, which is boundary k + 1."""


def _recognise(table: TensorTable, companions: Companions) -> Recognised | None:
    states = table.lists.get(STATES)
    token_ids = table.tensors.get(TOKEN_IDS)
    if states is None or token_ids is None:
        return None
    if not all(is_state(state, _RANK) for state in states) or not all_alike(states):
        told = ", ".join(str(state) for state in states[:4])
        raise UnreadableFileError(f"{STATES} is a list of {told}; expected floats [T, H] of one width")
    if len(states) < _FEWEST:
        raise UnreadableFileError(f"{STATES} is a list of one; expected slots and a last state")
    check_slot_count(len(states))
    hidden_size = states[0].shape[1]
    ids, problem = _layer_ids(companions.data_config, len(states))
    layout = Layout(
        format="speculators-list",
        description=(
            f"speculators 0.3 or 0.4: a list of {len(states)} {STATES} [T, {hidden_size}], the final one is the last"
            " state before the norm"
        ),
        slots=len(states) - 1,
        hidden_size=hidden_size,
        dtype=states[0].dtype,
        last_state=LastStateRule.STORED,
        last_state_boundary=None if ids is None else ids[-1] + _LAYER_OUTPUT,
        declared=None if ids is None else _wiring(ids),
        declared_by=None if ids is None else _declared_by(ids, companions.data_config),
        unknown=() if ids is not None else (f"{LAYERS_NOT_RECORDED} ({problem})",),
        facts={"order": "ascending layers", "last_state_stage": "pre_norm", **_facts(companions.data_config)},
    )
    return Recognised(
        layout=layout,
        token_ids=token_vector(token_ids, TOKEN_IDS),
        slots=states[:-1],
        last_state=states[-1],
        loss_mask=mask_vector(table),
    )


def _layer_ids(config: Mapping[str, Any], count: int) -> tuple[tuple[int, ...] | None, str]:
    """The ids in the order of the stored states, or why they can't be had."""
    if not config:
        return None, f"there is no {DATA_CONFIG} beside the files"
    ids = config["hidden_states"].get("layer_ids")
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < MAX_BOUNDARIES for i in ids):
        return None, f"{DATA_CONFIG} has no hidden_states.layer_ids that are numbers of layers"
    recorded = tuple(sorted(set(ids)))
    if len(recorded) != count:
        return None, f"{DATA_CONFIG} names {len(recorded)} layers, the files hold {count} states"
    return recorded, ""


def _wiring(ids: tuple[int, ...]) -> Wiring:
    boundaries = tuple(i + _LAYER_OUTPUT for i in ids)
    return Wiring(boundaries[:-1], boundaries[-1])


def _declared_by(ids: tuple[int, ...], config: Mapping[str, Any]) -> str:
    version = config.get("speculators_version")
    trainer = f"speculators {shorten(version)}" if isinstance(version, str) else "speculators 0.3 or 0.4"
    return (
        f"{DATA_CONFIG}: hidden_states.layer_ids {list(ids)}, read by the rule of {trainer} (id k is the output of"
        f" layer k) as boundaries {format_boundaries([i + _LAYER_OUTPUT for i in ids])}"
    )


def _facts(config: Mapping[str, Any]) -> dict[str, Any]:
    model = config.get("model")
    data = config.get("data")
    found = {
        "speculators_version": config.get("speculators_version"),
        "target": model.get("target_model_path") if isinstance(model, dict) else None,
        "seq_length": data.get("seq_length") if isinstance(data, dict) else None,
        "num_samples": data.get("num_samples") if isinstance(data, dict) else None,
    }
    return {key: evidence_value(value) for key, value in found.items() if isinstance(value, str | int)}


SPECULATORS_LIST = Reader("speculators-list", "speculators 0.3 and 0.4", _recognise)
