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

import pyarrow as pa
import pyarrow.ipc
import torch
from safetensors.torch import save_file

from eagle_parity.capture.manifest import CapturedTarget, Producer
from eagle_parity.capture.writer import CaptureWriter

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
        write_prepared_dataset(folder, sequences)
        torch.save({1: 2}, folder / "token_freq.pt")
    return folder


def write_prepared_dataset(
    folder: Path,
    sequences: Sequence[Written],
    *,
    files: int = 1,
    rows_a_batch: int = 2,
    compression: str | None = None,
) -> Path:
    """What ``datasets`` saves for speculators' ``prepare-data``: Arrow streams, and two JSON files about them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "input_ids": sequence.token_ids.tolist(),
            "loss_mask": sequence.mask.tolist(),
            "seq_len": len(sequence.token_ids),
        }
        for sequence in sequences
    ]
    integers = pa.list_(pa.int64())
    schema = pa.schema([("input_ids", integers), ("loss_mask", integers), ("seq_len", pa.int64())])
    names = [f"data-{i:05}-of-{files:05}.arrow" for i in range(files)]
    a_file = -(-len(rows) // files)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    for i, name in enumerate(names):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, schema, options=options) as stream:
            for first in range(i * a_file, min(len(rows), (i + 1) * a_file), rows_a_batch):
                batch = rows[first : min(first + rows_a_batch, (i + 1) * a_file)]
                stream.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))
    features: dict[str, Any] = {"input_ids": {}, "loss_mask": {}, "seq_len": {}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
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


def save_torch(content: Any, path: Path, *, compress: bool = False) -> None:
    """``torch.save``, with a gzip around it where asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    if compress:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(buffer.getvalue()))
    else:
        path.write_bytes(buffer.getvalue())


def write_specforge_aux_only(folder: Path, sequences: Sequence[Written], *, compress: bool = False) -> Path:
    """SpecForge of 9 November 2025: the concatenation stands under ``hidden_state``, and there is no other state."""
    for i, sequence in enumerate(sequences):
        content = {
            "input_ids": sequence.token_ids,
            "loss_mask": sequence.mask,
            "hidden_state": torch.cat(list(sequence.slots), dim=-1)[None],
        }
        save_torch(content, folder / "rows_0-2000" / f"data_{i}.ckpt", compress=compress)
    return folder


def write_speculators_research(folder: Path, sequences: Sequence[Written], *, compress: bool = False) -> Path:
    """speculators 0.0 to 0.2, research scripts: ``<index>/data_<i>.ckpt``."""
    for i, sequence in enumerate(sequences):
        content = {
            "input_ids": sequence.token_ids,
            "hidden_state": torch.cat(list(sequence.slots), dim=-1),
            "loss_mask": sequence.mask,
            "target": sequence.last,
        }
        save_torch(content, folder / "0" / f"data_{i}.ckpt", compress=compress)
    return folder


def write_eagle_last_state(folder: Path, sequences: Sequence[Written], *, compress: bool = False) -> Path:
    """EAGLE-1 and EAGLE-2: the last state alone; the sequences' slots are left out."""
    for i, sequence in enumerate(sequences):
        content = {"input_ids": sequence.token_ids, "hidden_state": sequence.last, "loss_mask": sequence.mask}
        save_torch(content, folder / "0" / f"data_{i}.ckpt", compress=compress)
    return folder


def write_eagle_list(folder: Path, sequences: Sequence[Written], *, compress: bool = False) -> Path:
    """The list that EAGLE-3's training captures, without a last state."""
    for i, sequence in enumerate(sequences):
        content = {"input_ids": sequence.token_ids, "loss_mask": sequence.mask, "hs": list(sequence.slots)}
        save_torch(content, folder / f"data_{i}.pt", compress=compress)
    return folder


def write_modelopt(folder: Path, sequences: Sequence[Written], *, compress: bool = False, **more: Any) -> Path:
    """ModelOpt: ``<conversation_id>.pt``; the HF dump and the vLLM dump are the same files."""
    for i, sequence in enumerate(sequences):
        content = {
            "input_ids": sequence.token_ids,
            "hidden_states": sequence.last,
            "aux_hidden_states": torch.cat(list(sequence.slots), dim=-1) if sequence.slots else torch.empty(0),
            "loss_mask": sequence.mask,
            "conversation_id": f"c{i}",
            **more,
        }
        save_torch(content, folder / f"c{i}.pt", compress=compress)
    return folder


def write_tensorrt_llm(
    folder: Path,
    sequences: Sequence[Written],
    *,
    key: str = "aux_hidden_states",
    per_file: int = 2,
    compress: bool = False,
) -> Path:
    """TensorRT-LLM: ``<prefix>_<iteration>.pt``, a list of requests each; no loss mask."""
    requests = [
        {
            "id": i,
            "input_ids": sequence.token_ids,
            "hidden_state": sequence.last,
            key: torch.cat(list(sequence.slots), dim=-1),
        }
        for i, sequence in enumerate(sequences)
    ]
    for first in range(0, len(requests), per_file):
        path = folder / f"states_{first // per_file}.pt"
        save_torch(requests[first : first + per_file], path, compress=compress)
    return folder


