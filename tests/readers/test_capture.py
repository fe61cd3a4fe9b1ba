"""Captures whose folder isn't what the manifest says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from builders import make_sequences, write_capture
from safetensors.torch import load_file, save_file

from eagle_parity.cli.app import run
from eagle_parity.hidden_states import StateSequence
from eagle_parity.readers import open_hidden_states
from eagle_parity.readers.capture import MAX_FACTS

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = [5, 9, 7]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write_capture(tmp_path / "capture", make_sequences(LENGTHS), slots=[0, 3, 6])


def change_manifest(capture: Path, **changes: Any) -> dict[str, Any]:
    path = capture / "manifest.json"
    manifest: dict[str, Any] = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(manifest))
    return manifest


def facts_of(capture: Path) -> dict[str, Any]:
    return dict(open_hidden_states(capture, role="live").layout.facts)


def test_a_whole_capture_has_no_such_facts(capture: Path) -> None:
    assert facts_of(capture).keys() & {"incomplete", "unlisted_files", "contradicts_manifest"} == set()


def test_an_interrupted_recording_says_so(capture: Path) -> None:
    change_manifest(capture, complete=False)
    assert facts_of(capture)["incomplete"] is True
    assert open_hidden_states(capture / "sequence_000001.safetensors", role="live").layout.facts["incomplete"] is True


def test_files_without_a_manifest_are_incomplete(capture: Path) -> None:
    (capture / "manifest.json").unlink()
    assert facts_of(capture)["incomplete"] is True


def test_files_that_are_not_listed_are_named_and_not_read(capture: Path) -> None:
    manifest = change_manifest(capture)
    change_manifest(capture, sequences=manifest["sequences"][:2])
    (capture / "notes.txt").touch()
    states = open_hidden_states(capture, role="live")
    assert len(states.names) == 2
    assert states.layout.facts["unlisted_files"] == ["sequence_000002.safetensors"]
    for i in range(50):
        (capture / f"x{i:02}.safetensors").touch()
    told = facts_of(capture)["unlisted_files"]
    assert (len(told), told[-1]) == (MAX_FACTS + 1, "... 51 in all")


def test_another_number_of_tokens_is_told_and_the_file_is_read(capture: Path) -> None:
    sequences = change_manifest(capture)["sequences"]
    sequences[1]["tokens"] = 4
    change_manifest(capture, sequences=sequences)
    states = open_hidden_states(capture, role="live")
    assert states.layout.facts["contradicts_manifest"] == ["sequence_000001.safetensors: tokens 9, not 4"]
    opened = states.open("data_1")
    assert isinstance(opened, StateSequence)
    assert opened.rows == 9
    assert [states.count_tokens(name) for name in states.names] == LENGTHS


def test_another_dtype_and_width_are_told_as_the_headers_have_them(capture: Path) -> None:
    target = change_manifest(capture)["target"]
    change_manifest(capture, dtype="float32", target={**target, "hidden_size": 4096})
    layout = open_hidden_states(capture, role="live").layout
    assert (layout.dtype, layout.hidden_size) == ("bfloat16", 8)
    told = layout.facts["contradicts_manifest"]
    assert told[0] == "sequence_000000.safetensors: hidden size 8, not 4096, dtype bfloat16, not float32"
    assert len(told) == len(LENGTHS)


def test_one_file_of_another_dtype_is_the_one_that_is_named(capture: Path) -> None:
    path = capture / "sequence_000002.safetensors"
    tensors = {key: t.float() if t.dtype == torch.bfloat16 else t for key, t in load_file(path).items()}
    save_file(tensors, path)
    assert facts_of(capture)["contradicts_manifest"] == ["sequence_000002.safetensors: dtype float32, not bfloat16"]


def test_a_file_that_cant_be_read_contradicts_nothing(capture: Path) -> None:
    (capture / "sequence_000000.safetensors").write_bytes(b"short")
    assert "contradicts_manifest" not in facts_of(capture)


def test_inspect_tells_them(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sequences = change_manifest(capture)["sequences"]
    change_manifest(capture, complete=False, sequences=[{**sequences[0], "tokens": 4}])
    assert run(["inspect", str(capture)]) == 0
    told = capsys.readouterr().out
    for word in ("incomplete", "unlisted files", "contradicts manifest", "tokens 5, not 4"):
        assert word in told


def test_the_kinds_of_forwards_are_counted_by_sequence(capture: Path) -> None:
    assert "forward_modes" not in facts_of(capture)
    sequences = change_manifest(capture)["sequences"]
    sequences[0]["modes"] = ["MIXED", "EXTEND", "EXTEND"]
    sequences[1]["modes"] = ["EXTEND"]
    sequences[2]["modes"] = ["\x1b[2J" * 100]
    change_manifest(capture, sequences=sequences)
    told = facts_of(capture)["forward_modes"]
    assert list(told.items())[:2] == [("EXTEND", "2 sequence(s)"), ("MIXED", "1 sequence(s)")]
    assert all(len(mode) < 100 and mode.isprintable() for mode in told)


def test_how_many_forwards_there_were_is_told_where_it_is_known(capture: Path) -> None:
    assert "forwards_per_sequence" not in facts_of(capture)
    sequences = change_manifest(capture)["sequences"]
    sequences[0]["forwards"] = sequences[1]["forwards"] = 2
    change_manifest(capture, sequences=sequences)
    assert facts_of(capture)["forwards_per_sequence"] == "2"


def test_a_manifest_without_the_kinds_of_forwards_is_read(capture: Path) -> None:
    sequences = change_manifest(capture)["sequences"]
    for sequence in sequences:
        del sequence["modes"], sequence["forwards"]
    change_manifest(capture, sequences=sequences)
    assert len(open_hidden_states(capture, role="live").names) == len(LENGTHS)
