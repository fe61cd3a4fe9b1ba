"""Damaged and hostile input: one line that says what is wrong, nothing executed, nothing large allocated."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
from builders import (
    Written,
    make_sequences,
    write_capture,
    write_specforge,
    write_speculators_list,
    write_stacked,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from eagle_parity.errors import InputError
from eagle_parity.hidden_states import StateSequence, Unreadable
from eagle_parity.readers import open_hidden_states
from eagle_parity.readers.containers import UnreadableFileError, read_table

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED_BYTES = 4 * 1024 * 1024
"""What reading the header of a file that claims terabytes may take."""


def safetensors_bytes(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: list[Any], offsets: list[Any], dtype: str = "BF16") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


TERABYTES = 10 * 2**40

BROKEN_SAFETENSORS = {
    "claims 10 TB of header": (safetensors_bytes({}, length=TERABYTES), "truncated"),
    "claims 10 TB of numbers": (
        safetensors_bytes({"hidden_states": entry([TERABYTES // 2, 1, 1], [0, TERABYTES])}),
        "truncated",
    ),
    "shape and offsets disagree": (safetensors_bytes({"a": entry([4, 4], [0, 4])}, b"0000"), "is 32 bytes"),
    "a shape beyond 64 bits": (safetensors_bytes({"a": entry([2**62] * 60, [0, 4])}, b"0000"), "bytes, at offsets"),
    "negative size": (safetensors_bytes({"a": entry([-1], [0, -2])}), "no list of sizes"),
    "float size": (safetensors_bytes({"a": entry([1.5], [0, 3])}), "no list of sizes"),
    "offsets backwards": (safetensors_bytes({"a": entry([0], [4, 0])}, b"0000"), "at offsets"),
    "huge rank": (safetensors_bytes({"a": entry([1] * 5000, [0, 2])}, b"00"), "5000 dimensions"),
    "unknown dtype": (safetensors_bytes({"a": entry([1], [0, 1], "Q4")}, b"0"), "unknown dtype Q4"),
    "no dict": (safetensors_bytes({"a": 3}), "no entry"),
    "no JSON": (safetensors_bytes(b"{nope}"), "no JSON"),
    "deep JSON": (safetensors_bytes(b'{"a":' + b"[" * 100_000), "no JSON"),
    "only a length": (struct.pack("<Q", 2), "neither"),
    "empty": (b"", "empty"),
    "text": (b"hello, I am no tensor", "neither"),
    "a JSON config": (b'{"architectures": ["LlamaForCausalLM"]}', "truncated|neither"),
}


@pytest.mark.parametrize("name", BROKEN_SAFETENSORS)
def test_broken_safetensors(tmp_path: Path, name: str) -> None:
    data, reason = BROKEN_SAFETENSORS[name]
    path = tmp_path / "hs_0.safetensors"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(UnreadableFileError, match=reason) as caught:
        read_table(path)
    assert tracemalloc.get_traced_memory()[1] < ALLOWED_BYTES
    tracemalloc.stop()
    assert len(str(caught.value)) < 2000
    with pytest.raises(InputError, match=reason):
        open_hidden_states(path, role="trained")


class Attack:
    """What a hostile shard holds instead of a tensor."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._reduce = (function, arguments)

    def __reduce__(self) -> Any:
        return self._reduce