def write_angelslim(folder: Path, sequences: Sequence[Written], *, compress: bool = False) -> Path:
    """AngelSlim: ``rank_0/rows_0-5000/data_<i>.ckpt``, everything with a batch dimension."""
    for i, sequence in enumerate(sequences):
        content = {
            "input_ids": sequence.token_ids[None],
            "loss_mask": sequence.mask[None],
            "hidden_states": torch.cat(list(sequence.slots), dim=-1)[None],
            "target_hiddens": sequence.last[None],
            "position_ids": torch.arange(len(sequence.token_ids))[None],
        }
        save_torch(content, folder / "rank_0" / "rows_0-5000" / f"data_{i}.ckpt", compress=compress)
    return folder


def write_baldeagle(folder: Path, sequences: Sequence[Written], *, compress: bool = False) -> Path:
    """BaldEagle: ``<gpu>/rows_<a>-<b>/data_<i>.ckpt``."""
    for i, sequence in enumerate(sequences):
        content = {
            "input_ids": sequence.token_ids,
            "loss_mask": sequence.mask,
            "hidden_state": torch.cat(list(sequence.slots), dim=-1)[None],
            "target_hidden_states": sequence.last[None],
        }
        save_torch(content, folder / "0" / "rows_0-100" / f"data_{i}.ckpt", compress=compress)
    return folder


def write_nemo(
    folder: Path,
    sequences: Sequence[Written],
    *,
    layer_ids: Sequence[Any] | None = (1, 4, 6),
    per_file: int = 2,
    padded_to: int | None = None,
) -> Path:
    """NeMo Automodel: several sequences a file, padded on the right, ids and loss mask shifted left.

    The rows of the padding hold numbers, as they do in a real one; the last states are left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    length = max([len(sequence.token_ids) for sequence in sequences] + [padded_to or 0, 1])
    width = sum(slot.shape[1] for slot in sequences[0].slots)
    for first in range(0, len(sequences), per_file):
        part = sequences[first : first + per_file]
        ids = torch.full((len(part), length), 5)
        masks = torch.zeros((2, len(part), length), dtype=torch.int64)
        aux = torch.full((len(part), length, width), 7.0).to(sequences[0].slots[0].dtype)
        for i, sequence in enumerate(part):
            tokens = len(sequence.token_ids)
            ids[i, : max(0, tokens - 1)] = sequence.token_ids[1:]
            masks[0, i, :tokens] = 1
            masks[1, i, : max(0, tokens - 1)] = sequence.mask[1:]
            aux[i, :tokens] = torch.cat(list(sequence.slots), dim=-1)
        tensors = {"input_ids": ids, "attention_mask": masks[0].clone(), "loss_mask": masks[1].clone()}
        tensors |= {"aux_hidden_states": aux, "target_probs": torch.zeros(len(part), length, 4)}
        save_file(tensors, folder / f"shard-{first // per_file:06d}.safetensors")
    if layer_ids is not None:
        manifest = {
            "format_version": 2,
            "target_model": "target",
            "aux_layer_ids": list(layer_ids),
            "aux_hidden_dim": width,
            "seq_length": length,
            "num_samples": len(sequences),
            "shard_size": per_file,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
    save_file({"weight": torch.zeros(4, 2)}, folder / "target_embeddings.safetensors")
    return folder


def bare_bytes(tensor: torch.Tensor) -> bytes:
    """A tensor's numbers as they lie in memory."""
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def write_torchspec(folder: Path, sequences: Sequence[Written], *, metadata: bool = True) -> Path:
    """TorchSpec's Mooncake objects, ``KEY_hs``, ``KEY_ids``, ``KEY_lhs``, and the controller's metadata beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    entries: list[dict[str, Any]] = []
    for i, sequence in enumerate(sequences):
        tensors = {
            "hidden_states": torch.cat(list(sequence.slots), dim=-1)[None],
            "input_ids": sequence.token_ids[None],
            "last_hidden_states": sequence.last[None],
        }
        for tensor, suffix in zip(tensors.values(), ("hs", "ids", "lhs"), strict=True):
            (folder / f"sample{i}_{suffix}").write_bytes(bare_bytes(tensor))
        entries.append(
            {
                "mooncake_key": f"sample{i}",
                "tensor_shapes": {name: list(tensor.shape) for name, tensor in tensors.items()},
                "tensor_dtypes": {name: str(tensor.dtype) for name, tensor in tensors.items()},
            }
        )
    if metadata:
        (folder / "controller_metadata.json").write_text(json.dumps(entries))
    return folder


def write_mooncake(folder: Path, sequences: Sequence[Written], *, manifest: bool = True) -> Path:
    """hs-connectors' packed Mooncake objects, 64-byte aligned parts, and their manifests."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, sequence in enumerate(sequences):
        states = [*sequence.slots, *([] if sequence.last_state is None else [sequence.last_state])]
        data, entries = b"", {}
        for name, tensor in {"hidden_states": torch.stack(states, dim=1), "token_ids": sequence.token_ids}.items():
            part = bare_bytes(tensor)
            entries[name] = {
                "shape": list(tensor.shape),
                "dtype": str(tensor.dtype),
                "nbytes": len(part),
                "offset": len(data),
            }
            data += part + bytes(-len(part) % 64)
        (folder / f"kcmpl-{i}.bin").write_bytes(data)
        if manifest:
            told = {"handle": f"kcmpl-{i}", "version": 1, "tensors": entries, "metadata": {}}
            (folder / f"kcmpl-{i}.kv_transfer_params.json").write_text(json.dumps(told))
    return folder


