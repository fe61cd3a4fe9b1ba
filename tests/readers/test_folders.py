"""Folders: what is listed, in which order, and what listing costs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from builders import (
    make_sequences,
    write_capture,
    write_nemo,
    write_specforge,
    write_stacked,
    write_tensorrt_llm,
    write_torchspec,
)

from eagle_parity import readers
from eagle_parity.errors import InputError, MissingExtraError
from eagle_parity.hidden_states import StateSequence
from eagle_parity.readers import open_hidden_states
from eagle_parity.readers.containers import TensorTable, read_table
from eagle_parity.readers.folders import list_shards, natural_key

if TYPE_CHECKING:
    from pathlib import Path


def test_natural_order() -> None:
    names = ["data_10", "data_2", "rows_10/data_1", "rows_2/data_1", "2", "10", "a", "data_"]
    assert sorted(names, key=natural_key) == [
        "2",
        "10",
        "a",
        "data_",
        "data_2",
        "data_10",
        "rows_2/data_1",
        "rows_10/data_1",
    ]


def test_ten_thousand_files_are_listed_without_reading_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_stacked(tmp_path, make_sequences((3,)))
    whole = next(root.glob("*.safetensors"))
    for i in range(10_000):
        (root / f"hs_{i}.safetensors").hardlink_to(whole)
    read: list[Path] = []

    def counting(path: Path) -> TensorTable:
        read.append(path)
        return read_table(path)

    monkeypatch.setattr(readers, "read_table", counting)
    states = open_hidden_states(root, role="trained")
    assert len(states.names) == 10_001
    assert len(read) == readers.SNIFFED
    read.clear()
    assert isinstance(states.open("hs_9999.safetensors"), StateSequence)
    assert len(read) == 1


def test_open_sequences_hold_no_file_descriptors(tmp_path: Path) -> None:
    root = write_stacked(tmp_path, make_sequences([3] * 50))
    states = open_hidden_states(root, role="trained")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112, PTH208  names
    sequences = [states.open(name) for name in states.names]
    blocks = [s.slots[0].read(0, 3) for s in sequences if isinstance(s, StateSequence)]
    after = len(os.listdir("/proc/self/fd")) if before else 0  # noqa: PTH208  names
    assert len(blocks) == 50
    assert after == before


def test_companions_and_nested_folders(tmp_path: Path) -> None:
    write_specforge(tmp_path / "rank_0", make_sequences((3, 4)))
    write_specforge(tmp_path / "rank_1", make_sequences((5,)))
    torch.save({"d2t": torch.arange(3), "t2d": torch.ones(3).bool()}, tmp_path / "vocab_mapping.pt")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / ".data_9.ckpt.part").write_bytes(b"half")
    states = open_hidden_states(tmp_path, role="trained")
    assert not states.unreadable
    assert list(states.names) == [
        "rank_0/rows_0-2000/data_0.ckpt",
        "rank_0/rows_0-2000/data_1.ckpt",
        "rank_1/rows_0-2000/data_0.ckpt",
    ]


def test_links(tmp_path: Path) -> None:
    real = write_stacked(tmp_path / "elsewhere", make_sequences((3, 4)))
    root = tmp_path / "shards"
    root.mkdir()
    (root / "hidden_states").symlink_to(real, target_is_directory=True)
    (root / "loop").symlink_to(root, target_is_directory=True)
    (root / "again").symlink_to(real, target_is_directory=True)
    (root / "dangling.safetensors").symlink_to(tmp_path / "nowhere")
    states = open_hidden_states(root, role="trained")
    assert len(states.names) == 2
    assert [bad.reason for bad in states.unreadable] == ["no such file"]


def test_names_of_any_kind(tmp_path: Path) -> None:
    root = write_stacked(tmp_path, make_sequences((3,)))
    whole = next(root.glob("*.safetensors"))
    wanted = ["数据_2.safetensors", "数据_10.safetensors", "emoji 🦅.safetensors", "new\nline.safetensors"]
    for name in wanted:
        (root / name).hardlink_to(whole)
    raw = os.fsencode(str(root)) + b"/bad_\xff.safetensors"
    try:
        os.link(os.fsencode(str(whole)), raw)
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    states = open_hidden_states(root, role="trained")
    assert {*wanted, "bad_\\xff.safetensors"} < set(states.names)
    assert list(states.names).index(wanted[0]) < list(states.names).index(wanted[1])
    for name in states.names:
        name.encode()
        assert isinstance(states.open(name), StateSequence)


def test_no_readable_input_is_an_input_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"no shards in it \(found: nothing\)"):
        open_hidden_states(empty, role="trained")
    (empty / "a.txt").touch()
    (empty / "b.txt").touch()
    (empty / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"found: 2 \.txt, 1 \.json"):
        open_hidden_states(empty, role="trained")
    with pytest.raises(InputError, match="no such file or folder; expected live hidden states"):
        open_hidden_states(tmp_path / "nowhere", role="live")
    with pytest.raises(InputError, match="check-config"):
        open_hidden_states(empty / "config.json", role="trained")
    with pytest.raises(InputError, match=r"no such file|no path"):
        open_hidden_states("a\0b", role="trained")
    with pytest.raises(InputError, match=r"no path|no such file"):
        open_hidden_states("a" * 10_000, role="trained")
    for i in range(3):
        (empty / f"data_{i}.pt").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"none of its 3 files can be read; data_0\.pt: neither"):
        open_hidden_states(empty, role="trained")


def test_manifest_given_instead_of_its_folder(tmp_path: Path) -> None:
    write_capture(tmp_path, make_sequences((3,)), slots=(1, 2, 3))
    with pytest.raises(InputError, match="pass the capture's folder"):
        open_hidden_states(tmp_path / "manifest.json", role="live")


def test_a_folder_that_may_not_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_stacked(tmp_path, make_sequences((3,)))
    (root / "closed").mkdir()
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    states = open_hidden_states(root, role="trained")
    assert [bad.name for bad in states.unreadable] == ["closed"]
    assert "Permission denied" in states.unreadable[0].reason


def test_depth_is_bounded(tmp_path: Path) -> None:
    deep = tmp_path
    for i in range(12):
        deep = deep / f"d{i}"
    write_stacked(deep, make_sequences((3,)))
    assert list_shards(tmp_path).names == []


def test_recognising_needs_no_torch(tmp_path: Path) -> None:
    write_stacked(tmp_path / "a", make_sequences((3,)))
    write_specforge(tmp_path / "b", make_sequences((3,)))
    write_capture(tmp_path / "c", make_sequences((3,)), slots=(1, 2, 3))
    write_nemo(tmp_path / "d", make_sequences((4,)))
    write_torchspec(tmp_path / "e", make_sequences((3,)))
    write_tensorrt_llm(tmp_path / "f", make_sequences((3,)))
    code = (
        "import sys; from eagle_parity.readers import *\n"
        "for path in sys.argv[1:]:\n"
        "    states = open_hidden_states(path, role='trained'); print(states.count_tokens(states.names[0]))\n"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    folders = [str(tmp_path / name) for name in "abcdef"]
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["3"] * 6), done.stderr


def test_reading_without_torch_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = open_hidden_states(write_stacked(tmp_path, make_sequences((3,))), role="trained")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"eagle-parity\[tensors\]"):
        states.open(states.names[0])