def hostile_zip(path: Path, pickled: bytes, *, members: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data_0/data.pkl", pickled)
        for name, data in (members or {}).items():
            archive.writestr(f"data_0/{name}", data)
    return path


@pytest.mark.parametrize(
    ("attack", "named"),
    [
        (Attack(os.system, "touch attacked"), "system"),
        (Attack(eval, "open('attacked', 'w')"), "eval"),
        (Attack(bytearray, TERABYTES), "bytearray"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickle_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Attack, named: str, zipped: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"input_ids": attack, "hidden_states": [attack]}, protocol=2)
    path = tmp_path / "data_0.pt"
    if zipped:
        hostile_zip(path, data)
    else:
        path.write_bytes(data)
    with pytest.raises(InputError, match=f"{named}, which is refused; re-save it as safetensors"):
        open_hidden_states(path, role="trained")
    assert not (tmp_path / "attacked").exists()


def tensor_pickle(numbers: int, shape: str, stride: str, *, offset: int = 0) -> bytes:
    """A dict of one tensor, as text opcodes: what a hostile writer can claim about a storage."""
    storage = f"(Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI{numbers}\ntQ"
    call = f"ctorch._utils\n_rebuild_tensor_v2\n({storage}I{offset}\n{shape}{stride}I00\nNtR"
    return f"\x80\x02}}(Vinput_ids\n{call}u.".encode("latin-1")


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (tensor_pickle(2**43, "(I8796093022208\nt", "(I1\nt"), "claims .* bytes, the zip has 16"),
        (tensor_pickle(4, "(I8796093022208\nt", "(I1\nt"), "needs 8,796,093,022,208 numbers"),
        (tensor_pickle(4, "(I8796093022208\nt", "(I0\nt"), "needs 8,796,093,022,208 numbers"),
        (tensor_pickle(4, "(I2\nt", "(I2\nt", offset=2), "needs 5 numbers"),
        (tensor_pickle(4, "(I-2\nt", "(I1\nt"), "no sizes"),
        (tensor_pickle(4, "(I2\nI2\nt", "(I1\nt"), "damaged"),
        (tensor_pickle(-4, "(I2\nt", "(I1\nt"), "no storage reference"),
        (tensor_pickle(4, "(" + "I1\n" * 100 + "t", "(" + "I1\n" * 100 + "t"), "no sizes"),
    ],
)
def test_claims_of_a_pickle(tmp_path: Path, pickled: bytes, reason: str) -> None:
    path = hostile_zip(tmp_path / "data_0.pt", pickled, members={"data/0": bytes(16)})
    tracemalloc.start()
    with pytest.raises(UnreadableFileError, match=reason):
        read_table(path)
    assert tracemalloc.get_traced_memory()[1] < ALLOWED_BYTES
    tracemalloc.stop()


def test_the_pickle_of_these_tests_is_right(tmp_path: Path) -> None:
    pickled = tensor_pickle(4, "(I2\nt", "(I2\nt", offset=1)
    table = read_table(hostile_zip(tmp_path / "data_0.pt", pickled, members={"data/0": bytes(16)}))
    assert str(table) == "input_ids [2] float32"


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02" + b"(" * 1000 + b"t" * 1000 + b".",
        b"\x80\x02" + b")" + b"\x85" * 200_000 + b"h\x00.",  # a tuple nested 200,000 deep
        b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"Ns.",  # the same as a key, whose hash would overflow the stack
        b"\x80\x02" + b"\x8d" + b"\xff" * 8 + b"x.",  # a string of 2**64 bytes
        b"\x80\x02t.",
        b"\x80\x02h\x05.",
        b"\x80\x02}",
        b"\x80\x02\x93.",
        b"\x80\x02}(Va\nu.",
        b"\x80\x02Q.",
        b"\x80",
        b"\xff\xff",
        b"",
    ],
)
def test_nonsense_pickles(tmp_path: Path, pickled: bytes) -> None:
    with pytest.raises(UnreadableFileError):
        read_table(hostile_zip(tmp_path / "data_0.pt", pickled))
    path = tmp_path / "data_1.pt"
    path.write_bytes(pickled)
    with pytest.raises(UnreadableFileError):
        read_table(path)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200), cut=st.integers(0, 400), place=st.integers(0, 400))
