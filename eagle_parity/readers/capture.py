"""The tool's own captures, whole or interrupted. ``eagle_parity.capture.format`` says what is in them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.format import LAST_STATE, LOSS_MASK, MANIFEST_NAME, TOKEN_IDS, slot_key
from eagle_parity.hidden_states import LastStateRule, Layout, Unreadable
from eagle_parity.quoting import plain
from eagle_parity.readers.containers.stored_tensor import StoredTensor, UnreadableFileError
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from eagle_parity.capture.live_recording import LiveRecording
    from eagle_parity.capture.manifest import CapturedSequence, Manifest
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

_RANK = 2

INCOMPLETE = "incomplete"
"""The fact, true where a recording was interrupted: what is there can be read, and is not all that was meant."""

MAX_HELD = 1000
"""Files whose headers are held against the manifest; of more, as many are taken at even distances."""

MAX_FACTS = 15
"""Files that a fact names; the others are counted."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a sequence's file says of itself."""

    tokens: int
    hidden_size: int
    dtype: str


def facts_of_folder(
    folder: Path, manifest: Manifest, header: Callable[[str], Header | Unreadable]
) -> Mapping[str, Any]:
    """In what a capture's folder isn't what its manifest says; empty where it is.

    A file whose header contradicts the manifest is read as it is: the states are in the file, the manifest talks about
    them. A file that isn't listed isn't read: what it holds is of another recording, or was never finished.

    Args:
        folder: the capture.
        manifest: its own.
        header: the header of a sequence's file, by the sequence's name.
    """
    listed = {sequence.file for sequence in manifest.sequences}
    unlisted = sorted(
        entry.name for entry in os.scandir(folder) if entry.name.endswith(".safetensors") and entry.name not in listed
    )
    stride = max(1, -(-len(manifest.sequences) // MAX_HELD))
    contradictions = [
        f"{sequence.file}: {said}"
        for sequence in manifest.sequences[::stride]
        if (said := _contradiction(manifest, sequence, header(sequence.name)))
    ]
    told: dict[str, Any] = {}
    if unlisted:
        told["unlisted_files"] = _bounded([plain(name) for name in unlisted])
    if contradictions:
        told["contradicts_manifest"] = _bounded(contradictions)
    return told


def _contradiction(manifest: Manifest, sequence: CapturedSequence, header: Header | Unreadable) -> str:
    """What a file's header says otherwise; empty where it agrees, or says nothing since it can't be read."""
    if isinstance(header, Unreadable):
        return ""
    pairs = (
        ("tokens", header.tokens, sequence.tokens),
        ("hidden size", header.hidden_size, manifest.target.hidden_size),
        ("dtype", header.dtype, manifest.dtype),
    )
    return ", ".join(f"{what} {found}, not {stated}" for what, found, stated in pairs if found != stated)


def _bounded(names: list[str]) -> list[str]:
    cut = names[:MAX_FACTS]
    return cut if len(names) <= MAX_FACTS else [*cut, f"... {len(names):,} in all"]


def _recognise(table: TensorTable, companions: Companions) -> Recognised | None:
    token_ids = table.tensors.get(TOKEN_IDS)
    slots = _slots(table)
    if token_ids is None or not slots:
        return None
    last_state = table.tensors.get(LAST_STATE)
    states = slots if last_state is None else (*slots, last_state)
    if not all(is_state(state, _RANK) for state in states) or not all_alike(states):
        told = ", ".join(str(state) for state in states[:4])
        raise UnreadableFileError(f"its states are {told}; expected floats [T, H] of one width and dtype")
    check_slot_count(len(slots))
    manifest = companions.manifest
    if manifest is not None and len(manifest.slots) != len(slots):
        raise UnreadableFileError(f"{len(slots)} slots, where {MANIFEST_NAME} states {len(manifest.slots)}")
    return Recognised(
        _layout(slots, has_last=last_state is not None, manifest=manifest),
        StoredSequence(
            token_ids=token_vector(token_ids, TOKEN_IDS),
            slots=slots,
            last_state=last_state,
            loss_mask=mask_vector(table) if LOSS_MASK in table.tensors else None,
        ),
    )


def _slots(table: TensorTable) -> tuple[StoredTensor, ...]:
    slots: list[StoredTensor] = []
    while (slot := table.tensors.get(slot_key(len(slots)))) is not None:
        slots.append(slot)
    return tuple(slots)


def _layout(slots: tuple[StoredTensor, ...], *, has_last: bool, manifest: Manifest | None) -> Layout:
    hidden_size = slots[0].shape[1]
    states = f"{len(slots)} slots [T, {hidden_size}]" + (" and a last state" if has_last else "")
    last_state = LastStateRule.STORED if has_last else LastStateRule.ABSENT
    if manifest is None:
        return Layout(
            format="capture",
            description=f"files of an interrupted capture without {MANIFEST_NAME}: {states}",
            slots=len(slots),
            hidden_size=hidden_size,
            dtype=slots[0].dtype,
            last_state=last_state,
            unknown=(LAYERS_NOT_RECORDED, "what the capture would have held: record it again"),
            facts={"complete": False, INCOMPLETE: True},
        )
    wiring = manifest.wiring
    return Layout(
        format="capture",
        description=f"a capture by {manifest.producer.engine}{'' if manifest.complete else ', interrupted'}: {states}",
        slots=len(slots),
        hidden_size=hidden_size,
        dtype=slots[0].dtype,
        last_state=last_state,
        last_state_boundary=wiring.last_state if has_last else None,
        declared=wiring,
        declared_by=f"{MANIFEST_NAME}: slots",
        unknown=() if wiring.known else (LAYERS_NOT_RECORDED,),
        facts=_facts(manifest),
    )


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "complete": manifest.complete,
        **({} if manifest.complete else {INCOMPLETE: True}),
        "engine": manifest.producer.engine,
        "computed_in": manifest.producer.dtype,
        "options": dict(manifest.producer.options),
        "target": manifest.target.name,
        "num_layers": manifest.target.num_layers,
        **({} if manifest.live is None else _live_facts(manifest.live)),
        **({"forward_modes": modes} if (modes := _forward_modes(manifest)) else {}),
        **({"forwards_per_sequence": told} if (told := _forwards(manifest)) else {}),
    }


def _forward_modes(manifest: Manifest) -> dict[str, str]:
    """The kinds of forwards that a running server's rows come from, the most frequent ones first."""
    counts = Counter(plain(mode) for sequence in manifest.sequences for mode in dict.fromkeys(sequence.modes))
    return {mode: f"{count} sequence(s)" for mode, count in counts.most_common(MAX_FACTS)}


def _forwards(manifest: Manifest) -> str:
    """In how many forwards a running server computed each sequence; empty where that isn't known."""
    counts = [sequence.forwards for sequence in manifest.sequences if sequence.forwards is not None]
    if not counts:
        return ""
    fewest, most = min(counts), max(counts)
    return str(most) if fewest == most else f"{fewest} to {most}"


def _live_facts(live: LiveRecording) -> dict[str, Any]:
    """What a capture of a running server says of that."""
    groups: dict[str, list[str]] = {}
    for rank in live.ranks:
        groups.setdefault(rank.group, []).append(rank.name)
    sizes = {rank.group: rank.group_size for rank in live.ranks}
    return {
        "server": live.server,
        "tap": live.tap,
        "target_class": live.target_class,
        "draft_class": live.draft_class,
        "layer_set": live.layer_set,
        **({"variants": live.variants} if live.variants else {}),
        "rank_groups": {
            plain(group): f"{', '.join(names[:MAX_FACTS])}: {len(names)} of {sizes[group]}"
            for group, names in groups.items()
        },
        **({"sequences_missing": len(live.incomplete)} if live.incomplete else {}),
        **({"conditions": live.conditions} if live.conditions else {}),
        **({"conditions_not_recorded": live.skipped_conditions} if live.skipped_conditions else {}),
    }


CAPTURE = Reader("capture", "eagle-parity capture", _recognise)
