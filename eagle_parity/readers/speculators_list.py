"""``hidden_states`` as a list of ``[T, H]``: speculators 0.3 and 0.4, ``data_<i>.pt`` with a ``data_config.json``.

What the ids in ``data_config.json`` mean is ``trainers/speculators``' rule for the release that wrote it. The generator
keeps them in a set and records in the order in which the layers run, so the list is ascending whatever was asked for;
the trainer concatenates all but the final state, which is the last state, before the norm. Sources: speculators v0.3.0
and v0.4.0, ``config_generator.py`` (``layer_ids``), ``vllm_hidden_states_generator.py`` (default 2, n//2, n-3, n-1),
``custom_worker.py`` (the set), ``train/data.py: standardize_data_v1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eagle_parity.errors import UsageError
from eagle_parity.hidden_states import LastStateRule, Layout
from eagle_parity.quoting import evidence_value, plain
from eagle_parity.readers.companions import DATA_CONFIG
from eagle_parity.readers.containers.stored_tensor import UnreadableFileError
from eagle_parity.readers.reader import (
    LAYERS_NOT_RECORDED,
    Reader,
    Recognised,
    StoredSequence,
    all_alike,
    check_slot_count,
    is_state,
    mask_vector,
    token_vector,
)
from eagle_parity.trainers.speculators import SPECULATORS
from eagle_parity.wiring import MAX_BOUNDARIES, Wiring, format_boundaries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable
    from eagle_parity.trainers.trainer import TrainerRule

STATES = "hidden_states"
TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name

_RANK = 2
_FEWEST = 2
"""A slot and the last state."""

_FIRST_RELEASE = "0.3.0"
"""The layout came with it and went after 0.4: files without a version are of one of these, which read alike."""


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
    recorded, problem = _recorded(companions.data_config, len(states))
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
        last_state_boundary=None if recorded is None else recorded.boundaries[-1],
        declared=None if recorded is None else Wiring(recorded.boundaries[:-1], recorded.boundaries[-1]),
        declared_by=None if recorded is None else recorded.words,
        unknown=() if recorded is not None else (f"{LAYERS_NOT_RECORDED} ({problem})",),
        facts={"order": "ascending layers", "last_state_stage": "pre_norm", **_facts(companions.data_config)},
    )
    return Recognised(
        layout,
        StoredSequence(
            token_ids=token_vector(token_ids, TOKEN_IDS),
            slots=states[:-1],
            last_state=states[-1],
            loss_mask=mask_vector(table),
        ),
    )


class _Recorded(NamedTuple):
    """The stored states' boundaries in their order, and how they are known."""

    boundaries: tuple[int, ...]
    words: str


def _recorded(config: Mapping[str, Any], count: int) -> tuple[_Recorded | None, str]:
    """The boundaries in the order of the stored states, or why they can't be had."""
    if not config:
        return None, f"there is no {DATA_CONFIG} beside the files"
    ids = config["hidden_states"].get("layer_ids")
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < MAX_BOUNDARIES for i in ids):
        return None, f"{DATA_CONFIG} has no hidden_states.layer_ids that are numbers of layers"
    kept = tuple(sorted(set(ids)))
    if len(kept) != count:
        return None, f"{DATA_CONFIG} names {len(kept)} layers, the files hold {count} states"
    rule, trainer = _rule(config.get("speculators_version"))
    if rule is None:
        return None, f"{DATA_CONFIG} is of {trainer}, which isn't among the releases whose rule is known"
    boundaries = tuple(rule.boundary_of(number) for number in kept)
    words = (
        f"{DATA_CONFIG}: hidden_states.layer_ids {list(kept)}, read by the rule of {trainer} (an id is"
        f" {rule.meaning.value}) as boundaries {format_boundaries(boundaries)}"
    )
    return _Recorded(boundaries, words), ""


def _rule(version: object) -> tuple[TrainerRule | None, str]:
    """The trainer's rule for the release that wrote the files, and its name."""
    if version is None:
        return SPECULATORS.rule(_FIRST_RELEASE), "speculators 0.3 or 0.4"
    named = f"speculators {plain(version)}"
    try:
        return SPECULATORS.rule(str(version)), named
    except UsageError:
        return None, named


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
