from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eagle_parity.capture.format import name_of, text_of
from eagle_parity.capture.manifest import MAX_MODES, CapturedTarget, Producer
from eagle_parity.capture.manifest_file import MAX_MANIFEST_BYTES, is_capture, read_manifest
from eagle_parity.capture.writer import CaptureWriter, check_output
from eagle_parity.errors import InputError
from eagle_parity.wiring import Wiring

torch = pytest.importorskip("torch")

HIDDEN = 8
TARGET = CapturedTarget(name="t", architectures=["LlamaForCausalLM"], num_layers=10, hidden_size=HIDDEN)
PRODUCER = Producer(engine="transformers@5.19.0", dtype="float32")


def writer(folder: Path, **changes: Any) -> CaptureWriter:
    described: dict[str, Any] = {"producer": PRODUCER, "target": TARGET}
    options = described | {"slots": [2, "post_norm", None], "last_state": 10, "dtype": "float32"} | changes
    return CaptureWriter(folder, **options)


def write_one(open_writer: CaptureWriter, name: str = "a", tokens: int = 3) -> None:
    states = [torch.full((tokens, HIDDEN), float(i)) for i in range(4)]
    open_writer.write(name, torch.arange(tokens), states[:3], last_state=states[3])


def test_a_capture_is_read_back(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    with writer(tmp_path / "new" / "capture") as open_writer:
        write_one(open_writer, "rows_0-2000/data_0.ckpt")
        write_one(open_writer, "b", tokens=5)
    manifest = read_manifest(tmp_path / "new" / "capture")
    assert manifest.complete
    assert manifest.wiring == Wiring((2, "post_norm", None), 10)
    assert [(s.name, s.tokens) for s in manifest.sequences] == [("rows_0-2000/data_0.ckpt", 3), ("b", 5)]
    assert manifest.tokens == 8
    tensors = load_file(tmp_path / "new" / "capture" / manifest.sequences[1].file)
    assert sorted(tensors) == ["last_state", "slot.0", "slot.1", "slot.2", "token_ids"]
    assert tensors["token_ids"].dtype == torch.int64
    assert tensors["slot.2"].eq(2).all()


def test_files_are_private_and_nothing_temporary_stays(tmp_path: Path) -> None:
    with writer(tmp_path) as open_writer:
        write_one(open_writer)
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == ["manifest.json", "sequence_000000.safetensors"]
    assert {f.stat().st_mode & 0o777 for f in files} == {0o600}


def test_one_tensor_may_be_two_slots(tmp_path: Path) -> None:
    state = torch.ones(3, HIDDEN)
    with writer(tmp_path, slots=[2, 2], last_state=None) as open_writer:
        open_writer.write("a", torch.arange(3), [state, state])
    assert read_manifest(tmp_path).tokens == 3


def test_what_a_spool_calls_its_forwards_makes_no_manifest_unreadable(tmp_path: Path) -> None:
    state = torch.ones(3, HIDDEN)
    modes = ["\x1b[2J" * 1000, "", *(f"KIND {i}" for i in range(MAX_MODES))]
    with writer(tmp_path, slots=[2], last_state=None) as open_writer:
        open_writer.write("a", torch.arange(3), [state], modes=modes)
    (sequence,) = read_manifest(tmp_path).sequences
    assert len(sequence.modes) < MAX_MODES
    assert sequence.modes[1:3] == ["KIND 0", "KIND 1"]
    assert all(mode.isprintable() for mode in sequence.modes)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_what_was_complete(tmp_path: Path, error: type[BaseException]) -> None:
    def stop_after_one() -> None:
        with writer(tmp_path) as open_writer:
            write_one(open_writer)
            raise error

    with pytest.raises(error):
        stop_after_one()
    manifest = read_manifest(tmp_path)
    assert not manifest.complete
    assert [s.name for s in manifest.sequences] == ["a"]


def test_an_interruption_before_the_first_sequence_leaves_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), writer(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(_tensors: object, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("safetensors.torch.save_file", save)
    with pytest.raises(KeyboardInterrupt), writer(tmp_path) as open_writer:
        write_one(open_writer)
    assert list(tmp_path.iterdir()) == []


def test_equal_names_are_told_apart(tmp_path: Path) -> None:
    with writer(tmp_path) as open_writer:
        write_one(open_writer)
        write_one(open_writer)
    assert [s.name for s in read_manifest(tmp_path).sequences] == ["a", "a (2)"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": torch.arange(4)}, r"slot\.0 is \(3, 8\)"),
        ({"slots": [torch.ones(3, HIDDEN)] * 2}, "3 slots"),
        ({"last_state": None}, "3 slots"),
        ({"last_state": torch.ones(3, HIDDEN, dtype=torch.bfloat16)}, "bfloat16"),
        ({"loss_mask": torch.ones(2)}, "loss_mask"),
    ],
)
def test_tensors_that_are_not_what_the_manifest_says_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    arguments: dict[str, Any] = {
        "token_ids": torch.arange(3),
        "slots": [torch.ones(3, HIDDEN)] * 3,
        "last_state": torch.ones(3, HIDDEN),
    }
    with pytest.raises(ValueError, match=message), writer(tmp_path) as open_writer:
        open_writer.write("a", **arguments | change)


def test_a_folder_with_content_needs_overwrite_and_keeps_what_is_not_the_captures(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"not empty.*--overwrite"):
        writer(tmp_path)
    for tokens in (3, 4):
        with writer(tmp_path, overwrite=True) as open_writer:
            write_one(open_writer, tokens=tokens)
            write_one(open_writer, tokens=tokens)
    with pytest.raises(InputError, match="holds a capture already"):
        writer(tmp_path)
    with writer(tmp_path, overwrite=True) as open_writer:
        write_one(open_writer)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["manifest.json", "notes.txt", "sequence_000000.safetensors"]


def test_a_manifest_of_something_else_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format_version": 2, "aux_layer_ids": [1, 4, 6]}')
    with pytest.raises(InputError, match="not a capture's"):
        writer(tmp_path, overwrite=True)
    assert not is_capture(tmp_path)


def valid_manifest(folder: Path) -> dict[str, Any]:
    with writer(folder) as open_writer:
        write_one(open_writer)
    value: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["schema_version"], 2, "not a capture's manifest"),
        (["kind"], "other", "not a capture's manifest"),
        (["slots"], [11], "boundary 11"),
        (["slots"], [-1], "boundary -1"),
        (["slots"], [], "no slots"),
        (["last_state"], "pre_norm", "not a capture's manifest"),
        (["dtype"], "int8", "not a capture's manifest"),
        (["target", "hidden_size"], 2**40, "not a capture's manifest"),
        (["target", "num_layers"], 0, "not a capture's manifest"),
        (["sequences", 0, "tokens"], 2**60, "not a capture's manifest"),
        (["sequences", 0, "file"], "../../etc/passwd", "a sequence's file is called"),
        (["sequences", 0, "name"], "x" * 5000, "not a capture's manifest"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, path: list[Any], value: object, message: str) -> None:
    manifest = valid_manifest(tmp_path)
    place: Any = manifest
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=message):
        read_manifest(tmp_path)


