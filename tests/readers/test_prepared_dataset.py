"""Loss masks from the Arrow dataset that speculators 0.5 and newer keeps beside the states."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import torch
from builders import Written, make_sequences, write_prepared_dataset, write_stacked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from eagle_parity.hidden_states import StateSequence
from eagle_parity.readers import open_hidden_states
from eagle_parity.readers.containers import UnreadableFileError, arrow_rows
from eagle_parity.readers.containers.stored_tensor import read_bytes
from eagle_parity.readers.prepared_dataset import NoMask, PreparedDataset, find_prepared_dataset, row_number

if TYPE_CHECKING:
    from pathlib import Path

    from eagle_parity.readers.containers.arrow_rows import ArrowRows

COLUMNS = ("input_ids", "loss_mask")


def rows_of(folder: Path) -> ArrowRows:
    found = find_prepared_dataset(folder)
    assert found is not None
    assert found.rows is not None
    return found.rows


def opened(folder: Path, name: str) -> StateSequence:
    sequence = open_hidden_states(folder, role="trained").open(name)
    assert isinstance(sequence, StateSequence)
    return sequence


def no_mask(folder: Path, name: str, ids: torch.Tensor) -> str:
    found = find_prepared_dataset(folder)
    assert found is not None
    mask = found.mask_of(name, ids.numpy())
    assert isinstance(mask, NoMask)
    return mask.reason


@pytest.fixture
def written() -> list[Written]:
    return make_sequences((5, 9, 1, 4, 7, 3, 8))


def test_masks_are_those_of_the_rows(tmp_path: Path, written: list[Written]) -> None:
    write_stacked(tmp_path, written, speculators=True)
    states = open_hidden_states(tmp_path, role="trained")
    assert "7 of 7 files tried" in states.layout.facts["loss_mask"]
    assert not any("loss mask" in text for text in states.layout.unknown)
    # Not in the order of the rows: a batch that was left is taken again.
    for i in (6, 0, 3, 1, 5, 2, 4):
        sequence = states.open(f"hidden_states/hs_{i}.safetensors")
        assert isinstance(sequence, StateSequence)
        assert sequence.loss_mask is not None
        assert torch.equal(sequence.loss_mask, written[i].mask)
        assert sequence.no_loss_mask == ""


@pytest.mark.parametrize("files", [1, 2, 3, 7])
@pytest.mark.parametrize("rows_a_batch", [1, 3, 10])
def test_rows_are_counted_over_files_and_batches(
    tmp_path: Path, written: list[Written], files: int, rows_a_batch: int
) -> None:
    rows = rows_of(write_prepared_dataset(tmp_path, written, files=files, rows_a_batch=rows_a_batch))
    for i in (4, 0, 6, 2):
        row = rows.row(i)
        assert row is not None
        assert np.array_equal(row["input_ids"], written[i].token_ids.numpy())
        assert np.array_equal(row["loss_mask"], written[i].mask.numpy())
    assert rows.row(len(written)) is None
    assert rows.row(-1) is None


def test_a_shuffled_dataset_gives_no_mask(tmp_path: Path, written: list[Written]) -> None:
    write_stacked(tmp_path, written, speculators=True)
    write_prepared_dataset(tmp_path, [written[1], written[0], *written[2:]])
    sequence = opened(tmp_path, "hidden_states/hs_0.safetensors")
    assert sequence.loss_mask is None
    assert "row 0 of the dataset has other token ids (9, the file has 5)" in sequence.no_loss_mask
    kept = opened(tmp_path, "hidden_states/hs_2.safetensors")
    assert kept.loss_mask is not None
    layout = open_hidden_states(tmp_path, role="trained").layout
    assert "5 of 7 files tried" in layout.facts["loss_mask"]
    assert any("the loss mask of 2 of the 7 files tried" in text and "shuffled" in text for text in layout.unknown)


def test_one_token_is_enough_to_refuse_a_row(tmp_path: Path, written: list[Written]) -> None:
    write_prepared_dataset(tmp_path, written)
    ids = written[1].token_ids.clone()
    ids[4] += 1
    assert "other token ids" in no_mask(tmp_path, "hs_1.safetensors", ids)


def test_a_filtered_dataset_has_no_such_row(tmp_path: Path, written: list[Written]) -> None:
    write_prepared_dataset(tmp_path, written[:3])
    assert no_mask(tmp_path, "hs_5.safetensors", written[5].token_ids) == "the dataset has no row 5"


@pytest.mark.parametrize("name", ["cmpl-8ea721b1.safetensors", "hs_1.pt", "hs_-1.safetensors", "hs_.safetensors"])
def test_only_a_numbered_file_has_a_row(tmp_path: Path, written: list[Written], name: str) -> None:
    write_prepared_dataset(tmp_path, written)
    assert row_number(name) is None
    assert "no row number" in no_mask(tmp_path, name, written[0].token_ids)
    assert row_number("hidden_states/hs_12.safetensors") == 12


def test_states_are_read_without_pyarrow(
    tmp_path: Path, written: list[Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stacked(tmp_path, written, speculators=True)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    states = open_hidden_states(tmp_path, role="trained")
    assert any("pip install 'eagle-parity[arrow]'" in text for text in states.layout.unknown)
    sequence = opened(tmp_path, "hidden_states/hs_1.safetensors")
    assert sequence.loss_mask is None
    assert "eagle-parity[arrow]" in sequence.no_loss_mask
    assert torch.equal(sequence.slots[0].read(0, 9), written[1].slots[0])


def test_a_dataset_is_joined_without_torch(tmp_path: Path, written: list[Written]) -> None:
    write_stacked(tmp_path, written, speculators=True)
    code = (
        "import sys; from eagle_parity.readers import describe_shards\n"
        "print(describe_shards(sys.argv[1]).facts['loss_mask'])\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, "7 of 7" in done.stdout) == (0, True), done.stderr


def test_what_is_read_does_not_grow_with_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(descriptor: int, start: int, count: int, *, subject: object) -> bytearray:
        nonlocal read
        read += count
        return genuine(descriptor, start, count, subject=subject)

    genuine = read_bytes
    monkeypatch.setattr(arrow_rows, "read_bytes", counted)
    amounts = {}
    for batches in (4, 64):
        folder = write_prepared_dataset(tmp_path / str(batches), make_sequences([400] * batches), rows_a_batch=1)
        read = 0
        assert rows_of(folder).row(1) is not None
        amounts[batches] = read
    # A header of some hundred bytes for each batch more, and none of their 6,400 bytes of numbers.
    assert (amounts[64] - amounts[4]) / 60 < 500


# Damage -------------------------------------------------------------------------------------------------------------


def one_file(folder: Path) -> Path:
    (path,) = folder.glob("*.arrow")
    return path


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_dataset_is_refused(tmp_path: Path, written: list[Written], compression: str) -> None:
    rows = rows_of(write_prepared_dataset(tmp_path, written, compression=compression))
    with pytest.raises(UnreadableFileError, match="a compressed Arrow batch"):
        rows.row(0)


def test_a_truncated_file(tmp_path: Path, written: list[Written]) -> None:
    path = one_file(write_prepared_dataset(tmp_path, written))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UnreadableFileError, match="truncated"):
        rows_of(tmp_path).row(0)


def test_a_missing_or_empty_file(tmp_path: Path, written: list[Written]) -> None:
    path = one_file(write_prepared_dataset(tmp_path, written))
    path.write_bytes(b"")
    with pytest.raises(UnreadableFileError, match="damaged Arrow file"):
        rows_of(tmp_path).row(0)
    path.unlink()
    with pytest.raises(UnreadableFileError, match="No such file"):
        rows_of(tmp_path).row(0)


def test_the_file_format_is_no_stream(tmp_path: Path, written: list[Written]) -> None:
    path = one_file(write_prepared_dataset(tmp_path, written))
    path.write_bytes(b"ARROW1\0\0" + path.read_bytes())
    with pytest.raises(UnreadableFileError, match="no stream of Arrow messages"):
        rows_of(tmp_path).row(0)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([[1.5], [2.5]]), "no column loss_mask of integer lists"),
        (pa.array([1, 2]), "no column loss_mask of integer lists"),
        (pa.array([[1], None]), "no value where loss_mask"),
        (pa.array([[1], [None]]), "no value where loss_mask"),
    ],
)
def test_columns_of_another_kind(tmp_path: Path, column: pa.Array, reason: str) -> None:
    write_prepared_dataset(tmp_path, make_sequences((1, 1)))
    batch = pa.RecordBatch.from_arrays([pa.array([[7], [8]]), column], names=list(COLUMNS))
    with pa.OSFile(str(one_file(tmp_path)), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    with pytest.raises(UnreadableFileError, match=reason):
        rows_of(tmp_path).row(1)


def test_a_mask_of_booleans_or_of_another_length(tmp_path: Path) -> None:
    write_prepared_dataset(tmp_path, make_sequences((1, 1)))
    masks = pa.array([[True, False], [False]], pa.large_list(pa.bool_()))
    batch = pa.RecordBatch.from_arrays([pa.array([[7, 9], [8, 8]], pa.list_(pa.int32())), masks], names=list(COLUMNS))
    with pa.OSFile(str(one_file(tmp_path)), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    row = rows_of(tmp_path).row(0)
    assert row is not None
    assert row["loss_mask"].tolist() == [1, 0]
    assert "2 token ids and a loss mask of 1" in no_mask(tmp_path, "hs_1.safetensors", torch.tensor([8, 8]))


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ([{"filename": "../data.arrow"}], "no name of a file"),
        ([{"filename": "/etc/passwd"}], "no name of a file"),
        ([{"filename": "a\\b"}], "no name of a file"),
        ([{"filename": ".."}], "no name of a file"),
        ([{"filename": 3}], "no name of a file"),
        (["data.arrow"], "no name of a file"),
        ([], "no state.json"),
        ({"filename": "x"}, "no state.json"),
        (None, "no state.json"),
    ],
)
def test_a_state_that_lists_no_files(tmp_path: Path, listed: object, reason: str) -> None:
    write_prepared_dataset(tmp_path, make_sequences((3,)))
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": listed}))
    found = find_prepared_dataset(tmp_path)
    assert isinstance(found, PreparedDataset)
    assert found.rows is None
    assert reason in found.problem
    assert reason in no_mask(tmp_path, "hs_0.safetensors", torch.zeros(3).long())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_never_gives_another_mask(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is written over a header: the mask of these token ids, or a reason. (A changed mask nobody can see.)"""
    sequences = make_sequences((5, 4))
    path = one_file(write_prepared_dataset(tmp_path, sequences))
    content = bytearray(path.read_bytes())
    batch = content.rfind(b"\xff\xff\xff\xff", 0, len(content) - 8)
    numbers = content.index(sequences[0].token_ids.numpy().tobytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, numbers - 1) | st.integers(batch, numbers - 1))
        size = data.draw(st.sampled_from([1, 4, 8]))
        new = data.draw(st.sampled_from([0, 1, 8, 255, 2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1]))
        content[at : at + size] = (new % 2 ** (8 * size)).to_bytes(size, "little")
    path.write_bytes(content)
    found = find_prepared_dataset(tmp_path)
    assert found is not None
    for i, sequence in enumerate(sequences):
        mask = found.mask_of(f"hs_{i}.safetensors", sequence.token_ids.numpy())
        assert isinstance(mask, NoMask) or len(mask) == len(sequence.token_ids)


def test_the_genuine_dataset(shared: Path) -> None:
    """speculators 0.9.0: ``prepare-data`` wrote the rows, a real server the states."""
    folder = shared / "samples" / "speculators" / "v0.9.0"
    with pa.memory_map(str(folder / "data-00000-of-00001.arrow")) as source:
        table = pa.ipc.open_stream(source).read_all()
    for i in range(3):
        sequence = opened(folder, f"hidden_states/hs_{i}.safetensors")
        assert sequence.loss_mask is not None
        assert sequence.loss_mask.tolist() == table["loss_mask"][i].as_py()
        with safe_open(folder / "hidden_states" / f"hs_{i}.safetensors", "pt") as file:
            assert file.get_tensor("token_ids").tolist() == table["input_ids"][i].as_py()