def test_any_damage_gives_one_reason(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int, place: int
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    (written,) = make_sequences((3,), slots=2, hidden=4)
    write_stacked(folder, [written])
    write_speculators_list(folder, [written], layer_ids=None)
    for path in [*folder.glob("*.safetensors"), *folder.glob("*.pt")]:
        whole = path.read_bytes()
        for broken in (whole[:cut], whole[: -cut or None], whole[:place] + data + whole[place + len(data) :], data):
            path.write_bytes(broken)
            try:
                states = open_hidden_states(path, role="trained")
            except InputError:
                continue
            sequence = states.open(states.names[0])
            if isinstance(sequence, StateSequence):
                for rows in sequence.slots:
                    rows.read(0, rows.tokens)


def truncate(path: Path, share: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_truncated_files_are_values_and_the_others_are_read(tmp_path: Path, share: float) -> None:
    written = make_sequences([4] * 12)
    for kind, folder in ((write_stacked, "a"), (write_speculators_list, "b"), (write_specforge, "c")):
        root = kind(tmp_path / folder, written)
        files = sorted((p for p in root.rglob("*") if p.suffix in {".safetensors", ".pt", ".ckpt"}), key=str)
        truncate(files[1], share)
        truncate(files[-1], share)
        states = open_hidden_states(root, role="trained")
        outcomes = [*states.unreadable, *states]
        bad = [outcome for outcome in outcomes if isinstance(outcome, Unreadable)]
        assert len(bad) == 2
        assert len(outcomes) == 12
        assert all("truncated" in b.reason or "empty" in b.reason or "neither" in b.reason for b in bad)


def test_truncated_gzip_and_a_gzip_bomb(tmp_path: Path) -> None:
    root = write_specforge(tmp_path, make_sequences((4, 5)), compress=True)
    truncate(next(root.rglob("data_0.ckpt.gz")))
    states = open_hidden_states(root, role="trained")
    assert "gzip" in states.unreadable[0].reason
    bomb = tmp_path / "bomb.ckpt.gz"
    bomb.write_bytes(gzip.compress(bytes(64 * 1024 * 1024)))
    with pytest.raises(UnreadableFileError, match="inflates to more than"):
        read_table(bomb)


def test_a_file_cut_after_it_was_opened(tmp_path: Path) -> None:
    root = write_stacked(tmp_path, make_sequences((50,)))
    states = open_hidden_states(root, role="live")
    sequence = states.open(states.names[0])
    assert isinstance(sequence, StateSequence)
    truncate(root / states.names[0])
    with pytest.raises(InputError, match="shorter"):
        sequence.slots[0].read(0, 50)
    assert isinstance(states.open(states.names[0]), Unreadable)
    (root / states.names[0]).unlink()
    with pytest.raises(InputError, match="can't be read any more"):
        sequence.slots[0].read(0, 50)
    assert isinstance(states.count_tokens(states.names[0]), Unreadable)


def test_files_of_another_layout_are_told(tmp_path: Path) -> None:
    write_stacked(tmp_path, make_sequences([4] * 12))
    (other,) = make_sequences((4,), slots=5)
    stack = {"token_ids": other.token_ids, "hidden_states": torch.stack(list(other.slots), dim=1)}
    save_file(stack, tmp_path / "aaa.safetensors")
    save_file(stack, tmp_path / "zzz.safetensors")
    states = open_hidden_states(tmp_path, role="trained")
    assert states.layout.slots == 4
    assert [bad.name for bad in states.unreadable] == ["aaa.safetensors"]
    last = states.open("zzz.safetensors")
    assert isinstance(last, Unreadable)
    assert "it has slots 5, the other files have 4" in last.reason


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"token_ids": torch.arange(3), "hidden_states": torch.zeros(())}, "no layout"),
        ({"token_ids": torch.arange(3), "hidden_states": torch.zeros(3, 4)}, "no layout"),
        ({"token_ids": torch.arange(3), "hidden_states": torch.zeros(3, 4, 8, 1)}, "no layout"),
        ({"token_ids": torch.arange(3), "hidden_states": torch.zeros(3, 0, 8)}, "0 states"),
        ({"token_ids": torch.arange(3), "hidden_states": torch.zeros(3, 4, 0)}, "expected half or full"),
        ({"token_ids": torch.arange(3), "hidden_states": torch.zeros(3, 4, 8).long()}, "expected half or full"),
        ({"token_ids": torch.arange(3), "hidden_states": torch.zeros(3, 4, 8).to(torch.float8_e4m3fn)}, "float8"),
        ({"token_ids": torch.zeros(()), "hidden_states": torch.zeros(3, 4, 8)}, "token_ids is"),
        ({"token_ids": torch.zeros(3), "hidden_states": torch.zeros(3, 4, 8)}, "token_ids is"),
        ({"token_ids": torch.arange(3), "slot.0": torch.zeros(3, 8), "slot.1": torch.zeros(3, 9)}, "one width"),
        ({"token_ids": torch.arange(3), "slot.0": torch.zeros(())}, "its states are"),
        ({"fc.weight": torch.zeros(8, 24)}, "no layout"),
    ],
)
def test_wrong_ranks_and_dtypes(tmp_path: Path, tensors: dict[str, torch.Tensor], reason: str) -> None:
    save_file(tensors, tmp_path / "hs_0.safetensors")
    with pytest.raises(InputError, match=reason):
        open_hidden_states(tmp_path, role="trained")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_state": torch.zeros(3, 8)}, "expected floats"),
        ({"hidden_state": torch.zeros(2, 3, 8)}, "expected floats"),
        ({"hidden_state": torch.zeros(1, 3, 7)}, "no multiple"),
        ({"aux_hidden_state": torch.zeros(1, 3, 0)}, "expected floats"),
        ({"aux_hidden_state": torch.zeros(1, 3, 25)}, "no multiple"),
        ({"input_ids": torch.zeros(2, 3).long()}, "input_ids is"),
        ({"loss_mask": torch.zeros(3)}, "loss_mask is"),
        ({"hidden_state": "text"}, "no layout"),
    ],
)
def test_wrong_specforge_files(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    content = {
        "input_ids": torch.arange(3),
        "loss_mask": torch.ones(3).long(),
        "hidden_state": torch.zeros(1, 3, 8),
        "aux_hidden_state": torch.zeros(1, 3, 24),
    }
    torch.save(content | changes, tmp_path / "data_0.ckpt")
    with pytest.raises(InputError, match=reason):
        open_hidden_states(tmp_path, role="trained")


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ([torch.zeros(3, 8)], "list of one"),
        ([torch.zeros(3, 8), torch.zeros(3, 7)], "one width"),
        ([torch.zeros(3, 8), torch.zeros(3)], "one width"),
        ([], "no layout"),
    ],
)
def test_wrong_speculators_lists(tmp_path: Path, states: list[torch.Tensor], reason: str) -> None:
    torch.save({"input_ids": torch.arange(3), "hidden_states": states}, tmp_path / "data_0.pt")
    with pytest.raises(InputError, match=reason):
        open_hidden_states(tmp_path, role="trained")