def test_a_sequence_named_twice_is_refused(tmp_path: Path) -> None:
    manifest = valid_manifest(tmp_path)
    manifest["sequences"] *= 2
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="one name"):
        read_manifest(tmp_path)


def test_damaged_manifests_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no manifest\.json"):
        read_manifest(tmp_path)
    for content in (b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "manifest.json").write_bytes(content)
        with pytest.raises(InputError, match="not a capture's manifest"):
            read_manifest(tmp_path)
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(MAX_MANIFEST_BYTES + 1)
    with pytest.raises(InputError, match="more than"):
        read_manifest(tmp_path)


def test_the_format_is_known_without_torch() -> None:
    code = "import sys, eagle_parity.capture.writer; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_the_manifests_place_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    assert not is_capture(tmp_path)
    with pytest.raises(InputError, match="no regular file"):
        read_manifest(tmp_path)
    with pytest.raises(InputError, match="is not a capture's"):
        check_output(tmp_path, overwrite=True)


@pytest.mark.parametrize("text", ["x" * 5000, "\ud800"])
def test_what_could_not_be_read_is_not_written(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="can't be written so that it can be read"):
        writer(tmp_path / "capture", producer=Producer(engine=text, dtype="float32"))
    assert not (tmp_path / "capture").exists()


@pytest.mark.parametrize("value", ["x" * 100_000, "\ud800\udcff", "\x1b[31m", 10**30, None, ["\ud800"]])
def test_names_and_texts_that_a_manifest_can_hold(tmp_path: Path, value: object) -> None:
    producer = Producer(engine=name_of(value), dtype=name_of(value), options={name_of(value): name_of(value)})
    with writer(tmp_path, producer=producer) as opened:
        write_one(opened, str(value))
    assert read_manifest(tmp_path).tokens == 3
    assert len(text_of(value)) <= 8192


@pytest.mark.parametrize("name", ["/proc/new/folder", "/dev/null", "link", "file/new", "a" * 300, "nul\0"])
def test_what_can_t_be_written_to_is_told_before_anything_is_computed(tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing" / "there")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="a directory to write a capture to"):
        check_output(tmp_path / name, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"link", "file"}


def test_looking_at_an_output_leaves_nothing(tmp_path: Path) -> None:
    check_output(tmp_path / "a" / "b", overwrite=False)
    check_output(tmp_path, overwrite=False)
    assert list(tmp_path.iterdir()) == []
