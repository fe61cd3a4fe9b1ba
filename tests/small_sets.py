"""Small training sets on disk, in the layout of vLLM's connector and of speculators 0.5 and newer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

if TYPE_CHECKING:
    from pathlib import Path

SLOTS, HIDDEN = 3, 8


def tensors(number: int, tokens: int = 12, *, slots: int = SLOTS, hidden: int = HIDDEN) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    scale = torch.arange(1, slots * hidden + 1).view(slots, hidden) / 4
    states = (torch.randn(tokens, slots, hidden, generator=generator) * scale).bfloat16()
    return {"hidden_states": states, "token_ids": torch.arange(tokens) + 100 * number}


def write_file(path: Path, content: dict[str, torch.Tensor]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(content, path)
    return path


def write_set(folder: Path, files: int, tokens: int = 12) -> Path:
    for number in range(files):
        write_file(folder / f"rows_{number // 100}" / f"hs_{number}.safetensors", tensors(number, tokens))
    return folder
