"""One file of a set: its numbers, and everything that can be wrong with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from small_sets import HIDDEN, SLOTS, tensors, write_file

from eagle_parity.scan.look import FileLook, look_at_file, sample_runs
from eagle_parity.scan.shards import LocalShards, Stamp

if TYPE_CHECKING:
    from pathlib import Path


def look(path: Path, rows: int | None = None) -> FileLook:
    return look_at_file(LocalShards(str(path.parent)), path.name, rows=rows)


def only_problem(found: FileLook) -> tuple[str, str, str]:
    (problem,) = found.problems
    return problem


@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 700])
def test_the_sums_are_those_of_float64(tmp_path: Path, tokens: int) -> None:
    content = tensors(1, tokens)
    found = look(write_file(tmp_path / "a.safetensors", content))
    wide = content["hidden_states"].double()
    measured = found.measured
    assert measured is not None
    assert found.problems == []
    assert measured.sums.rows == tokens
    # Of values around zero the sum is small against what is added: the bound is relative to that.
    added = wide.abs().sum(0).numpy()
    assert (np.abs(measured.sums.sums_2SH[0] - wide.sum(0).numpy()) <= 1e-6 * added).all()
    assert np.allclose(measured.sums.sums_2SH[1], (wide * wide).sum(0).numpy(), rtol=1e-6)
    assert np.array_equal(measured.least_SH, wide.amin(0).float().numpy())
    assert np.array_equal(measured.greatest_SH, wide.amax(0).float().numpy())
    assert (found.counts.rows, found.counts.sampled_rows, found.counts.tokens) == (tokens, tokens, tokens)


def test_a_sample_of_rows(tmp_path: Path) -> None:
    content = tensors(1, 1000)
    path = write_file(tmp_path / "a.safetensors", content)
    found = look(path, 64)
    chosen = np.concatenate([np.arange(low, high) for low, high in sample_runs(1000, 64)])
    assert (found.counts.rows, found.counts.sampled_rows, len(chosen)) == (1000, 64, 64)
    assert found.measured is not None
    expected = content["hidden_states"][torch.from_numpy(chosen)].double().sum(0).numpy()
    assert np.allclose(found.measured.sums.sums_2SH[0], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("rows", "wanted"), [(10, 64), (64, 64), (65, 64), (1000, 64), (7, 3), (100, 1), (5, 2)])
def test_where_the_rows_of_a_sample_lie(rows: int, wanted: int) -> None:
    runs = sample_runs(rows, wanted)
    positions = [position for low, high in runs for position in range(low, high)]
    assert positions == sorted(set(positions))
    assert len(positions) == min(rows, wanted)
    assert positions[0] == 0
    assert rows <= wanted or wanted == 1 or positions[-1] == rows - 1


def test_a_sink_and_bad_rows_are_in_no_sum(tmp_path: Path) -> None:
    content = tensors(1, 40)
    clean = content["hidden_states"].clone()
    content["hidden_states"][0] *= 200
    content["hidden_states"][7, 1, 3] = torch.nan
    content["hidden_states"][9, 2, 0] = torch.inf
    found = look(write_file(tmp_path / "a.safetensors", content))
    kept = [row for row in range(40) if row not in {0, 7, 9}]
    assert found.measured is not None
    assert found.measured.sums.rows == 37
    assert np.allclose(found.measured.sums.sums_2SH[1], (clean[kept].double() ** 2).sum(0).numpy(), rtol=1e-6)
    assert (found.counts.sink_rows, found.counts.bad_rows) == (1, 2)
    assert only_problem(found) == (
        "non-finite",
        "a.safetensors",
        "2 of 40 rows have NaN or infinity, first at position 7",
    )
    assert len(found.measured.sample.priorities_N) == 37


def test_outliers_beyond_a_sinks_share_are_the_signal(tmp_path: Path) -> None:
    """Two fifths of the rows are ten thousand times the others: no sinks, and in the sums."""
    content = tensors(1, 60)
    content["hidden_states"][torch.arange(60) % 5 < 2] *= 1e4
    found = look(write_file(tmp_path / "a.safetensors", content))
    assert found.counts.sink_rows <= 3  # 2 % of the rows, for each state at most
    assert found.measured is not None
    assert found.measured.greatest_SH.max() > 1e4


def test_rows_of_zeros_make_no_sinks(tmp_path: Path) -> None:
    content = tensors(1, 60)
    content["hidden_states"][:40] = 0
    found = look(write_file(tmp_path / "a.safetensors", content))
    assert (found.counts.sink_rows, found.problems) == (0, [])


@pytest.mark.parametrize("rows", [None, 8])
def test_a_slot_that_was_never_written(tmp_path: Path, rows: int | None) -> None:
    content = tensors(1, 60)
    content["hidden_states"][:, 1] = 0
    found = look(write_file(tmp_path / "a.safetensors", content), rows)
    assert only_problem(found) == ("dead", "a.safetensors", "slot 1 is zero in every row that was looked at")


def test_numbers_whose_squares_leave_float32(tmp_path: Path) -> None:
    content = tensors(1, 60)
    content["hidden_states"] = content["hidden_states"].float() * 1e20
    found = look(write_file(tmp_path / "a.safetensors", content))
    wide = content["hidden_states"].double()
    assert found.measured is not None
    assert np.allclose(found.measured.sums.sums_2SH[1], (wide * wide).sum(0).numpy(), rtol=1e-6)


def test_all_rows_bad(tmp_path: Path) -> None:
    content = tensors(1, 5)
    content["hidden_states"].fill_(torch.nan)
    found = look(write_file(tmp_path / "a.safetensors", content))
    assert found.measured is None
    assert only_problem(found)[0] == "non-finite"


def test_other_numbers_of_rows_and_ids(tmp_path: Path) -> None:
    content = tensors(1, 12)
    content["token_ids"] = torch.arange(15)
    found = look(write_file(tmp_path / "a.safetensors", content))
    assert only_problem(found) == ("row-count", "a.safetensors", "15 tokens, states of 12 rows")


def test_no_token_at_all(tmp_path: Path) -> None:
    found = look(write_file(tmp_path / "a.safetensors", tensors(1, 0)))
    assert only_problem(found)[2] == "a sequence without a token"
    assert found.measured is None


def test_an_empty_mask(tmp_path: Path) -> None:
    states = torch.randn(1, 6, 3 * HIDDEN).bfloat16()
    content = {
        "input_ids": torch.arange(6),
        "loss_mask": torch.zeros(6, dtype=torch.int64),
        "hidden_state": torch.randn(1, 6, HIDDEN).bfloat16(),
        "aux_hidden_state": states,
    }
    path = tmp_path / "data_0.ckpt"
    torch.save(content, path)
    found = look(path)
    assert only_problem(found) == ("empty-mask", "data_0.ckpt", "none of its 6 tokens is trained on")
    assert (found.counts.masked_tokens, found.counts.mask_tokens) == (6, 6)
    assert found.measured is not None
    assert found.measured.sums.sums_2SH.shape == (2, SLOTS + 1, HIDDEN)  # the last state is behind the slots
    assert np.allclose(found.measured.sums.sums_2SH[0, 1], states[0, :, HIDDEN : 2 * HIDDEN].double().sum(0), rtol=1e-5)


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\x00" * 100])
def test_what_can_t_be_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    found = look(tmp_path / "a.safetensors")
    assert only_problem(found)[:2] == ("unreadable", "a.safetensors")
    assert (found.counts.files, found.counts.bytes, found.layout) == (1, len(content), None)


def test_a_truncated_file(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.safetensors", tensors(1, 12))
    os.truncate(path, path.stat().st_size - 10)
    assert "truncated" in only_problem(look(path))[2]


def test_a_file_that_vanished(tmp_path: Path) -> None:
    assert "vanished" in only_problem(look(tmp_path / "a.safetensors"))[2]


def test_a_file_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers are those of no version of it, and count for nothing."""
    path = write_file(tmp_path / "a.safetensors", tensors(1, 12))
    stamp, asked = LocalShards.stamp, list[Stamp]()

    def changing(self: LocalShards, name: str) -> Stamp:
        asked.append(stamp(self, name))
        if len(asked) == 1:
            write_file(path, tensors(2, 12))
        return asked[-1]

    monkeypatch.setattr(LocalShards, "stamp", changing)
    found = look(path)
    assert "changed while it was read" in only_problem(found)[2]
    assert (found.measured, found.digests, found.counts.sequences) == (None, [], 0)


def test_a_file_that_is_cut_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read and not mapped: to touch what is no more there would kill the process."""
    path = write_file(tmp_path / "a.safetensors", tensors(1, 100_000))
    os.utime(path, (1e9, 1e9))  # at rest for long
    table = LocalShards.table

    def cutting(self: LocalShards, name: str) -> Any:
        found = table(self, name)
        os.truncate(path, 5000)
        return found

    monkeypatch.setattr(LocalShards, "table", cutting)
    assert "shorter" in only_problem(look(path))[2]
