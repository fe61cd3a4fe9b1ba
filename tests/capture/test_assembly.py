"""From parts to sequences: what is out of order, twice, missing, damaged or made up."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import torch
from located_rank import ReadRank
from safetensors.torch import save_file

from eagle_parity.capture.assembly import (
    Incomplete,
    LocatedRank,
    SessionParts,
    is_side_by_side,
)
from eagle_parity.capture.rank_record import MAX_RECORD_BYTES
from eagle_parity.capture.spool.files import is_spooled_name
from eagle_parity.capture.spool.folder import read_token
from eagle_parity.capture.spool.request_ids import Mark, new_session, request_id
from eagle_parity.capture.spool.worker import Spool
from eagle_parity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HIDDEN, SLOTS = 4, 2


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)


def states(positions: torch.Tensor, value: float = 0) -> list[torch.Tensor]:
    return [positions[:, None].float() + torch.arange(HIDDEN) / 8 + 100 * slot + value for slot in range(SLOTS)]


class Recorder:
    """One rank's hook, driven by hand."""

    def __init__(self, folder: Path, session: str, rank: str = "tp0") -> None:
        self.spool, self.session, self.rank = Spool(folder, rank), session, rank
        self.marks([0])
        facts = {"parallel": {"tp_size": 1}, "target": {"hidden_size": HIDDEN, "num_layers": 8}}
        self.spool.describe(session, facts)

    @property
    def folder(self) -> Path:
        return self.spool.folder / self.session

    def marks(self, numbers: Sequence[int]) -> list[Mark | None]:
        return self.spool.marks([request_id(read_token(self.spool.folder), self.session, n) for n in numbers])

    def forward(
        self,
        spans: Sequence[tuple[int, int, int]],
        *,
        value: float = 0,
        packed: bool = False,
        kind: str = "aux",
        other: dict[str, torch.Tensor] | None = None,
    ) -> None:
        """Requests with the first and the last of the positions that are computed."""
        positions = torch.cat([torch.arange(start, stop) for _, start, stop in spans])
        slots = states(positions, value)
        tensors = {"token_ids": positions + 10, "positions": positions}
        if kind == "draft":
            tensors["draft_input"] = torch.cat(slots, dim=1)
        elif packed:
            tensors["packed"] = torch.cat(slots, dim=1)
        else:
            tensors |= {f"slot.{index}": slot for index, slot in enumerate(slots)} | {"last_state": slots[0] + 1}
        lengths = [stop - start for _, start, stop in spans]
        ends = torch.tensor(lengths).cumsum(0).tolist()
        where = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        self.spool.write(kind, tensors | (other or {}), self.marks([n for n, _, _ in spans]), where, mode="EXTEND")


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "spool", new_session())


def whole(recorder: Recorder, number: int, tokens: int, first: int = 0) -> ReadRank:
    return ReadRank(SessionParts(recorder.folder).locate(recorder.rank, number, tokens, first=first))


def refused(recorder: Recorder, number: int = 0, tokens: int = 3) -> Incomplete:
    assembled = SessionParts(recorder.folder).locate(recorder.rank, number, tokens)
    assert isinstance(assembled, Incomplete)
    return assembled


def test_parts_out_of_order_and_of_several_requests(recorder: Recorder) -> None:
    recorder.forward([(1, 3, 6), (0, 2, 4)])
    recorder.forward([(0, 0, 2)])
    recorder.forward([(1, 0, 3)])
    for number, tokens in ((0, 4), (1, 6)):
        assembled = whole(recorder, number, tokens)
        assert assembled.token_ids.tolist() == list(range(10, 10 + tokens))
        assert all(map(torch.equal, assembled.slots, states(torch.arange(tokens))))
        assert assembled.last_state is not None
        assert assembled.forwards == 2


def test_of_a_position_that_was_computed_twice_the_later_row_counts(recorder: Recorder) -> None:
    recorder.forward([(0, 0, 5)])
    recorder.forward([(0, 0, 3)], value=0.5)
    expected = torch.cat([states(torch.arange(3), 0.5)[0], states(torch.arange(3, 5))[0]])
    assert torch.equal(whole(recorder, 0, 5).slots[0], expected)


def test_the_order_of_parts_is_that_of_their_numbers(recorder: Recorder) -> None:
    recorder.forward([(0, 0, 3)])
    recorder.forward([(0, 0, 3)], value=0.5)
    (recorder.folder / "tp0-000001-aux.safetensors").rename(recorder.folder / "tp0-1000000-aux.safetensors")
    (recorder.folder / "tp0-000000-aux.safetensors").rename(recorder.folder / "tp0-999999-aux.safetensors")
    assert torch.equal(whole(recorder, 0, 3).slots[0], states(torch.arange(3), 0.5)[0])


