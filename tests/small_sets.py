"""Small training sets on disk, in the layout of vLLM's connector and of speculators 0.5 and newer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save_file

if TYPE_CHECKING:
    from pathlib import Path

    from eagle_parity.scan.set_state import SetState

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


def assert_same_state(one: SetState, other: SetState) -> None:
    """Bit for bit."""
    assert (one.counts, one.problems, one.stamps) == (other.counts, other.problems, other.stamps)
    assert np.array_equal(one.digests_N, other.digests_N)
    assert np.array_equal(one.places_N2, other.places_N2)
    assert list(one.layouts) == list(other.layouts)
    for mine, theirs in zip(one.layouts.values(), other.layouts.values(), strict=True):
        assert mine.moments is not None
        assert theirs.moments is not None
        assert mine.sample is not None
        assert theirs.sample is not None
        assert np.array_equal(mine.sample.rows_NSH, theirs.sample.rows_NSH)
        for a, b in zip(mine.moments.groups, theirs.moments.groups, strict=True):
            assert np.array_equal(a.sums_2SH, b.sums_2SH)
        assert mine.moments.ranges.keys() == theirs.moments.ranges.keys()
