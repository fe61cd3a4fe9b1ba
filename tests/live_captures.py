"""Captures of running servers, made from tensors as the writer makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from eagle_parity.capture.format import CONDITIONS_FOLDER
from eagle_parity.capture.live_recording import IncompleteSequence, LiveRank, LiveRecording
from eagle_parity.capture.manifest import CapturedTarget, Producer
from eagle_parity.capture.manifest_file import read_manifest, write_manifest
from eagle_parity.capture.writer import CaptureWriter, RankIds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

    from eagle_parity.wiring import BoundaryEntry

LAYERS = 30


@dataclass(frozen=True)
class RankedSequence:
    """A sequence as each rank of a group has it: ``ranks["tp0"]`` is a state a slot."""

    name: str
    token_ids: torch.Tensor
    ranks: Mapping[str, Sequence[torch.Tensor]]
    draft_input: torch.Tensor | None = None
    draft_input_is: Literal["equal", "differs", "normed", "absent"] = "equal"
    first_position: int = 0
    rank_ids: Mapping[str, RankIds] | None = None


def rank(name: str, *, group: str = "dp0", group_size: int = 2, **more: Any) -> LiveRank:
    return LiveRank(name=name, group=group, group_size=group_size, parallel={}, tokens=0, **more)


@dataclass
class Server:
    """What the manifest says of it."""

    ranks: Sequence[LiveRank] = field(default_factory=lambda: [rank("tp0"), rank("tp1")])
    engine: str = "sglang@0.5.23"
    slots: Sequence[BoundaryEntry] = (3, 16, 28)
    layer_set: dict[str, list[int]] | None = field(default_factory=lambda: {"list": [3, 16, 28]})
    draft_config: dict[str, Any] | None = field(
        default_factory=lambda: {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": 576,
            "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [2, 15, 27]},
        }
    )
    incomplete: Sequence[IncompleteSequence] = ()
    conditions: Sequence[str] = ()
    skipped_conditions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    architectures: Sequence[str] = ("LlamaForCausalLM",)


def write_live(folder: Path, sequences: Sequence[RankedSequence], server: Server | None = None) -> Path:
    """A capture of these sequences."""
    server = server or Server()
    first = next(iter(sequences[0].ranks.values()))[0]
    dtype: Any = str(first.dtype).removeprefix("torch.")
    writer = CaptureWriter(
        folder,
        producer=Producer(engine=server.engine, dtype=dtype),
        target=CapturedTarget(
            name="target",
            architectures=list(server.architectures),
            num_layers=LAYERS,
            hidden_size=first.shape[1],
        ),
        slots=list(server.slots),
        last_state=None,
        dtype=dtype,
    )
    with writer:
        writer.describe_live(
            LiveRecording(
                server="http://127.0.0.1:30000",
                session="0123456789ab",
                tap="a test",
                layer_set=server.layer_set,
                draft_config=server.draft_config,
                settings=server.settings,
                ranks=list(server.ranks),
                incomplete=list(server.incomplete),
                conditions=list(server.conditions),
                skipped_conditions=server.skipped_conditions,
            )
        )
        for sequence in sequences:
            ids = {name: (sequence.rank_ids or {}).get(name, RankIds(sequence.token_ids)) for name in sequence.ranks}
            shown, *others = sequence.ranks
            for name in others:
                writer.write_rank(name, ids[name], sequence.ranks[name])
            writer.write(
                sequence.name,
                ids[shown].token_ids,
                sequence.ranks[shown],
                rank=shown,
                sampled_ids=ids[shown].sampled_ids,
                draft_input=sequence.draft_input,
                draft_input_is=sequence.draft_input_is,
                first_position=sequence.first_position,
            )
    return folder


def write_condition(folder: Path, condition: str, sequences: Sequence[RankedSequence]) -> None:
    """Adds a condition to a capture."""
    write_live(folder / CONDITIONS_FOLDER / condition, sequences)
    manifest = read_manifest(folder)
    assert manifest.live is not None
    live = msgspec.structs.replace(manifest.live, conditions=[*manifest.live.conditions, condition])
    write_manifest(folder, msgspec.structs.replace(manifest, live=live))