def test_rows_beyond_the_prompt_are_left_out(recorder: Recorder) -> None:
    recorder.forward([(0, 0, 9)])
    assert whole(recorder, 0, 4).token_ids.tolist() == [10, 11, 12, 13]


def test_gaps_are_named(recorder: Recorder) -> None:
    for start in (2, 5, 8, 11, 14, 17):
        recorder.forward([(0, start, start + 1)])
    assembled = refused(recorder, tokens=20)
    assert assembled.rows == 6
    assert str(assembled) == "no rows of positions 0 to 1, 3 to 4, 6 to 7, 9 to 10 and 3 more gaps"
    assert whole(recorder, 0, 18, first=17).token_ids.tolist() == [27]


def test_a_request_that_nobody_recorded(recorder: Recorder) -> None:
    assert str(refused(recorder, 7)) == "no rows of positions 0 to 2"
    assert SessionParts(recorder.folder).ranks_of(7) == []


def test_a_rank_that_is_missing(recorder: Recorder) -> None:
    other = Recorder(recorder.spool.folder, recorder.session, "tp10")
    third = Recorder(recorder.spool.folder, recorder.session, "tp2")
    recorder.forward([(0, 0, 3), (1, 0, 2)])
    other.forward([(0, 0, 3)])
    third.forward([(0, 0, 2)])
    parts = SessionParts(recorder.folder)
    assert parts.ranks_of(0) == ["tp0", "tp2", "tp10"]
    assert parts.ranks_of(1) == ["tp0"]
    assert [parts.is_whole(rank, 0, 3) for rank in parts.ranks_of(0)] == [True, False, True]


def test_the_heads_input_is_waited_for_and_compared(recorder: Recorder) -> None:
    other = Recorder(recorder.spool.folder, recorder.session, "tp1")
    for one in (recorder, other):
        one.forward([(0, 0, 3)])
    recorder.forward([(0, 0, 3)], kind="draft")
    parts = SessionParts(recorder.folder)
    assert (parts.is_whole("tp0", 0, 3), parts.is_whole("tp1", 0, 3)) == (True, False)
    assert whole(recorder, 0, 3).draft_input_state() == "equal"
    assert whole(recorder, 0, 3).draft_input_state(normed=True) == "normed"
    assert whole(other, 0, 3).draft_input_state() == "absent"
    other.forward([(0, 0, 3)], kind="draft", value=0.5)
    assert whole(other, 0, 3).draft_input_state() == "differs"


def test_a_cast_and_a_nan_make_no_other_input_of_the_head() -> None:
    slots = torch.randn(2, 3, HIDDEN)
    slots[0, 1, 2] = torch.nan

    def is_given(got: torch.Tensor) -> bool:
        return is_side_by_side(tuple(slots), got.shape[1], lambda columns: got[:, columns])

    for dtype in (torch.float32, torch.bfloat16):
        assert is_given(torch.cat(tuple(slots), dim=1).to(dtype))
    for other in (slots[0], torch.cat((slots[1], slots[0]), dim=1), torch.zeros(2, 2 * HIDDEN)):
        assert not is_given(other)


def test_one_tensor_is_split_by_the_hidden_size(recorder: Recorder) -> None:
    recorder.forward([(0, 0, 3)], packed=True)
    assert all(map(torch.equal, whole(recorder, 0, 3).slots, states(torch.arange(3))))
    recorder.spool.describe(recorder.session, {"target": {"hidden_size": 3}})
    assert str(refused(recorder)) == "its states are one tensor of 8 values a row, no multiple of 3"
    recorder.spool.describe(recorder.session, {"target": {}})
    assert "no multiple of H" in str(refused(recorder))


def test_forwards_of_different_kinds_are_not_put_together(recorder: Recorder) -> None:
    recorder.forward([(0, 0, 2)])
    recorder.forward([(0, 2, 3)], packed=True)
    assert "states of different kinds" in str(refused(recorder))
    recorder.forward([(1, 0, 2)])
    bfloat16 = torch.zeros(1, HIDDEN, dtype=torch.bfloat16)
    recorder.forward([(1, 2, 3)], other={"slot.0": bfloat16, "slot.1": bfloat16})
    assert "states of different kinds" in str(refused(recorder, 1))