def write_stacked_fp8(folder: Path, sequences: Sequence[Written]) -> list[Written]:
    """hs-connectors' FP8 files; returns the sequences as their numbers are after dequantisation, in float32."""
    folder.mkdir(parents=True, exist_ok=True)
    largest = torch.finfo(torch.float8_e4m3fn).max
    kept: list[Written] = []
    for i, sequence in enumerate(sequences):
        states = torch.stack([*sequence.slots, sequence.last], dim=1).float()
        scales = states.abs().amax(dim=(1, 2), keepdim=True).clamp(min=1e-6) / largest
        stored = (states / scales).to(torch.float8_e4m3fn)
        tensors = {"hidden_states": stored, "hidden_states_scales": scales, "token_ids": sequence.token_ids}
        save_file(tensors, folder / f"hs_{i}.safetensors")
        *slots, last = (stored.float() * scales).unbind(1)
        kept.append(Written(sequence.token_ids, slots, last))
    return kept


def write_sglang_dump(folder: Path, tensor: torch.Tensor) -> Path:
    """One tensor of SGLang's dumper."""
    write_dumped(folder, "non_intrusive__logits_processor.inputs.4.0", tensor, index=4)
    return folder


def write_dumped(
    folder: Path, name: str, value: Any, *, step: int = 0, rank: int = 0, index: int = 1, **tags: object
) -> Path:
    """One file of SGLang's dumper, as ``_dump_single`` of 0.5.23 names and fills it."""
    folder.mkdir(parents=True, exist_ok=True)
    said = {"step": step, "rank": rank, "dump_index": index, "name": name, "recompute_status": "disabled", **tags}
    world = {"tp_rank": rank, "tp_size": 2, "pp_rank": 0, "pp_size": 1, "attn_dp_size": 1}
    meta = {**said, "world_rank": rank, "world_size": 2, "sglang_parallel_info": world, "tokenizer_path": "tiny"}
    path = folder / ("___".join(f"{key}={value}" for key, value in said.items()) + ".pt")
    torch.save({"value": value, "meta": meta}, path)
    return path


@dataclass(frozen=True)
class Rows:
    """The rows of one request in a forward of SGLang: tokens of a sequence from a position on."""

    rid: str
    token_ids: torch.Tensor
    first: int = 0

    @property
    def length(self) -> int:
        return self.first + len(self.token_ids)


def write_sglang_forward(
    folder: Path,
    requests: Sequence[Rows],
    slots: Sequence[torch.Tensor],
    last_state: torch.Tensor,
    *,
    step: int = 0,
    rank: int = 0,
    verifying: bool = False,
    without: Sequence[str] = (),
) -> Path:
    """One forward as the dumper records it; ``slots`` of one tensor are packed or a draft's, by its width.

    With ``verifying`` the rows are draft tokens: ``seq_lens`` doesn't count them and every row has logits.
    """
    processor = "non_intrusive__logits_processor"
    ids = torch.cat([request.token_ids for request in requests])
    places = [torch.arange(request.first, request.length) for request in requests]
    lengths = [request.first if verifying else request.length for request in requests]
    values: dict[str, Any] = {
        "non_intrusive__inputs.0": ids,
        "input_ids": ids,
        "seq_lens": torch.tensor(lengths),
        "positions": torch.cat(places),
        "rids": [request.rid for request in requests],
        f"{processor}.inputs.0": ids,
        f"{processor}.inputs.1": last_state,
        **(
            {f"{processor}.inputs.4": slots[0]}
            if len(slots) == 1
            else {f"{processor}.inputs.4.{k}": slot for k, slot in enumerate(slots)}
        ),
        f"{processor}.output.next_token_logits": torch.zeros(len(ids) if verifying else len(requests), 5),
    }
    for index, (name, value) in enumerate(values.items(), 1):
        if not name.endswith(tuple(without) or ("\0",)):
            write_dumped(folder, name, value, step=step, rank=rank, index=20 * step + index)
    # Each layer's attention gets the positions too.
    write_dumped(folder, "positions", torch.cat(places), step=step, rank=rank, index=20 * step + 19, layer_id=0)
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
