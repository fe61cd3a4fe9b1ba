"""Writers of every on-disk layout that the readers know: real files, made from token ids and ``[T, H]`` states.

Each takes a list of sequences. A sequence is token ids and the states in concatenation order; where the layout stores a
last state it is given apart. Import them with ``from builders import write_stacked``.
"""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from eagle_parity.capture.format import CapturedTarget, CaptureWriter, Producer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from eagle_parity.wiring import BoundaryEntry


@dataclass(frozen=True)
class Written:
    """One sequence as it is written.

    Attributes:
        token_ids: int64 ``[T]``.
        slots: ``[T, H]`` each.
        last_state: ``[T, H]``; layouts that need one get zeros without it.
        loss_mask: ``[T]``; ones without it.
    """

    token_ids: torch.Tensor
    slots: Sequence[torch.Tensor]
    last_state: torch.Tensor | None = None
    loss_mask: torch.Tensor | None = None

    @property
    def last(self) -> torch.Tensor:
        return torch.zeros_like(self.slots[0]) if self.last_state is None else self.last_state

    @property
    def mask(self) -> torch.Tensor:
        return torch.ones_like(self.token_ids) if self.loss_mask is None else self.loss_mask


def make_sequences(
    lengths: Sequence[int], *, slots: int = 3, hidden: int = 8, dtype: torch.dtype = torch.bfloat16, seed: int = 0
) -> list[Written]:
    """Random sequences, different in every number."""
    generator = torch.Generator().manual_seed(seed)

    def state(tokens: int) -> torch.Tensor:
        return torch.randn(tokens, hidden, generator=generator).to(dtype)

    return [
        Written(
            token_ids=torch.randint(0, 1000, (tokens,), generator=generator),
            slots=[state(tokens) for _ in range(slots)],
            last_state=state(tokens),
            loss_mask=torch.randint(0, 2, (tokens,), generator=generator),
        )
        for tokens in lengths
    ]


def write_stacked(folder: Path, sequences: Sequence[Written], *, speculators: bool = False) -> Path:
    """vLLM's connector files, or with ``speculators`` an arrow dataset's folder with them in ``hidden_states/``.

    The last state is the final one of the stack where a sequence has one.
    """
    shards = folder / "hidden_states" if speculators else folder
    shards.mkdir(parents=True, exist_ok=True)
    for i, sequence in enumerate(sequences):
        states = list(sequence.slots)
        if sequence.last_state is not None:
            states.append(sequence.last_state)
        tensors = {"token_ids": sequence.token_ids, "hidden_states": torch.stack(states, dim=1)}
        name = f"hs_{i}" if speculators else f"cmpl-{i}-8ea721b1"
        save_file(tensors, shards / f"{name}.safetensors")
        if not speculators:
            (shards / f"{name}.safetensors.lock").touch()
    if speculators:
        features: dict[str, Any] = {"input_ids": {}, "loss_mask": {}, "seq_len": {}}
        (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
        (folder / "data-00000-of-00001.arrow").write_bytes(b"ARROW1")
        torch.save({1: 2}, folder / "token_freq.pt")
    return folder


def write_speculators_list(
    folder: Path,
    sequences: Sequence[Written],
    *,
    layer_ids: Sequence[Any] | None = (2, 5, 7, 9),
    version: str = "0.3.0",
) -> Path:
    """speculators 0.3 and 0.4: ``data_<i>.pt``, and ``data_config.json`` unless ``layer_ids`` is None."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, sequence in enumerate(sequences):
        content = {
            "input_ids": sequence.token_ids,
            "hidden_states": [*sequence.slots, sequence.last],
            "loss_mask": sequence.mask,
        }
        torch.save(content, folder / f"data_{i}.pt")
    if layer_ids is not None:
        config = {
            "version": "2.0",
            "speculators_version": version,
            "model": {"target_model_path": "target", "hidden_size": 8},
            "data": {"seq_length": 256, "num_samples": len(sequences)},
            "hidden_states": {"layer_ids": list(layer_ids)},
        }
        (folder / "data_config.json").write_text(json.dumps(config))
    return folder


def write_specforge(
    folder: Path, sequences: Sequence[Written], *, padded_to: int | None = None, compress: bool = False
) -> Path:
    """SpecForge: ``rows_0-2000/data_<i>.ckpt``, padded on the right with token id 0 and gzipped where asked."""
    rows = folder / "rows_0-2000"
    rows.mkdir(parents=True, exist_ok=True)
    for i, sequence in enumerate(sequences):
        missing = max(0, (padded_to or 0) - len(sequence.token_ids))
        vector, matrix = (0, missing), (0, 0, 0, missing)
        content = {
            "input_ids": torch.nn.functional.pad(sequence.token_ids, vector),
            "loss_mask": torch.nn.functional.pad(sequence.mask, vector),
            "hidden_state": torch.nn.functional.pad(sequence.last, matrix)[None],
            "aux_hidden_state": torch.nn.functional.pad(torch.cat(list(sequence.slots), dim=-1), matrix)[None],
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        if compress:
            (rows / f"data_{i}.ckpt.gz").write_bytes(gzip.compress(buffer.getvalue()))
        else:
            (rows / f"data_{i}.ckpt").write_bytes(buffer.getvalue())
    return folder


def write_capture(
    folder: Path,
    sequences: Sequence[Written],
    *,
    slots: Sequence[BoundaryEntry],
    last_state: BoundaryEntry = None,
    num_layers: int = 10,
) -> Path:
    """The tool's own format; the sequences' last states are written where ``last_state`` names a boundary."""
    hidden = sequences[0].slots[0].shape[1]
    dtype: Any = str(sequences[0].slots[0].dtype).removeprefix("torch.")
    with CaptureWriter(
        folder,
        producer=Producer(engine="transformers@5.19.0", dtype=dtype),
        target=CapturedTarget(
            name="target", architectures=["LlamaForCausalLM"], num_layers=num_layers, hidden_size=hidden
        ),
        slots=slots,
        last_state=last_state,
        dtype=dtype,
    ) as writer:
        for i, sequence in enumerate(sequences):
            writer.write(
                f"data_{i}",
                sequence.token_ids,
                sequence.slots,
                last_state=None if last_state is None else sequence.last,
                loss_mask=sequence.loss_mask,
            )
    return folder
