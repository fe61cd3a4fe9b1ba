from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save_file

from eagle_parity.readers.containers import read_table
from eagle_parity.readers.containers.mapped_file import AT_REST_SECONDS, LEAST_BYTES, map_range

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 3 * LEAST_BYTES


def write(path: Path, *, seconds_ago: float) -> bytes:
    content = os.urandom(SIZE)
    path.write_bytes(content)
    then = time.time() - seconds_ago
    os.utime(path, (then, then))
    return content


def test_a_file_at_rest_is_mapped(tmp_path: Path) -> None:
    content = write(tmp_path / "file", seconds_ago=2 * AT_REST_SECONDS)
    for start, count in ((0, SIZE), (4097, LEAST_BYTES), (SIZE - LEAST_BYTES, LEAST_BYTES), (1, SIZE - 1)):
        held = map_range(tmp_path / "file", start, count)
        assert held is not None
        assert bytes(held) == content[start : start + count]


def test_nothing_reaches_the_file(tmp_path: Path) -> None:
    content = write(tmp_path / "file", seconds_ago=2 * AT_REST_SECONDS)
    held = map_range(tmp_path / "file", 0, SIZE)
    assert held is not None
    held[0] ^= 1
    assert (tmp_path / "file").read_bytes() == content


@pytest.mark.parametrize("seconds_ago", [0, AT_REST_SECONDS / 2, -1000])
def test_a_file_that_may_be_written_to_is_not_mapped(tmp_path: Path, seconds_ago: float) -> None:
    write(tmp_path / "file", seconds_ago=seconds_ago)
    assert map_range(tmp_path / "file", 0, SIZE) is None


def test_neither_is_what_is_small_or_beyond_the_end(tmp_path: Path) -> None:
    write(tmp_path / "file", seconds_ago=2 * AT_REST_SECONDS)
    assert map_range(tmp_path / "file", 0, LEAST_BYTES - 1) is None
    assert map_range(tmp_path / "file", SIZE - 10, LEAST_BYTES) is None
    with pytest.raises(FileNotFoundError):
        map_range(tmp_path / "nothing", 0, LEAST_BYTES)


def test_a_file_that_was_replaced_is_mapped_anew(tmp_path: Path) -> None:
    write(tmp_path / "file", seconds_ago=2 * AT_REST_SECONDS)
    map_range(tmp_path / "file", 0, SIZE)
    content = write(tmp_path / "other", seconds_ago=3 * AT_REST_SECONDS)
    (tmp_path / "other").replace(tmp_path / "file")
    held = map_range(tmp_path / "file", 0, SIZE)
    assert held is not None
    assert bytes(held) == content


def test_a_stored_tensor_is_viewed_as_it_is_read(tmp_path: Path) -> None:
    states = torch.randn(700, 3, 512).bfloat16()
    save_file({"states": states, "odd": torch.zeros(1, dtype=torch.int8)}, tmp_path / "a.safetensors")
    then = time.time() - 2 * AT_REST_SECONDS
    os.utime(tmp_path / "a.safetensors", (then, then))
    table = read_table(tmp_path / "a.safetensors")
    for slot in range(3):
        stored = table.tensors["states"].at(1, slot)
        viewed, read = stored.view(table.source), stored.read(table.source)
        assert torch.equal(viewed, states[:, slot])
        assert torch.equal(read, states[:, slot])