def test_other_zips(tmp_path: Path) -> None:
    path = tmp_path / "data_0.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(UnreadableFileError, match=r"no data\.pkl"):
        read_table(path)
    with zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data_0/data.pkl", bytes(64 * 1024 * 1024))
    with pytest.raises(UnreadableFileError, match="compressed"):
        read_table(path)
    hostile_zip(path, pickle.dumps([1, 2], protocol=2))
    with pytest.raises(UnreadableFileError, match="expected a dict"):
        read_table(path)
    hostile_zip(path, pickle.dumps({}, protocol=2), members={"byteorder": b"big"})
    with pytest.raises(UnreadableFileError, match="big-endian"):
        read_table(path)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("data_0/data.pkl", b"")
    # A directory of 4 GB, says its end.
    raw = bytearray(data.getvalue())
    raw[-10:-6] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(raw)
    with pytest.raises(UnreadableFileError, match="zip directory of 4,294,967,294 bytes"):
        read_table(path)


def test_manifest_that_points_outside(tmp_path: Path) -> None:
    write_capture(tmp_path / "c", make_sequences((3,)), slots=(3, 6, 8))
    manifest = tmp_path / "c" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("sequence_000000.safetensors", "../../etc/passwd"))
    with pytest.raises(InputError, match="passwd"):
        open_hidden_states(tmp_path / "c", role="live")


def test_capture_with_a_missing_file(tmp_path: Path) -> None:
    write_capture(tmp_path, make_sequences((3, 4)), slots=(3, 6, 8))
    (tmp_path / "sequence_000001.safetensors").unlink()
    states = open_hidden_states(tmp_path, role="live")
    assert list(states.names) == ["data_0"]
    assert states.unreadable == (Unreadable("data_1", "no such file"),)


def test_zero_tokens_in_a_capture_file(tmp_path: Path) -> None:
    empty = Written(torch.arange(0), [torch.zeros(0, 8)])
    tensors = {"token_ids": empty.token_ids, "slot.0": empty.slots[0]}
    save_file(tensors, tmp_path / "sequence_000000.safetensors")
    states = open_hidden_states(tmp_path, role="live")
    sequence = states.open(states.names[0])
    assert isinstance(sequence, StateSequence)
    assert sequence.slots[0].read(0, 0).shape == (0, 8)
