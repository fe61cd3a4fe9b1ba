"""The layouts of the trainers: what was written is what is read, what they can't say is told, damage is one line."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import builders
import pytest
import torch
from builders import Written, make_sequences
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from eagle_parity import readers
from eagle_parity.errors import InputError
from eagle_parity.hidden_states import LastStateRule, StateSequence, Unreadable
from eagle_parity.readers import READERS, describe_shards, open_hidden_states
from eagle_parity.readers.companions import find_companions
from eagle_parity.readers.containers import TensorTable, UnreadableFileError, read_table
from eagle_parity.wiring import POST_NORM, Wiring

if TYPE_CHECKING:
    from collections.abc import Callable

    from eagle_parity.hidden_states import HiddenStates, Rows

LENGTHS = (5, 0, 1, 17, 3, 2, 4, 6, 9, 8, 7, 11)

BOUNDARY_UNKNOWN = None

WRITERS: dict[str, tuple[Callable[..., Any], Any]] = {
    "specforge-aux-only": (builders.write_specforge_aux_only, "none"),
    "speculators-research": (builders.write_speculators_research, POST_NORM),
    "eagle-list": (builders.write_eagle_list, "none"),
    "eagle-last-state": (builders.write_eagle_last_state, POST_NORM),
    "modelopt": (builders.write_modelopt, BOUNDARY_UNKNOWN),
    "tensorrt-llm": (builders.write_tensorrt_llm, POST_NORM),
    "angelslim": (builders.write_angelslim, POST_NORM),
    "baldeagle": (builders.write_baldeagle, POST_NORM),
    "torchspec": (builders.write_torchspec, BOUNDARY_UNKNOWN),
}
"""Layouts that store sequences as they are, and which boundary they say their last state is, if they have one."""

GZIPPED = [name for name in WRITERS if name != "torchspec"]
WITHOUT_MASK = {"tensorrt-llm", "torchspec"}


def opened(states: HiddenStates, name: str) -> StateSequence:
    sequence = states.open(name)
    assert isinstance(sequence, StateSequence), sequence
    return sequence


def check_rows(rows: Rows | None, expected: torch.Tensor, *, dtype: str | None = None) -> None:
    assert rows is not None
    assert (rows.tokens, rows.hidden_size) == tuple(expected.shape)
    assert rows.dtype == dtype or rows.dtype == str(expected.dtype).removeprefix("torch.")
    block = rows.read(0, rows.tokens)
    assert block.dtype == expected.dtype
    assert torch.equal(block, expected)


def check_all(
    states: HiddenStates, written: list[Written], *, last: bool, mask: bool, dtype: str | None = None
) -> None:
    assert len(states.names) == len(set(states.names)) == len(written)
    assert not states.unreadable
    for name, expected in zip(states.names, written, strict=True):
        sequence = opened(states, name)
        assert sequence.token_ids is not None
        assert sequence.token_ids.dtype == torch.int64
        assert torch.equal(sequence.token_ids, expected.token_ids)
        assert states.count_tokens(name) == len(expected.token_ids) == sequence.rows
        assert len(sequence.slots) == len(expected.slots) == states.layout.slots
        for rows, slot in zip(sequence.slots, expected.slots, strict=True):
            check_rows(rows, slot, dtype=dtype)
        if last:
            check_rows(sequence.last_state, expected.last, dtype=dtype)
        else:
            assert sequence.last_state is None
        if mask:
            assert sequence.loss_mask is not None
            assert torch.equal(sequence.loss_mask, expected.mask)
        else:
            assert sequence.loss_mask is None


def as_stored(kind: str, written: list[Written]) -> list[Written]:
    return [replace(sequence, slots=()) for sequence in written] if kind == "eagle-last-state" else written


# Round trips --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("kind", WRITERS)
def test_what_was_written_is_what_is_read(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    write, boundary = WRITERS[kind]
    written = make_sequences(LENGTHS, dtype=dtype)
    states = open_hidden_states(write(tmp_path, written), role="trained")
    layout = states.layout
    assert (layout.format, layout.hidden_size) == (kind, 8)
    assert layout.dtype == str(dtype).removeprefix("torch.")
    assert layout.declared is None
    assert layout.last_state is (LastStateRule.ABSENT if boundary == "none" else LastStateRule.STORED)
    assert layout.last_state_boundary == (None if boundary == "none" else boundary)
    assert all("`" in text for text in layout.unknown), "each with the command that finds it out"
    check_all(states, as_stored(kind, written), last=boundary != "none", mask=kind not in WITHOUT_MASK)


@pytest.mark.parametrize("kind", GZIPPED)
def test_gzip_around_every_torch_file(tmp_path: Path, kind: str) -> None:
    write, boundary = WRITERS[kind]
    written = make_sequences((5, 3, 4, 2, 6))
    states = open_hidden_states(write(tmp_path, written, compress=True), role="trained")
    assert states.names[0].partition("#")[0].endswith(".gz")
    check_all(states, as_stored(kind, written), last=boundary != "none", mask=kind not in WITHOUT_MASK)


def test_mooncake_objects(tmp_path: Path) -> None:
    written = make_sequences(LENGTHS)
    states = open_hidden_states(builders.write_mooncake(tmp_path, written), role="trained")
    assert (states.layout.format, states.layout.last_state) == ("mooncake", LastStateRule.UNDECIDED)
    assert states.names[2] == "kcmpl-2.bin"
    check_all(states.decide_last_state(stored=True), written, last=True, mask=False)


def test_fp8_is_dequantised_row_by_row(tmp_path: Path) -> None:
    kept = builders.write_stacked_fp8(tmp_path, make_sequences(LENGTHS))
    states = open_hidden_states(tmp_path, role="live")
    assert (states.layout.format, states.layout.dtype) == ("stacked-fp8", "float8_e4m3fn")
    assert states.layout.last_state is LastStateRule.UNDECIDED
    split = states.decide_last_state(stored=True)
    check_all(split, kept, last=True, mask=False, dtype="float8_e4m3fn")
    rows = opened(split, split.names[3]).slots[1]
    assert torch.equal(rows.read(4, 9), kept[3].slots[1][4:9])
    with pytest.raises(IndexError, match="of 17"):
        rows.read(3, 18)


def test_fp8_beside_an_arrow_dataset_has_its_last_state(tmp_path: Path) -> None:
    builders.write_stacked_fp8(tmp_path / "hidden_states", make_sequences((3,)))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": {"input_ids": {}, "loss_mask": {}}}))
    layout = describe_shards(tmp_path)
    assert (layout.slots, layout.last_state) == (3, LastStateRule.STORED)
    assert "0 of 1" in layout.facts["loss_mask"]
    assert any("no state.json" in text for text in layout.unknown)


# NeMo: several sequences a file, padding, a left shift --------------------------------------------------------------


def test_nemo_with_its_first_tokens(tmp_path: Path) -> None:
    written = make_sequences((5, 1, 9, 12, 2))
    for sequence in written:
        sequence.token_ids[0] = 42
        sequence.mask[0] = 0
    root = builders.write_nemo(tmp_path, written, padded_to=16)
    states = open_hidden_states(root, role="trained", first_token=42)
    assert list(states.names) == [
        *("shard-000000.safetensors#0", "shard-000000.safetensors#1"),
        *("shard-000001.safetensors#0", "shard-000001.safetensors#1"),
        "shard-000002.safetensors#0",
    ]
    assert states.layout.first_token
    assert states.layout.facts["first_token"].startswith("42")
    check_all(states, written, last=False, mask=True)


def test_nemo_without_them_leaves_the_first_rows_out(tmp_path: Path) -> None:
    written = make_sequences((5, 0, 1, 9, 12))
    states = open_hidden_states(builders.write_nemo(tmp_path, written), role="trained")
    layout = states.layout
    assert (layout.format, layout.first_token, layout.last_state) == ("nemo", False, LastStateRule.ABSENT)
    assert layout.declared == Wiring((2, 5, 7))
    assert layout.declared_by is not None
    assert "[1, 4, 6]" in layout.declared_by
    assert "(2, 5, 7)" in layout.declared_by
    assert any("--first-token" in text for text in layout.unknown)
    behind = [Written(s.token_ids[1:], [slot[1:] for slot in s.slots], loss_mask=s.mask[1:]) for s in written]
    check_all(states, behind, last=False, mask=True)


def test_one_nemo_file(tmp_path: Path) -> None:
    written = make_sequences((5, 7, 4))
    builders.write_nemo(tmp_path, written)
    states = open_hidden_states(tmp_path / "shard-000001.safetensors", role="trained", first_token=0)
    assert list(states.names) == ["shard-000001.safetensors#0"]
    assert opened(states, states.names[0]).rows == 4


@pytest.mark.parametrize(
    ("layer_ids", "declared"),
    [((-1, 4, 6), Wiring((0, 5, 7))), ((4, 1, 6), None), ((1, 1, 6), None)],
)
def test_nemo_ids(tmp_path: Path, layer_ids: tuple[int, ...], declared: Wiring | None) -> None:
    layout = describe_shards(builders.write_nemo(tmp_path, make_sequences((4,)), layer_ids=layer_ids))
    assert layout.declared == declared
    assert any("order depends on the backend" in text for text in layout.unknown) is (declared is None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"aux_layer_ids": [1] * 5}, "states 24 for 5 layers"),
        ({"aux_layer_ids": [1, 4, "x"]}, "no aux_layer_ids"),
        ({"aux_layer_ids": []}, "no aux_layer_ids"),
        ({"aux_layer_ids": [-2, 1, 4]}, "no aux_layer_ids"),
        ({"aux_layer_ids": [0] * 5000}, "5,000 states"),
        ({"aux_hidden_dim": 12}, "states 12"),
        ({"aux_hidden_dim": None}, "states null|states None"),
    ],
)
def test_nemo_manifest_that_does_not_fit(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    builders.write_nemo(tmp_path, make_sequences((4,), hidden=8))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(InputError, match=reason):
        describe_shards(tmp_path)


def test_nemo_without_a_manifest_says_what_it_needs(tmp_path: Path) -> None:
    builders.write_nemo(tmp_path, make_sequences((4,)), layer_ids=None)
    with pytest.raises(InputError, match=r"only manifest\.json says.*put it there"):
        describe_shards(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"attention_mask": torch.ones(2, 3).long()}, r"attention_mask is \[2, 3\] int64; expected integers \[2, 4\]"),
        ({"loss_mask": torch.ones(2, 4)}, "loss_mask is"),
        ({"input_ids": torch.ones(8).long()}, "input_ids is"),
        ({"aux_hidden_states": torch.zeros(0, 4, 24)}, r"expected floats \[n, S, width\]"),
        ({"aux_hidden_states": torch.zeros(70_000, 1, 3)}, r"expected floats \[n, S, width\]"),
        ({"aux_hidden_states": torch.zeros(2**30, 0, 24)}, r"expected floats \[n, S, width\]"),
        ({"aux_hidden_states": torch.zeros(2, 4, 24).long()}, r"expected floats \[n, S, width\]"),
    ],
)
def test_damaged_nemo_files(tmp_path: Path, tensors: dict[str, torch.Tensor], reason: str) -> None:
    builders.write_nemo(tmp_path, make_sequences((4, 4)))
    whole = {
        "input_ids": torch.ones(2, 4).long(),
        "attention_mask": torch.ones(2, 4).long(),
        "loss_mask": torch.ones(2, 4).long(),
        "aux_hidden_states": torch.zeros(2, 4, 24),
    }
    save_file(whole | tensors, tmp_path / "shard-000000.safetensors")
    with pytest.raises(InputError, match=reason):
        describe_shards(tmp_path / "shard-000000.safetensors")


def test_left_padding_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    builders.write_nemo(tmp_path, make_sequences((4, 4)))
    tensors = {
        "input_ids": torch.ones(2, 4).long(),
        "attention_mask": torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]]),
        "aux_hidden_states": torch.zeros(2, 4, 24),
    }
    save_file(tensors, tmp_path / "shard-000000.safetensors")
    states = open_hidden_states(tmp_path, role="trained")
    left, right = states.names
    for outcome in (states.open(left), states.count_tokens(left)):
        assert isinstance(outcome, Unreadable)
        assert "ones before zeros" in outcome.reason
    assert opened(states, right).rows == states.count_tokens(right) == 2


def test_a_broken_file_of_several_is_one_value(tmp_path: Path) -> None:
    builders.write_nemo(tmp_path, make_sequences([4] * 24))
    for i in (1, 11):
        path = tmp_path / f"shard-{i:06d}.safetensors"
        path.write_bytes(path.read_bytes()[:-8])
    states = open_hidden_states(tmp_path, role="trained")
    assert [bad.name for bad in states.unreadable] == ["shard-000001.safetensors", "shard-000011.safetensors"]
    assert len(states.names) == 20


def test_a_file_that_was_rewritten_with_fewer(tmp_path: Path) -> None:
    builders.write_nemo(tmp_path, make_sequences((4, 5)))
    states = open_hidden_states(tmp_path, role="trained")
    builders.write_nemo(tmp_path, make_sequences((4,)))
    outcome = states.open(states.names[1])
    assert isinstance(outcome, Unreadable)
    assert "rewritten" in outcome.reason


def test_of_many_files_with_several_a_sample_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builders.write_nemo(tmp_path, make_sequences([3] * 80))
    read: list[Path] = []

    def counting(path: Path) -> TensorTable:
        read.append(path)
        return read_table(path)

    monkeypatch.setattr(readers, "read_table", counting)
    states = open_hidden_states(tmp_path, role="trained", max_files=10)
    assert (len(states.names), states.files_left_out) == (20, 30)
    assert len(read) == 10 + readers.SNIFFED
    assert len(open_hidden_states(tmp_path, role="trained").names) == 80


# What can't be told apart, and what is ambiguous --------------------------------------------------------------------


def test_modelopts_dumps_are_one_layout(tmp_path: Path) -> None:
    (told,) = [
        text
        for text in describe_shards(builders.write_modelopt(tmp_path, make_sequences((3,)))).unknown
        if "ModelOpt" in text
    ]
    assert "can't be told apart" in told
    assert "diff-captures --reference" in told


@pytest.mark.parametrize(("flag", "boundary", "stage"), [(True, None, "pre_norm"), (False, POST_NORM, None)])
def test_modelopts_flag_settles_the_last_state(tmp_path: Path, flag: bool, boundary: Any, stage: str | None) -> None:
    root = builders.write_modelopt(tmp_path, make_sequences((3,)), hidden_states_prenorm=flag)
    layout = describe_shards(root)
    assert layout.last_state_boundary == boundary
    assert layout.facts.get("last_state_stage") == stage


def test_modelopt_without_aux_layers(tmp_path: Path) -> None:
    (written,) = make_sequences((5,))
    states = open_hidden_states(builders.write_modelopt(tmp_path, [replace(written, slots=())]), role="trained")
    assert (states.layout.slots, states.layout.hidden_size) == (0, 8)
    check_all(states, [replace(written, slots=())], last=True, mask=True)


def test_the_older_name_of_tensorrt_llm(tmp_path: Path) -> None:
    written = make_sequences((5, 3, 4))
    root = builders.write_tensorrt_llm(tmp_path, written, key="hidden_state_features", per_file=3)
    states = open_hidden_states(root, role="trained")
    assert list(states.names) == [f"states_0.pt#{i}" for i in range(3)]
    check_all(states, written, last=True, mask=False)


def test_ids_may_go_on_behind_the_rows(tmp_path: Path) -> None:
    (written,) = make_sequences((6,))
    longer = replace(written, token_ids=torch.arange(9), loss_mask=torch.ones(9).long())
    for kind, write in (
        ("baldeagle", builders.write_baldeagle),
        ("specforge-aux-only", builders.write_specforge_aux_only),
    ):
        states = open_hidden_states(write(tmp_path / kind, [longer]), role="trained")
        sequence = opened(states, states.names[0])
        assert sequence.token_ids is not None
        assert (len(sequence.token_ids), sequence.rows) == (9, 6)


def test_a_width_that_is_no_three_slots_is_ambiguous(tmp_path: Path) -> None:
    content = {"input_ids": torch.arange(3), "loss_mask": torch.ones(3).long(), "hidden_state": torch.zeros(1, 3, 64)}
    torch.save(content, tmp_path / "data_0.ckpt")
    with pytest.raises(InputError, match="ambiguous"):
        describe_shards(tmp_path)


def test_two_layouts_in_one_file_are_ambiguous(tmp_path: Path) -> None:
    content = {
        "input_ids": torch.arange(3),
        "hidden_state": torch.zeros(1, 3, 24),
        "aux_hidden_state": torch.zeros(1, 3, 24),
        "target_hidden_states": torch.zeros(1, 3, 8),
    }
    torch.save(content, tmp_path / "data_0.ckpt")
    with pytest.raises(
        InputError, match=r"ambiguous: its tensors are those of specforge .* or baldeagle .*nothing is guessed"
    ):
        describe_shards(tmp_path)


ALL_WRITERS: dict[str, Callable[[Path, list[Written]], Any]] = {
    **{name: write for name, (write, _) in WRITERS.items()},
    "stacked": builders.write_stacked,
    "stacked-fp8": builders.write_stacked_fp8,
    "mooncake": builders.write_mooncake,
    "speculators-list": builders.write_speculators_list,
    "specforge": builders.write_specforge,
    "nemo": builders.write_nemo,
    "capture": lambda folder, written: builders.write_capture(folder, written, slots=(3, 6, 8)),
    "sglang-dumper": lambda folder, written: builders.write_sglang_dump(folder, written[0].slots[0]),
}


def test_every_reader_has_a_writer_here() -> None:
    assert {reader.name for reader in READERS} == ALL_WRITERS.keys()


def test_every_reader_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    assert [reader.name for reader in READERS if f"| `{reader.name}` |" not in page] == []


@pytest.mark.parametrize("kind", ALL_WRITERS)
def test_no_other_reader_wants_the_file(tmp_path: Path, kind: str) -> None:
    ALL_WRITERS[kind](tmp_path, make_sequences((5, 4)))
    companions = find_companions(tmp_path)
    wanted = {".safetensors", ".pt", ".ckpt", ".bin"}
    paths = [p for p in tmp_path.rglob("*") if p.suffix in wanted or p.name.endswith("_hs")]
    paths = [p for p in paths if p.name != "target_embeddings.safetensors"]
    assert paths
    for path in paths:
        table = read_table(path)
        claimed = []
        for reader in READERS:
            try:
                if reader.recognise(table, companions) is not None:
                    claimed.append(reader.name)
            except UnreadableFileError:
                claimed.append(reader.name)
        assert claimed == [kind]


def test_one_file_of_sglangs_dumper_is_known_and_refused(tmp_path: Path) -> None:
    (path,) = builders.write_sglang_dump(tmp_path, torch.zeros(12, 8)).iterdir()
    with pytest.raises(InputError, match=r"SGLang's dumper \(\[12, 8\] float32\).*no known tokens"):
        describe_shards(path)


# Damage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("speculators-research", {"target": torch.zeros(3, 7)}, "no multiple"),
        ("speculators-research", {"target": torch.zeros(1, 3, 8)}, "target is"),
        ("speculators-research", {"hidden_state": torch.zeros(3, 0)}, "expected floats"),
        ("modelopt", {"aux_hidden_states": torch.zeros(3, 23)}, "no multiple"),
        ("modelopt", {"aux_hidden_states": torch.zeros(1)}, "aux_hidden_states is"),
        ("modelopt", {"hidden_states": torch.zeros(3, 8).long()}, "hidden_states is"),
        ("angelslim", {"hidden_states": torch.zeros(2, 3, 24)}, "hidden_states is"),
        ("angelslim", {"input_ids": torch.zeros(2, 3).long()}, "input_ids is"),
        ("baldeagle", {"target_hidden_states": torch.zeros(1, 3, 9)}, "no multiple"),
        ("eagle-list", {"hs": [torch.zeros(3, 8), torch.zeros(3, 9)]}, "one width"),
        ("eagle-list", {"hs": [torch.zeros(3, 8)] * 5000}, "5,000 states"),
        ("eagle-last-state", {"input_ids": torch.zeros(3)}, "input_ids is"),
        ("eagle-last-state", {"loss_mask": torch.zeros(3)}, "loss_mask is"),
        ("specforge-aux-only", {"hidden_state": torch.zeros(2, 3, 24)}, "hidden_state is"),
    ],
)
def test_wrong_shapes(tmp_path: Path, kind: str, changes: dict[str, Any], reason: str) -> None:
    WRITERS[kind][0](tmp_path, make_sequences((3,), dtype=torch.float32))
    (path,) = [p for p in tmp_path.rglob("*") if p.is_file()]
    torch.save(torch.load(path, weights_only=True) | changes, path)
    with pytest.raises(InputError, match=reason):
        describe_shards(tmp_path)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([{"input_ids": torch.arange(3)}], "no layout"),
        ([{"input_ids": torch.arange(3), "hidden_state": torch.zeros(3, 8)}], "a request with 0 of"),
        ([{}], "no layout"),
        ([{}] * 10_000, "a list of 10,000 dicts"),
        (
            [
                {"input_ids": ids, "hidden_state": torch.zeros(3, 8), "aux_hidden_states": torch.zeros(3, 24)}
                for ids in (torch.arange(3), torch.zeros(3))
            ],
            "input_ids is",
        ),
        (
            [
                {
                    "input_ids": torch.arange(3),
                    "hidden_state": torch.zeros(3, h),
                    "aux_hidden_states": torch.zeros(3, 3 * h),
                }
                for h in (8, 9)
            ],
            "differ in slots",
        ),
    ],
)
def test_wrong_requests(tmp_path: Path, records: list[Any], reason: str) -> None:
    torch.save(records, tmp_path / "states_0.pt")
    with pytest.raises(InputError, match=reason):
        describe_shards(tmp_path)


def test_one_request_with_a_broken_mask_is_one_value(tmp_path: Path) -> None:
    request = {"input_ids": torch.arange(3), "hidden_state": torch.zeros(3, 8), "aux_hidden_states": torch.zeros(3, 24)}
    torch.save([request, request | {"loss_mask": torch.zeros(3)}], tmp_path / "states_0.pt")
    states = open_hidden_states(tmp_path, role="trained")
    good, bad = (states.open(name) for name in states.names)
    assert isinstance(good, StateSequence)
    assert isinstance(bad, Unreadable)
    assert "loss_mask is" in bad.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "of version 2"),
        ({"tensors": {}}, "no tensors"),
        ({"tensors": {"hidden_states": 3}}, "no object"),
        ({"tensors": {"a": {"shape": [2], "dtype": "torch.int64", "nbytes": 16, "offset": 2**40}}}, "truncated"),
        ({"tensors": {"a": {"shape": [2**40], "dtype": "torch.int64", "nbytes": 2**43, "offset": 0}}}, "truncated"),
        ({"tensors": {"a": {"shape": [2], "dtype": "torch.int64", "nbytes": 8, "offset": 0}}}, "isn't 8 bytes"),
        ({"tensors": {"a": {"shape": [-2], "dtype": "torch.int64", "nbytes": 8, "offset": 0}}}, "no size"),
        ({"tensors": {"a": {"shape": [2], "dtype": "torch.int64", "nbytes": 16, "offset": -1}}}, "no size"),
        ({"tensors": {"a": {"shape": [1] * 100, "dtype": "torch.int64", "nbytes": 8, "offset": 0}}}, "no shape"),
        ({"tensors": {"a": {"shape": [2], "dtype": "os.system", "nbytes": 8, "offset": 0}}}, "unknown dtype"),
    ],
)
def test_mooncake_manifests_that_do_not_fit(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    builders.write_mooncake(tmp_path, make_sequences((3,)))
    path = tmp_path / "kcmpl-0.kv_transfer_params.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=reason):
        describe_shards(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", "{nope", "[" * 100_000])
def test_manifests_that_are_none(tmp_path: Path, text: str) -> None:
    builders.write_mooncake(tmp_path / "m", make_sequences((3,)))
    (tmp_path / "m" / "kcmpl-0.kv_transfer_params.json").write_text(text)
    builders.write_torchspec(tmp_path / "t", make_sequences((3,)))
    (tmp_path / "t" / "controller_metadata.json").write_text(text)
    for folder in ("m", "t"):
        with pytest.raises(InputError, match=r"no JSON|no tensors|no entry"):
            describe_shards(tmp_path / folder)


def test_objects_without_a_manifest_say_what_they_need(tmp_path: Path) -> None:
    builders.write_torchspec(tmp_path / "t", make_sequences((3,)), metadata=False)
    with pytest.raises(InputError, match=r"controller_metadata\.json beside it"):
        describe_shards(tmp_path / "t")
    builders.write_mooncake(tmp_path / "m", make_sequences((3,)), manifest=False)
    with pytest.raises(InputError, match=r"kv_transfer_params"):
        describe_shards(tmp_path / "m")


@pytest.mark.parametrize("part", ["hs", "ids", "lhs"])
def test_torchspec_objects_that_are_cut_or_gone(tmp_path: Path, part: str) -> None:
    written = make_sequences((3, 4))
    builders.write_torchspec(tmp_path, written)
    path = tmp_path / f"sample0_{part}"
    path.write_bytes(path.read_bytes()[:-2])
    states = open_hidden_states(tmp_path, role="trained")
    assert list(states.names) == ["sample1_hs"]
    assert "bytes" in states.unreadable[0].reason
    path.unlink()
    if part == "hs":
        return
    assert "can't be read" in open_hidden_states(tmp_path, role="trained").unreadable[0].reason


def test_torchspec_needs_its_last_state_for_the_width(tmp_path: Path) -> None:
    builders.write_torchspec(tmp_path, make_sequences((3,)))
    path = tmp_path / "controller_metadata.json"
    entries = json.loads(path.read_text())
    del entries[0]["tensor_shapes"]["last_hidden_states"]
    path.write_text(json.dumps(entries))
    with pytest.raises(InputError, match="nothing tells the hidden size"):
        describe_shards(tmp_path)


@pytest.mark.parametrize(
    ("scales", "reason"),
    [
        (None, "without hidden_states_scales"),
        (torch.ones(3, 4, 1), "one a token"),
        (torch.ones(2, 1, 1), "one a token"),
        (torch.ones(3, 1, 1).long(), "one a token"),
    ],
)
def test_fp8_scales_that_do_not_fit(tmp_path: Path, scales: torch.Tensor | None, reason: str) -> None:
    tensors = {"token_ids": torch.arange(3), "hidden_states": torch.zeros(3, 4, 8).to(torch.float8_e4m3fn)}
    if scales is not None:
        tensors["hidden_states_scales"] = scales
    save_file(tensors, tmp_path / "hs_0.safetensors")
    with pytest.raises(InputError, match=reason):
        describe_shards(tmp_path)


def test_scales_beside_unquantised_states(tmp_path: Path) -> None:
    tensors = {
        "token_ids": torch.arange(3),
        "hidden_states": torch.zeros(3, 4, 8),
        "hidden_states_scales": torch.ones(3),
    }
    save_file(tensors, tmp_path / "hs_0.safetensors")
    with pytest.raises(InputError, match="expected float8"):
        describe_shards(tmp_path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_block_of_rows_is_that_block(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(ALL_WRITERS.keys() - {"capture", "sglang-dumper", "stacked-fp8"})))
    tokens = data.draw(st.integers(1, 30))
    written = make_sequences((tokens,), slots=3, hidden=data.draw(st.integers(1, 9)))
    root = tmp_path_factory.mktemp("rows")
    ALL_WRITERS[kind](root, written)
    states = open_hidden_states(root, role="trained", first_token=int(written[0].token_ids[0]))
    sequence = opened(states, states.names[0])
    stop = data.draw(st.integers(0, tokens))
    start = data.draw(st.integers(0, stop))
    for rows, slot in zip(sequence.slots, written[0].slots, strict=False):
        block = rows.read(start, stop)
        assert block.is_contiguous()
        assert torch.equal(block, slot[start:stop])


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_damage_gives_one_reason(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(ALL_WRITERS.keys() - {"capture", "sglang-dumper"})))
    root = tmp_path_factory.mktemp("damage")
    ALL_WRITERS[kind](root, make_sequences((3, 2), slots=2, hidden=3))
    path = data.draw(st.sampled_from(sorted(p for p in root.rglob("*") if p.is_file())))
    whole = path.read_bytes()
    place = data.draw(st.integers(0, min(len(whole), 400)))
    junk = data.draw(st.binary(max_size=40) | st.integers(0, 2**64 - 1).map(lambda n: struct.pack("<Q", n)))
    path.write_bytes(whole[:place] + (junk + whole[place + len(junk) :] if data.draw(st.booleans()) else b""))
    try:
        states = open_hidden_states(root, role="trained", first_token=1)
    except InputError:
        return
    for name in states.names:
        sequence = states.open(name)
        assert isinstance(states.count_tokens(name), int | Unreadable)
        if isinstance(sequence, StateSequence):
            for rows in sequence.slots:
                rows.read(0, rows.tokens)
