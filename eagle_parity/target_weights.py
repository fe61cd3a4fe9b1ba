"""The few tensors of a target that a comparison can use: embedding rows and the final norm's weight."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eagle_parity.config_files import MAX_CONFIG_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from eagle_parity.targets import Target

EMBEDDING_NAMES = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight")
FINAL_NORM_NAMES = (
    "model.norm.weight",
    "language_model.norm.weight",
    "model.language_model.norm.weight",
    "language_model.model.norm.weight",
    "transformer.ln_f.weight",
)
NORM_OFFSET_BY_ONE = frozenset({"gemma", "gemma2", "gemma3", "gemma3_text"})
"""transformers' GemmaRMSNorm, Gemma2RMSNorm and Gemma3RMSNorm multiply by ``1 + weight``; Gemma3n's doesn't."""
ROOT_SCALED = NORM_OFFSET_BY_ONE | {"gemma3n", "gemma3n_text", "gemma4", "gemma4_text"}
"""Their embeddings are multiplied by the square root of the hidden size."""
MAX_INDEX_BYTES = 64 * 1024 * 1024
"""model.safetensors.index.json of the largest mixture-of-experts models is some ten megabytes."""


@dataclass(frozen=True, slots=True)
class EmbeddingTable:
    """The target's embedding, read row by row.

    Attributes:
        file: the safetensors file.
        tensor: its name there.
        scale: what the model multiplies it by before the first layer.
    """

    file: Path
    tensor: str
    scale: float

    def rows(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Boundary 0 of some tokens: float32 ``[T, H]``; NaN for ids outside the vocabulary."""
        import torch
        from safetensors import safe_open

        unique, inverse = torch.unique(token_ids, return_inverse=True)
        with safe_open(self.file, framework="pt") as handle:
            table = handle.get_slice(self.tensor)
            vocabulary, hidden_size = table.get_shape()
            gathered = torch.full((len(unique), hidden_size), torch.nan)
            for place, token in enumerate(unique.tolist()):
                if 0 <= token < vocabulary:
                    gathered[place] = table[token : token + 1].float()[0]
        return (gathered * self.scale)[inverse]


def embedding_scale(target: Target) -> float:
    """What a target multiplies its embedding by.

    Sources: transformers' Gemma classes multiply by the square root of the hidden size; Granite by
    ``embedding_multiplier``; MiniCPM by ``scale_emb``.
    """
    config: Mapping[str, Any] = target.config
    model_type = str(config.get("model_type") or target.model_type)
    if model_type in ROOT_SCALED:
        return math.sqrt(target.hidden_size)
    for key in ("embedding_multiplier", "scale_emb"):
        value = config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return 1.0


def find_embedding(target: Target) -> EmbeddingTable | None:
    """The embedding table, if the target's folder holds its weights as safetensors."""
    found = _find(target, EMBEDDING_NAMES, rank=2)
    return None if found is None else EmbeddingTable(found[0], found[1], embedding_scale(target))


def read_final_norm(target: Target) -> torch.Tensor | None:
    """The final norm's gains, float32 ``[H]``; None without weights.

    Gemma stores them minus one (transformers: ``1.0 + weight``).
    """
    found = _find(target, FINAL_NORM_NAMES, rank=1)
    if found is None:
        return None
    from safetensors import safe_open

    with safe_open(found[0], framework="pt") as handle:
        weight: torch.Tensor = handle.get_tensor(found[1]).float()
    return weight + 1 if str(target.config.get("model_type") or "") in NORM_OFFSET_BY_ONE else weight


def _find(target: Target, names: tuple[str, ...], *, rank: int) -> tuple[Path, str] | None:
    if target.folder is None:
        return None
    from safetensors import SafetensorError, safe_open

    for file, tensors in _tensor_names(target.folder):
        matching = [tensor for tensor in tensors if tensor.endswith(names)]
        for tensor in matching:
            try:
                with safe_open(file, framework="pt") as handle:
                    shape = handle.get_slice(tensor).get_shape()
            except (OSError, SafetensorError):
                continue
            if len(shape) == rank and shape[-1] == target.hidden_size:
                return file, tensor
    return None


def _tensor_names(folder: Path) -> list[tuple[Path, list[str]]]:
    index = folder / "model.safetensors.index.json"
    if index.is_file() and index.stat().st_size <= max(MAX_INDEX_BYTES, MAX_CONFIG_BYTES):
        try:
            weight_map = json.loads(index.read_bytes()).get("weight_map")
        except (ValueError, AttributeError, RecursionError):
            weight_map = None
        if isinstance(weight_map, dict):
            by_file: dict[str, list[str]] = {}
            for tensor, file in weight_map.items():
                # Only plain names: an index must not point outside its folder.
                if isinstance(file, str) and "/" not in file and "\\" not in file:
                    by_file.setdefault(file, []).append(str(tensor))
            return [(folder / file, tensors) for file, tensors in by_file.items() if (folder / file).is_file()]
    from safetensors import SafetensorError, safe_open

    listed: list[tuple[Path, list[str]]] = []
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as handle:
                listed.append((file, list(handle.keys())))
        except (OSError, SafetensorError):
            continue
    return listed