def test_a_share_of_the_rows_is_given_as_it_is(recorder: Recorder) -> None:
    share = torch.full((2, HIDDEN), 7.0)
    recorder.forward([(0, 0, 4)], other={"slot.0": share, "slot.1": share, "last_state": share})
    assembled = whole(recorder, 0, 4)
    assert [slot.tolist() for slot in assembled.slots] == [share.tolist()] * 2
    recorder.forward([(0, 4, 6)])
    assert "a rank's share of the rows of several forwards" in str(refused(recorder, tokens=6))


def write_part(recorder: Recorder, tensors: dict[str, torch.Tensor], header: dict[str, str], kind: str = "aux") -> None:
    save_file(tensors, recorder.folder / f"tp0-000007-{kind}.safetensors", metadata=header)


def good(count: int = 3) -> dict[str, torch.Tensor]:
    positions = torch.arange(count)
    slots = {f"slot.{index}": slot.contiguous() for index, slot in enumerate(states(positions))}
    return {
        "token_ids": positions + 10,
        "positions": positions,
        "request": torch.zeros(count, dtype=torch.long),
        **slots,
    }


@pytest.mark.parametrize(
    ("changed", "header"),
    [
        ({}, {}),
        ({}, {"requests": "[0"}),
        ({}, {"requests": "{}"}),
        ({}, {"requests": '["a"]'}),
        ({}, {"requests": "[" * 100_000}),
        ({}, {"requests": "[0, 0]"}),
        ({}, {"requests": str(list(range(1000)))}),
        ({"request": None}, {"requests": "[0]"}),
        ({"request": torch.zeros(3)}, {"requests": "[0]"}),
        ({"request": torch.zeros(3, 3, dtype=torch.long)}, {"requests": "[0]"}),
        ({"positions": None}, {"requests": "[0]"}),
        ({"positions": torch.zeros(3)}, {"requests": "[0]"}),
        ({"positions": torch.arange(2)}, {"requests": "[0]"}),
        ({"token_ids": torch.zeros(3, 2, dtype=torch.long)}, {"requests": "[0]"}),
        ({"slot.0": torch.zeros(5, HIDDEN)}, {"requests": "[0]"}),
        ({"slot.0": torch.zeros(3)}, {"requests": "[0]"}),
        ({"slot.0": torch.zeros(0, HIDDEN)}, {"requests": "[0]"}),
        ({"slot.0": torch.zeros(3, 0)}, {"requests": "[0]"}),
        ({"slot.0": None}, {"requests": "[0]"}),
        ({"slot.0": torch.zeros(2, HIDDEN)}, {"requests": "[0, 1]"}),
        ({}, {"requests": '["0"]'}),
        ({}, {"requests": "[0.0]"}),
        ({}, {"requests": "[true]"}),
        ({}, {"requests": "[-1]"}),
        ({}, {"requests": f"[{10**7}]"}),
        ({}, {"requests": f"[{'9' * 5000}]"}),
        ({"request": torch.zeros(3, dtype=torch.int32)}, {"requests": "[0]"}),
        ({"slot.0": torch.zeros(3, HIDDEN, dtype=torch.int32)}, {"requests": "[0]"}),
        ({"last_state": torch.zeros(3, HIDDEN) > 0}, {"requests": "[0]"}),
        ({"slot.1": torch.zeros(3, HIDDEN, dtype=torch.bfloat16)}, {"requests": "[0]"}),
        ({"slot.1": torch.zeros(3, HIDDEN // 2)}, {"requests": "[0]"}),
        ({"boundary.3": torch.zeros(3, HIDDEN // 2)}, {"requests": "[0]"}),
        ({"boundary.00": torch.zeros(3, HIDDEN)}, {"requests": "[0]"}),
        ({"slot." + "9" * 5000: torch.zeros(3, HIDDEN)}, {"requests": "[0]"}),
        ({"slot.\n\x1b[31m": torch.zeros(3, HIDDEN)}, {"requests": "[0]"}),
        ({"something": torch.zeros(3, HIDDEN)}, {"requests": "[0]"}),
        ({f"slot.{slot}": torch.zeros(3, HIDDEN) for slot in range(600)}, {"requests": "[0]"}),
    ],
)
def test_a_part_that_is_none_is_told_and_the_others_are_read(
    recorder: Recorder, changed: dict[str, torch.Tensor | None], header: dict[str, str]
) -> None:
    recorder.forward([(0, 0, 3)])
    tensors = {name: tensor for name, tensor in (good() | changed).items() if tensor is not None}
    write_part(recorder, tensors, header)
    parts = SessionParts(recorder.folder)
    (failure,) = parts.ranks["tp0"].failures
    assert failure.startswith("tp0-000007-aux.safetensors can't be read (")
    assert isinstance(parts.locate("tp0", 0, 3), LocatedRank)


def test_a_file_of_as_many_requests_as_rows_takes_no_time(recorder: Recorder) -> None:
    rows = 100_000
    zeros = torch.zeros(rows, dtype=torch.long)
    tensors = {"token_ids": zeros, "positions": zeros.clone(), "request": torch.arange(rows).flip(0)}
    started = time.perf_counter()
    write_part(recorder, tensors | {"slot.0": torch.zeros(rows, 1)}, {"requests": json.dumps(list(range(rows)))})
    parts = SessionParts(recorder.folder)
    assert time.perf_counter() - started < 20
    located = parts.locate("tp0", 7, 1)
    assert isinstance(located, LocatedRank)
    assert located.read().slots[0].shape == (1, 1)


@pytest.mark.parametrize("rows", [2**25, 2**34, 2**44])
def test_a_header_of_more_rows_than_any_text_has_is_not_read(recorder: Recorder, rows: int) -> None:
    ends = {"request": 8, "token_ids": 16, "positions": 24, "slot.0": 28}
    entries, start = {}, 0
    for name, end in ends.items():
        shape = [rows, 1] if name == "slot.0" else [rows]
        dtype = "F32" if name == "slot.0" else "I64"
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start * rows, end * rows]}
        start = end
    header = json.dumps({"__metadata__": {"requests": "[0]"}, **entries}).encode()
    with (recorder.folder / "tp0-000007-aux.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        with suppress(OSError):  # a file system may know no file as long
            file.truncate(8 + len(header) + start * rows)  # takes no room on the disk
    (failure,) = SessionParts(recorder.folder).ranks["tp0"].failures
    # Where the machine can't map it either, that is said.
    assert f"request is ({rows},) I64" in failure or rows > 2**25


def test_one_tensor_of_more_states_than_any_model_has_layers(recorder: Recorder) -> None:
    tensors = good(1)
    del tensors["slot.0"], tensors["slot.1"]
    write_part(recorder, tensors | {"packed": torch.zeros(1, HIDDEN * 600)}, {"requests": "[0]"})
    assert "600 states; expected 512 at most" in str(refused(recorder, tokens=1))


def test_a_last_state_of_another_dtype_has_no_place_beside_the_slots(recorder: Recorder) -> None:
    write_part(recorder, good() | {"last_state": torch.zeros(3, HIDDEN, dtype=torch.bfloat16)}, {"requests": "[0]"})
    located = SessionParts(recorder.folder).locate("tp0", 0, 3)
    assert isinstance(located, LocatedRank)
    assert (located.has_last_state, located.read().last_state) == (False, None)


@pytest.mark.parametrize(("boundary", "readable"), [(8, True), (9, False), (511, False)])
def test_a_boundary_beyond_the_layers_spoils_its_part_alone(
    recorder: Recorder, boundary: int, *, readable: bool
) -> None:
    recorder.forward([(1, 0, 3)])
    write_part(recorder, good() | {f"boundary.{boundary}": torch.zeros(3, HIDDEN)}, {"requests": "[0]"})
    parts = SessionParts(recorder.folder)
    assert isinstance(parts.locate("tp0", 0, 3), LocatedRank) is readable
    assert isinstance(parts.locate("tp0", 1, 3), LocatedRank)
    failures = parts.ranks["tp0"].failures
    assert bool(failures) is not readable
    assert readable or f"boundary.{boundary}, of a target of 8 layers" in failures[0]


def test_rows_of_no_request_are_left_out(recorder: Recorder) -> None:
    write_part(recorder, good() | {"request": torch.tensor([0, 5, -1])}, {"requests": "[0]"})
    assert str(refused(recorder)) == "no rows of positions 1 to 2"


def test_positions_of_any_size_take_no_memory(recorder: Recorder) -> None:
    write_part(recorder, good() | {"positions": torch.tensor([0, 2**62, -(2**62)])}, {"requests": "[0]"})
    assert str(refused(recorder)) == "no rows of positions 1 to 2"


def test_slots_with_a_hole_are_none(recorder: Recorder) -> None:
    tensors = good()
    tensors["slot.7"] = tensors.pop("slot.1")
    write_part(recorder, tensors, {"requests": "[0]"})
    assert str(refused(recorder)) == "its slots are slot.0, slot.7"


@pytest.mark.parametrize("content", [b"", b"\x00" * 8, b"\xff" * 64, (2**62).to_bytes(8, "little") + b"{}", b"{}" * 50])
def test_a_damaged_part(recorder: Recorder, content: bytes) -> None:
    recorder.forward([(0, 0, 3)])
    (recorder.folder / "tp0-000005-aux.safetensors").write_bytes(content)
    assert len(SessionParts(recorder.folder).ranks["tp0"].failures) == 1
    assert whole(recorder, 0, 3).forwards == 1


def test_a_part_cut_short(recorder: Recorder) -> None:
    recorder.forward([(0, 0, 3)])
    path = recorder.folder / "tp0-000000-aux.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    assert len(SessionParts(recorder.folder).ranks["tp0"].failures) == 1
    assert str(refused(recorder)) == "no rows of positions 0 to 2"


def test_what_is_no_file_is_not_opened(recorder: Recorder) -> None:
    os.mkfifo(recorder.folder / "tp0-000003-aux.safetensors")
    (recorder.folder / "tp0-000004-aux.safetensors").mkdir()
    (recorder.folder / "something.else").write_text("x")
    (recorder.folder / ".part-abcdef").write_text("x")
    recorder.forward([(0, 0, 3)])
    assert whole(recorder, 0, 3).forwards == 1


def test_a_rank_without_a_record_is_not_believed(recorder: Recorder) -> None:
    recorder.forward([(0, 0, 3)])
    (recorder.folder / "tp0.json").unlink()
    assert SessionParts(recorder.folder).ranks_of(0) == []


def test_the_record_of_a_pipe(recorder: Recorder) -> None:
    os.mkfifo(recorder.folder / "tp1.json")
    with pytest.raises(InputError, match="no regular file"):
        SessionParts(recorder.folder)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"spool_version": 2}, "of different releases of eagle-parity"),
        ({"spool_version": None}, "spool_version None"),
        ({"rank": "tp1"}, "the record of tp1"),
        ({"rank": 7}, "no rank's record"),
        ({"tokens": "many"}, "no rank's record"),
        ({"tokens": -1}, "no rank's record"),
        ({"limit": ["x"]}, "no rank's record"),
        ({"skipped": {"x": "y"}}, "no rank's record"),
        ({"skipped": []}, "no rank's record"),
        ({"failures": "x"}, "no rank's record"),
        ({"failures": ["x" * 10_000]}, "no rank's record"),
        ({"facts": []}, "no rank's record"),
        ({"facts": {"parallel": {"tp_size": 2**40}}}, "no rank's record"),
        ({"facts": {"parallel": {"tp_size": -1}}}, "no rank's record"),
        ({"facts": {"target": {"num_layers": 2**40}}}, "no rank's record"),
        ({"facts": {"target": {"num_layers": True}}}, "no rank's record"),
        ({"facts": {"target": {"hidden_size": 0}}}, "no rank's record"),
        ({"facts": {"target": {"layer_set": {"list": ["a"]}}}}, "no rank's record"),
        ({"facts": {"target": {"layer_set": {"list": [10**9]}}}}, "no rank's record"),
        ({"facts": {"target": {"config": "x"}}}, "no rank's record"),
        ({"facts": {"server": {"x": []}}}, "no rank's record"),
        ({"facts": {"engine": "x"}}, "no rank's record"),
        ({"facts": {"draft": {"normed_before_fc": "x"}}}, "no rank's record"),
    ],
)
def test_a_record_of_another_kind(recorder: Recorder, changed: dict[str, Any], told: str) -> None:
    path = recorder.folder / "tp0.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(InputError, match=told):
        SessionParts(recorder.folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b"\xff", b"1" * 5000, b" " * (MAX_RECORD_BYTES + 1)])
def test_a_record_that_is_none(recorder: Recorder, content: bytes) -> None:
    (recorder.folder / "tp0.json").write_bytes(content)
    with pytest.raises(InputError):
        SessionParts(recorder.folder)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="what the capture hook wrote"):
        SessionParts(tmp_path / "nothing")


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "",
        "../token",
        "tp1.json",
        "tp0-000000-aux.safetensors/x",
        "tp0-000000-other.safetensors",
        "tp0.JSON",
        7,
    ],
)
def test_names_that_the_spool_never_gives(name: object) -> None:
    assert not is_spooled_name(name, "tp0")
    assert is_spooled_name("tp0.json", "tp0")
    assert is_spooled_name("dp1.tp0-000012-draft.safetensors", "dp1.tp0")
