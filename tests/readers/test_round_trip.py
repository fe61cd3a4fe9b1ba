"""Every layout: what was written is what is read, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

from eagle_parity.hidden_states import LastStateRule, StateSequence
from eagle_parity.readers import describe_shards, open_hidden_states
from eagle_parity.readers.containers import stored_tensor
from eagle_parity.readers.containers.stored_tensor import read_bytes
from eagle_parity.wiring import POST_NORM, Wiring

if TYPE_CHECKING:
    from pathlib import Path

    from eagle_parity.hidden_states import HiddenStates, Rows

LENGTHS = (5, 0, 1, 17, 3, 2, 4, 6, 9, 8, 7, 11)


def opened(states: HiddenStates, name: str) -> StateSequence:
    sequence = states.open(name)
    assert isinstance(sequence, StateSequence), sequence
    return sequence


def check_rows(rows: Rows | None, expected: torch.Tensor) -> None:
    assert rows is not None
    assert (rows.tokens, rows.hidden_size) == tuple(expected.shape)
    assert rows.dtype == str(expected.dtype).removeprefix("torch.")
    block = rows.read(0, rows.tokens)
    assert block.dtype == expected.dtype
    assert torch.equal(block, expected)


def check_all(states: HiddenStates, written: list[Written], *, last_state: bool = True, mask: bool = True) -> None:
    assert len(states.names) == len(written)
    assert not states.unreadable
    for name, expected in zip(states.names, written, strict=True):
        sequence = opened(states, name)
        assert sequence.name == name
        assert sequence.token_ids is not None
        assert sequence.token_ids.dtype == torch.int64
        assert torch.equal(sequence.token_ids, expected.token_ids)
        assert states.count_tokens(name) == len(expected.token_ids)
        assert len(sequence.slots) == len(expected.slots) == states.layout.slots
        for rows, slot in zip(sequence.slots, expected.slots, strict=True):
            check_rows(rows, slot)
        if last_state:
            check_rows(sequence.last_state, expected.last)
        if mask:
            assert sequence.loss_mask is not None
            assert torch.equal(sequence.loss_mask, expected.mask)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_stacked(tmp_path: Path, dtype: torch.dtype) -> None:
    written = make_sequences(LENGTHS, dtype=dtype)
    states = open_hidden_states(write_stacked(tmp_path / "s", written, speculators=True), role="trained")
    assert states.layout.format == "stacked"
    assert states.layout.last_state is LastStateRule.STORED
    assert states.layout.last_state_boundary is None  # N, and the files don't name the target
    assert states.layout.facts["last_state_stage"] == "pre_norm"
    assert states.names[2] == "hidden_states/hs_2.safetensors"
    assert states.names[-1] == "hidden_states/hs_11.safetensors"
    check_all(states, written, mask=False)


def test_stacked_without_a_dataset_leaves_the_final_state_open(tmp_path: Path) -> None:
    written = make_sequences((5, 3))
    states = open_hidden_states(write_stacked(tmp_path, written), role="trained")
    assert states.layout.last_state is LastStateRule.UNDECIDED
    assert states.layout.slots == 4
    assert len(states.layout.unknown) == 2
    check_all(states.decide_last_state(stored=True), written, mask=False)
    as_slots = states.decide_last_state(stored=False)
    assert as_slots.layout.slots == 4
    check_rows(opened(as_slots, as_slots.names[0]).slots[3], written[0].last)


def test_speculators_list_declares_by_the_old_rule(tmp_path: Path) -> None:
    written = make_sequences(LENGTHS)
    states = open_hidden_states(write_speculators_list(tmp_path, written), role="trained")
    layout = states.layout
    assert layout.format == "speculators-list"
    # The ids [2, 5, 7, 9] count layer outputs.
    assert layout.declared == Wiring((3, 6, 8), 10)
    assert layout.last_state_boundary == 10
    assert layout.declared_by is not None
    assert "[2, 5, 7, 9]" in layout.declared_by
    assert "(3, 6, 8, 10)" in layout.declared_by
    check_all(states, written)


@pytest.mark.parametrize(
    ("layer_ids", "declared"),
    [
        ((9, 2, 7, 5), Wiring((3, 6, 8), 10)),  # recorded in the order in which the layers run
        ((2, 5, 9), None),  # another number than there are states
        ((-1, 2, 5, 9), None),  # the embedding was never recorded under -1
        (("a", 2, 5, 9), None),
        ((True, 2, 5, 9), None),
        ((10**30, 2, 5, 9), None),
        (None, None),
    ],
)
def test_speculators_list_ids(tmp_path: Path, layer_ids: tuple[int, ...] | None, declared: Wiring | None) -> None:
    layout = describe_shards(write_speculators_list(tmp_path, make_sequences((4,)), layer_ids=layer_ids))
    assert layout.declared == declared
    assert layout.last_state is LastStateRule.STORED
    assert bool(layout.unknown) is (declared is None)


def test_specforge(tmp_path: Path) -> None:
    written = make_sequences(LENGTHS)
    states = open_hidden_states(write_specforge(tmp_path, written), role="trained")
    assert states.layout.format == "specforge"
    assert states.layout.last_state_boundary == POST_NORM
    assert states.layout.declared is None
    assert states.names[-1] == "rows_0-2000/data_11.ckpt"
    check_all(states, written)


def test_specforge_padding_is_kept_and_told(tmp_path: Path) -> None:
    states = open_hidden_states(write_specforge(tmp_path, make_sequences((5,)), padded_to=9), role="trained")
    sequence = opened(states, states.names[0])
    assert sequence.rows == 9
    assert sequence.loss_mask is not None
    assert sequence.loss_mask[5:].tolist() == [0] * 4
    assert "padding" in states.layout.facts
    assert any("padding" in text for text in states.layout.unknown)


def test_specforge_compressed(tmp_path: Path) -> None:
    written = make_sequences((5, 3, 4, 2))
    states = open_hidden_states(write_specforge(tmp_path, written, compress=True), role="trained")
    check_all(states, written)
    # Rows of a file that has left the cache meanwhile.
    first = opened(states, states.names[0])
    for name in states.names[1:]:
        opened(states, name)
    check_rows(first.slots[1], written[0].slots[1])


def test_specforge_logits_are_no_last_state(tmp_path: Path) -> None:
    (written,) = make_sequences((5,))
    folder = tmp_path / "rows_0-2000"
    folder.mkdir()
    content = {
        "input_ids": written.token_ids,
        "loss_mask": written.mask,
        "hidden_state": torch.zeros(1, 4, 100),
        "aux_hidden_state": torch.cat(list(written.slots), dim=-1)[None],
    }
    torch.save(content, folder / "data_0.ckpt")
    states = open_hidden_states(tmp_path, role="trained")
    assert states.layout.last_state is LastStateRule.ABSENT
    assert (states.layout.slots, states.layout.hidden_size) == (3, 8)
    assert "logits" in states.layout.facts["hidden_state"]
    check_all(states, [written], last_state=False)


def test_capture(tmp_path: Path) -> None:
    written = [s for s in make_sequences(LENGTHS) if len(s.token_ids)]
    states = open_hidden_states(write_capture(tmp_path, written, slots=(3, 6, None), last_state=10), role="live")
    assert states.layout.declared == Wiring((3, 6, None), 10)
    assert states.layout.last_state_boundary == 10
    assert states.layout.facts["complete"] is True
    assert states.names[0] == "data_0"
    check_all(states, written)


def test_capture_without_last_state(tmp_path: Path) -> None:
    written = make_sequences((3,), slots=5)
    states = open_hidden_states(write_capture(tmp_path, written, slots=(0, 1, 2, 3, 4)), role="reference")
    assert states.layout.last_state is LastStateRule.ABSENT
    assert opened(states, "data_0").last_state is None
    check_all(states, written, last_state=False)


def test_capture_that_was_killed(tmp_path: Path) -> None:
    written = make_sequences((3, 4))
    write_capture(tmp_path, written, slots=(3, 6, 8))
    (tmp_path / "manifest.json").unlink()
    states = open_hidden_states(tmp_path, role="live")
    assert states.layout.format == "capture"
    assert states.layout.facts["complete"] is False
    assert states.layout.declared is None
    check_all(states, written, last_state=False)


def test_capture_that_was_interrupted(tmp_path: Path) -> None:
    write_capture(tmp_path, make_sequences((3, 4)), slots=(3, 6, 8))
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete": true', '"complete": false'))
    layout = describe_shards(tmp_path)
    assert layout.facts["complete"] is False
    assert "interrupted" in layout.description


def test_a_single_file_knows_its_companions(tmp_path: Path) -> None:
    written = make_sequences((3, 4))
    write_speculators_list(tmp_path / "a", written)
    assert describe_shards(tmp_path / "a" / "data_1.pt").declared == Wiring((3, 6, 8), 10)
    write_stacked(tmp_path / "b", written, speculators=True)
    one = open_hidden_states(tmp_path / "b" / "hidden_states" / "hs_1.safetensors", role="trained")
    assert one.layout.last_state is LastStateRule.STORED
    check_all(one, written[1:], mask=False)
    write_capture(tmp_path / "c", written, slots=(3, 6, 8))
    assert describe_shards(tmp_path / "c" / "sequence_000001.safetensors").declared == Wiring((3, 6, 8))


def test_nan_and_infinity_come_through(tmp_path: Path) -> None:
    bad = torch.full((4, 8), float("nan"), dtype=torch.bfloat16)
    bad[1, 2] = float("inf")
    states = open_hidden_states(write_stacked(tmp_path, [Written(torch.arange(4), [bad, bad])]), role="live")
    block = opened(states, states.names[0]).slots[0].read(0, 4)
    assert torch.equal(block.view(torch.int16), bad.view(torch.int16))


def test_rows_and_tokens_may_differ(tmp_path: Path) -> None:
    (written,) = make_sequences((6,))
    states = open_hidden_states(
        write_stacked(tmp_path, [Written(torch.arange(9), list(written.slots))]), role="trained"
    )
    sequence = opened(states, states.names[0])
    assert sequence.token_ids is not None
    assert (len(sequence.token_ids), sequence.rows) == (9, 6)


def test_strided_and_legacy_torch_files(tmp_path: Path) -> None:
    (written,) = make_sequences((6,))
    wide = torch.stack(list(written.slots), dim=1)  # [T, K, H]: each slot is a view with gaps
    content = {
        "input_ids": written.token_ids[None],
        "hidden_states": [wide[:, 0], wide[:, 1], wide[:, 2].t().contiguous().t(), written.last],
    }
    torch.save(content, tmp_path / "data_0.pt")
    torch.save(content, tmp_path / "data_1.pt", _use_new_zipfile_serialization=False)
    states = open_hidden_states(tmp_path, role="trained")
    check_all(states, [written, written], mask=False)


def test_a_parameter_and_an_ordered_dict(tmp_path: Path) -> None:
    from collections import OrderedDict

    (written,) = make_sequences((6,))
    states = [torch.nn.Parameter(state.float()) for state in (*written.slots, written.last)]
    content = OrderedDict(input_ids=written.token_ids, hidden_states=states, note="text", score=1.5)
    torch.save(content, tmp_path / "data_0.pt")
    expected = Written(written.token_ids, [s.float() for s in written.slots], written.last.float())
    check_all(open_hidden_states(tmp_path, role="trained"), [expected], mask=False)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_block_of_rows_is_that_block(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    tokens = data.draw(st.integers(0, 40))
    kind = data.draw(st.sampled_from((write_stacked, write_speculators_list, write_specforge)))
    dtype = data.draw(st.sampled_from((torch.bfloat16, torch.float32)))
    written = make_sequences((tokens,), slots=data.draw(st.integers(1, 4)), hidden=data.draw(st.integers(1, 9)))
    written = [
        Written(w.token_ids, [s.to(dtype) for s in w.slots], None if w.last_state is None else w.last_state.to(dtype))
        for w in written
    ]
    states = open_hidden_states(kind(tmp_path_factory.mktemp("rows"), written), role="trained")
    sequence = opened(states, states.names[0])
    stop = data.draw(st.integers(0, tokens))
    start = data.draw(st.integers(0, stop))
    for rows, slot in zip(sequence.slots, written[0].slots, strict=False):
        block = rows.read(start, stop)
        assert block.is_contiguous()
        assert torch.equal(block, slot[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 6), (6, 6)])
def test_rows_out_of_range(tmp_path: Path, start: int, stop: int) -> None:
    states = open_hidden_states(write_stacked(tmp_path, make_sequences((5,))), role="trained")
    with pytest.raises(IndexError, match="of 5"):
        opened(states, states.names[0]).slots[0].read(start, stop)


@pytest.mark.parametrize("at_once", [1, 50, 100, 10**6])
def test_gaps_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    written = make_sequences((17,))
    states = open_hidden_states(write_stacked(tmp_path, written, speculators=True), role="trained")
    asked: list[int] = []

    def counting(descriptor: int, start: int, count: int, *, subject: object) -> bytearray:
        asked.append(count)
        return read_bytes(descriptor, start, count, subject=subject)

    monkeypatch.setattr(stored_tensor, "MAX_READ_BYTES", at_once)
    monkeypatch.setattr(stored_tensor, "read_bytes", counting)
    check_all(states, written, mask=False)
    # Token ids are without gaps: 17 numbers of 8 bytes. A row of four bf16 states of 8 has 64 bytes.
    assert max(asked) <= max(17 * 8, at_once, 64)
