"""A folder of SGLang's dumper as sequences: what belongs to known tokens is delivered, the rest is told.

``data/sglang-dump-tp2.tar.xz`` is a genuine recording: SGLang 0.5.23 on CPU with ``--tp 2 --chunked-prefill-size 16``,
a random Llama of 8 layers (H 64) and an EAGLE-3 draft with ids [-1, 2, 5], started with ``DUMPER_SERVER_PORT=reuse
DUMPER_NON_INTRUSIVE_MODE=all DUMPER_DIR=...``. The script switched the dumper on by ``POST /dumper/configure`` with the
filter that docs/formats.md gives, sent ``/generate`` with ``input_ids`` and ``rid``: beside-1 and beside-2 at once,
pair-1 and pair-2 as one request, chunked (30 tokens), cached (11 of its 15 tokens were in the cache), and switched it
off again. The archive has the files as they were written, without the later rounds of speculation.
``data/sglang-dump-plain.tar.xz`` is the same with TP=1 and without a draft (``--enable-return-aux-hidden-states
--return-aux-hidden-state-layer-ids 5 1 3``), in which decoding is visible.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from builders import Rows, write_dumped, write_sglang_dump, write_sglang_forward
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle_parity.cli.app import run
from eagle_parity.errors import InputError
from eagle_parity.hidden_states import HiddenStates, LastStateRule, StateSequence, Unreadable
from eagle_parity.readers import open_hidden_states, sglang_forward
from eagle_parity.readers.sglang_dumper import parse_name
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDED = Path(__file__).parent / "data"

HIDDEN = 8


def opened(states: HiddenStates, name: str) -> StateSequence:
    sequence = states.open(name)
    assert isinstance(sequence, StateSequence), sequence
    return sequence


def reasons(states: HiddenStates) -> dict[str, str]:
    return {entry.name: entry.reason for entry in states.unreadable}


def live(folder: Path, rank: int | None = None) -> HiddenStates:
    return open_hidden_states(folder, role="live", rank=rank)


def numbers(rows: int, count: int = 3, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, HIDDEN, generator=generator).to(torch.bfloat16) for _ in range(count)]


def prompt(rid: str, length: int, first: int = 0) -> Rows:
    return Rows(rid, torch.arange(100 + first, 100 + first + length), first)


def write(folder: Path, requests: Sequence[Rows], *, seed: int = 0, **options: Any) -> list[torch.Tensor]:
    """A forward of the target; its three slots and its last state."""
    states = numbers(sum(len(request.token_ids) for request in requests), 4, seed)
    write_sglang_forward(folder, requests, states[:3], states[3], **options)
    return states


def whole(sequence: StateSequence) -> list[torch.Tensor]:
    rows = [*sequence.slots, *([] if sequence.last_state is None else [sequence.last_state])]
    return [state.read(0, state.tokens) for state in rows]


def same(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    return len(found) == len(expected) and all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


# What is delivered --------------------------------------------------------------------------------------------------


def test_the_requests_of_a_batch(tmp_path: Path) -> None:
    requests = [prompt("a", 4), prompt("b", 1), prompt("c", 6)]
    written = write(tmp_path, requests)
    states = live(tmp_path)
    layout = states.layout
    assert (layout.format, layout.slots, layout.hidden_size, layout.dtype) == ("sglang-dumper", 3, 8, "bfloat16")
    assert (layout.last_state, layout.last_state_boundary) == (LastStateRule.STORED, POST_NORM)
    assert list(states.names) == ["step=0___rid=a", "step=0___rid=b", "step=0___rid=c"]
    assert [states.count_tokens(name) for name in states.names] == [4, 1, 6]
    for name, request, (first, stop) in zip(states.names, requests, [(0, 4), (4, 5), (5, 11)], strict=True):
        sequence = opened(states, name)
        assert sequence.token_ids is not None
        assert torch.equal(sequence.token_ids, request.token_ids)
        assert same(whole(sequence), [state[first:stop] for state in written])


def test_the_chunks_of_a_prompt(tmp_path: Path) -> None:
    """And blocks of rows that begin in one of them and end in another."""
    parts = [
        write(tmp_path, [prompt("long", 4)], step=0),
        write(tmp_path, [prompt("long", 4, 4), prompt("other", 3)], step=2, seed=1),
        write(tmp_path, [prompt("long", 2, 8)], step=3, seed=2),
    ]
    states = live(tmp_path)
    assert list(states.names) == ["step=0___rid=long", "step=2___rid=other"]
    sequence = opened(states, states.names[0])
    assert sequence.token_ids is not None
    assert sequence.token_ids.tolist() == list(range(100, 110))
    expected = torch.cat([parts[0][1], parts[1][1][:4], parts[2][1]])
    rows = sequence.slots[1]
    for start, stop in [(0, 10), (3, 5), (2, 9), (4, 8), (8, 10), (4, 4), (0, 0), (10, 10)]:
        block = rows.read(start, stop)
        assert block.dtype == torch.bfloat16
        assert torch.equal(block, expected[start:stop])
    with pytest.raises(IndexError, match="of 10"):
        rows.read(9, 11)


def test_packed_slots(tmp_path: Path) -> None:
    """DeepSeek gives its logits processor one tensor [T, K*H]."""
    states = numbers(5, 4)
    write_sglang_forward(tmp_path, [prompt("a", 5)], [torch.cat(states[:3], dim=1)], states[3])
    sequence = opened(live(tmp_path), "step=0___rid=a")
    assert same(whole(sequence), states)


def test_no_last_state(tmp_path: Path) -> None:
    written = write(tmp_path, [prompt("a", 5)], without=["inputs.1"])
    states = live(tmp_path)
    assert states.layout.last_state is LastStateRule.ABSENT
    assert same(whole(opened(states, states.names[0])), written[:3])


def test_a_module_below_another(tmp_path: Path) -> None:
    """Kimi's target is a ``language_model`` of another module."""
    write(tmp_path, [prompt("a", 5)])
    for path in list(tmp_path.iterdir()):
        content = torch.load(path, weights_only=True)
        path.unlink()
        name = content["meta"]["name"].replace("non_intrusive__", "non_intrusive__language_model.")
        tags = {key: content["meta"][key] for key in ("layer_id",) if key in content["meta"]}
        write_dumped(tmp_path, name, content["value"], index=content["meta"]["dump_index"], **tags)
    assert list(live(tmp_path).names) == ["step=0___rid=a"]


def test_ranks_are_read_one_by_one(tmp_path: Path) -> None:
    """Under attention data parallelism each has requests of its own."""
    written = [write(tmp_path, [prompt(f"of-{rank}", 3)], rank=rank, seed=rank) for rank in (0, 1)]
    for rank, chosen in ((None, 0), (0, 0), (1, 1)):
        states = live(tmp_path, rank)
        assert list(states.names) == [f"step=0___rid=of-{chosen}"]
        facts = states.layout.facts
        assert (facts["rank"], facts["ranks_recorded"], facts["world_size"], facts["tp_size"]) == (chosen, [0, 1], 2, 2)
        assert same(whole(opened(states, states.names[0])), written[chosen])
    with pytest.raises(InputError, match=r"no auxiliary states of rank 2; expected one of \[0, 1\]"):
        live(tmp_path, 2)


def test_two_recordings_below_one_folder(tmp_path: Path) -> None:
    for name in ("dump_a", "dump_b"):
        write(tmp_path / name, [prompt("a", 3)])
    write(tmp_path / "dump_b", [prompt("a", 2, 3)], step=1)
    states = live(tmp_path)
    assert {name: states.count_tokens(name) for name in states.names} == {
        "dump_a/step=0___rid=a": 3,
        "dump_b/step=0___rid=a": 5,
    }


def test_an_id_that_comes_again_is_another_sequence(tmp_path: Path) -> None:
    for step in (0, 1):
        write(tmp_path, [prompt("same", 3)], step=step)
    write(tmp_path, [prompt("x" * 200, 2), prompt("x" * 201, 2)], step=2)
    states = live(tmp_path)
    assert len(set(states.names)) == 4
    assert all(len(name) < 100 for name in states.names)


# What is told and left out ------------------------------------------------------------------------------------------


def test_the_drafts_forwards_are_left_out(tmp_path: Path) -> None:
    """Same rows, same positions, same requests: only the one state tells them."""
    write(tmp_path, [prompt("a", 4)])
    state = numbers(4, 1)[0]
    write_sglang_forward(tmp_path, [Rows("a", torch.arange(101, 105))], [state], state, step=1)
    states = live(tmp_path)
    assert list(states.names) == ["step=0___rid=a"]
    assert states.unreadable == ()
    assert states.layout.facts["left_out"] == {"forwards with one state as wide as the hidden state (the draft's)": 1}


def test_one_state_alone_could_be_the_drafts(tmp_path: Path) -> None:
    state = numbers(4, 1)[0]
    write_sglang_forward(tmp_path, [prompt("a", 4)], [state], state)
    with pytest.raises(InputError, match=r"no prompt's rows among them.*one state as wide as the hidden state"):
        live(tmp_path)


def test_draft_tokens_under_verification(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4), prompt("b", 6)])
    write(tmp_path, [prompt("a", 3, 4), prompt("b", 3, 6)], step=1, verifying=True)
    states = live(tmp_path)
    assert [states.count_tokens(name) for name in states.names] == [4, 6]
    assert states.layout.facts["left_out"] == {"forwards that verify draft tokens": 1}


def test_decoded_tokens(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4), prompt("b", 6)])
    write(tmp_path, [prompt("a", 1, 4), prompt("b", 1, 6)], step=1)
    states = live(tmp_path)
    assert [states.count_tokens(name) for name in states.names] == [4, 6]
    assert states.layout.facts["left_out"] == {"rows of decoded tokens": 2}


def test_a_cached_beginning(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4), prompt("b", 3, 9)])
    states = live(tmp_path)
    assert list(states.names) == ["step=0___rid=a"]
    assert (
        "3 rows from position 9 on: the tokens before them came from the prefix cache"
        in reasons(states)["step=0___rid=b"]
    )
    assert "--disable-radix-cache" in reasons(states)["step=0___rid=b"]


def test_a_chunk_that_is_missing(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4)])
    write(tmp_path, [prompt("a", 4, 8)], step=2)
    states = live(tmp_path)
    assert states.count_tokens("step=0___rid=a") == 4
    assert "where step=0___rid=a has 4: some are missing" in reasons(states)["step=2___rid=a"]


def test_a_chunk_or_draft_tokens(tmp_path: Path) -> None:
    """An engine that counts draft tokens in seq_lens would look so: the rows of logits decide."""
    write(tmp_path, [prompt("a", 4)])
    write(tmp_path, [prompt("a", 4, 4)], step=1, without=["next_token_logits"])
    states = live(tmp_path)
    assert states.count_tokens("step=0___rid=a") == 4
    assert "next_token_logits would tell" in reasons(states)["step=1___rid=a"]
    for path in tmp_path.glob("step=1___*"):
        path.unlink()
    write(tmp_path, [prompt("a", 4, 4)], step=1)
    (logits,) = tmp_path.glob("step=1___*next_token_logits*")
    logits.unlink()
    write_dumped(tmp_path, "non_intrusive__logits_processor.output.next_token_logits", torch.zeros(4, 5), step=1)
    assert live(tmp_path).count_tokens("step=0___rid=a") == 4


def test_without_request_ids(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4), prompt("b", 3)], without=["rids"])
    write(tmp_path, [prompt("a", 2, 4)], step=1, without=["rids"])
    states = live(tmp_path)
    assert list(states.names) == ["step=0___request=0", "step=0___request=1"]
    assert "no rids" in reasons(states)["step=1___request=0"]


@pytest.mark.parametrize("name", ["input_ids", "positions", "seq_lens"])
def test_a_forward_without_a_vector(tmp_path: Path, name: str) -> None:
    write(tmp_path, [prompt("a", 4)])
    write(tmp_path, [prompt("b", 4)], step=1, without=[f"={name}", name])
    assert f"no {name} of this forward" in reasons(live(tmp_path))["step=1"]


def test_a_forward_of_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [prompt("a", 4)])
    write(tmp_path, [prompt("b", 5)], step=1)
    monkeypatch.setattr(sglang_forward, "MAX_ROWS", 4)
    assert "has 5 rows; at most 4 are read" in reasons(live(tmp_path))["step=1"]


def test_a_slot_is_missing(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4)])
    write(tmp_path, [prompt("b", 4)], step=1, without=["inputs.4.1"])
    assert "numbered [0, 2]: some of them are missing" in reasons(live(tmp_path))["step=1"]
    write(tmp_path, [prompt("c", 4)], step=2, without=["inputs.4.2"])
    assert "slots 2, the forwards before have 3" in reasons(live(tmp_path))["step=2"]


def test_padded_rows(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4)])
    write(tmp_path, [prompt("b", 4)], step=1)
    for path in tmp_path.glob("step=1___*seq_lens*"):
        path.unlink()
    write_dumped(tmp_path, "seq_lens", torch.tensor([3]), step=1)
    assert "which row is whose token isn't known" in reasons(live(tmp_path))["step=1"]


def test_a_folder_that_was_written_twice(tmp_path: Path) -> None:
    """After POST /dumper/reset the counters begin again."""
    write(tmp_path, [prompt("a", 4)])
    write(tmp_path, [prompt("b", 4)], step=1)
    write_dumped(tmp_path, "non_intrusive__logits_processor.inputs.4.1", torch.zeros(4, HIDDEN), step=1, index=77)
    assert "2 files of one forward: the dumper was reset" in reasons(live(tmp_path))["step=1"]
    write(tmp_path, [prompt("c", 4)], step=2)
    write_dumped(tmp_path, "input_ids", torch.arange(4), step=2, index=77)
    assert "recorded 2 times and differs" in reasons(live(tmp_path))["step=2"]
    write(tmp_path, [prompt("d", 4)], step=3, without=["logits_processor.inputs.0"])
    write_dumped(tmp_path, "non_intrusive__logits_processor.inputs.0", torch.arange(4), step=3, index=77)
    assert "other token ids: files of two recordings" in reasons(live(tmp_path))["step=3"]


def test_a_vector_that_was_recorded_twice_alike(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4)])
    write_dumped(tmp_path, "positions", torch.arange(4), index=77)
    assert list(live(tmp_path).names) == ["step=0___rid=a"]


def test_a_renamed_file(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4)])
    write(tmp_path, [prompt("b", 4)], step=1)
    (path,) = tmp_path.glob("step=1___*name=input_ids*")
    path.rename(path.with_name(path.name.replace("step=1", "step=2")))
    (other,) = tmp_path.glob("step=1___*name=rids*")
    other.rename(other.with_name(other.name.replace("name=rids", "name=input_ids")))
    assert "was renamed: it says that it is (1, 0, 'rids')" in reasons(live(tmp_path))["step=1"]


def test_other_files_beside(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4)])
    torch.save({"x": torch.zeros(3)}, tmp_path / "data_0.pt")
    states = live(tmp_path)
    assert list(states.names) == ["step=0___rid=a"]
    assert "not one of the dumper's files" in reasons(states)["data_0.pt"]


def test_a_dump_of_core_fields_only(tmp_path: Path) -> None:
    write_dumped(tmp_path, "input_ids", torch.arange(4))
    with pytest.raises(InputError, match="DUMPER_NON_INTRUSIVE_MODE=all"):
        live(tmp_path)


def test_a_single_file_asks_for_the_others(tmp_path: Path) -> None:
    (path,) = write_sglang_dump(tmp_path, torch.zeros(12, HIDDEN)).iterdir()
    with pytest.raises(InputError, match=r"one tensor of SGLang's dumper \(\[12, 8\] float32\).*pass the folder"):
        live(path)


def test_files_that_go_away_while_they_are_read(tmp_path: Path) -> None:
    write(tmp_path, [prompt("a", 4)])
    states = live(tmp_path)
    for path in tmp_path.glob("*inputs.4.2*"):
        path.unlink()
    found = states.open(states.names[0])
    assert isinstance(found, Unreadable)
    assert "no such file" in found.reason
    unknown = states.open("step=9___rid=z")
    assert isinstance(unknown, Unreadable)


@pytest.mark.parametrize(
    "base",
    [
        "data_0.pt",
        "step=0___rank=0___dump_index=1.pt",
        "step=-1___rank=0___dump_index=1___name=x.pt",
        "step=0___rank=0___dump_index=1___name=x.safetensors",
        "step=0___rank=0___dump_index=1___name=x___step=1.pt",
        "step=0___rank=0___dump_index=1___name=x___y.pt",
        f"step={'9' * 30}___rank=0___dump_index=1___name=x.pt",
        "step=²___rank=0___dump_index=1___name=x.pt",
    ],
)
def test_names_that_are_not_the_dumpers(base: str) -> None:
    assert parse_name(base) is None


@pytest.mark.parametrize(
    "rids", [["a", 3], "ab", None, [["a"], ["b"]], ["a"], torch.zeros(2), {"a": 1, "b": 2}, list(range(100_000))]
)
def test_request_ids_that_are_none(tmp_path: Path, rids: object) -> None:
    write(tmp_path, [prompt("a", 4)])
    write(tmp_path, [prompt("b", 4), prompt("c", 4)], step=1, without=["rids"])
    write_dumped(tmp_path, "rids", rids, step=1)
    assert "rids isn't one name a request" in reasons(live(tmp_path))["step=1"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_is_told(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever is written over any of the files: sequences of the right tokens, or reasons."""
    folder = tmp_path_factory.mktemp("dump")
    write(folder, [prompt("a", 4), prompt("b", 3)])
    write(folder, [prompt("b", 3, 3)], step=1)
    paths = sorted(folder.iterdir())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths))
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.sampled_from([1, 4, 8]))] = data.draw(st.binary(min_size=1, max_size=8))
        path.write_bytes(content)
    try:
        states = live(folder)
    except InputError:
        return
    for name in states.names:
        sequence = states.open(name)
        if isinstance(sequence, StateSequence):
            assert sequence.token_ids is not None
            assert len(sequence.token_ids) == sequence.rows
            whole(sequence)


# The genuine recordings ---------------------------------------------------------------------------------------------

PROMPTS = {
    "beside-1": [5, 9, 200, 31, 77, 12, 140, 66, 3],
    "beside-2": list(range(10, 130, 10)),
    "pair-1": [60, 50, 40, 30, 20, 10],
    "pair-2": [140, 12, 77, 31, 200, 9, 5],
    "chunked": [7 * i % 250 for i in range(1, 31)],
}


@pytest.fixture(params=["tp2", "plain"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(RECORDED / f"sglang-dump-{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def by_request(states: HiddenStates) -> dict[str, StateSequence]:
    return {name.rpartition("rid=")[2]: opened(states, name) for name in states.names}


def test_the_genuine_recordings(recorded: Path) -> None:
    states = live(recorded)
    assert (states.layout.slots, states.layout.hidden_size, states.layout.dtype) == (3, 64, "bfloat16")
    found = by_request(states)
    assert {rid: (ids := s.token_ids) is not None and ids.tolist() for rid, s in found.items()} == PROMPTS
    assert all(
        state.tokens == s.rows for s in found.values() for state in (*s.slots, s.last_state) if state is not None
    )
    ((name, reason),) = reasons(states).items()
    assert name.endswith("rid=cached")
    assert "came from the prefix cache" in reason


@pytest.mark.parametrize("recorded", ["tp2"], indirect=True)
def test_the_genuine_ranks_agree(recorded: Path) -> None:
    zero, one = (by_request(live(recorded, rank)) for rank in (0, 1))
    assert zero.keys() == one.keys()
    assert all(same(whole(zero[rid]), whole(one[rid])) for rid in zero)
    left_out = live(recorded).layout.facts["left_out"]
    assert left_out.keys() == {
        "forwards that verify draft tokens",
        "forwards with one state as wide as the hidden state (the draft's)",
    }


@pytest.mark.parametrize("recorded", ["tp2"], indirect=True)
def test_genuine_rows_are_those_of_their_tokens(recorded: Path) -> None:
    """Id -1 made slot 0 the embedding, which is one row a token whatever stands before it."""
    rows: dict[int, torch.Tensor] = {}
    seen = 0
    for sequence in by_request(live(recorded)).values():
        assert sequence.token_ids is not None
        for token, row in zip(sequence.token_ids.tolist(), whole(sequence)[0], strict=True):
            assert torch.equal(rows.setdefault(token, row), row)
            seen += 1
    assert seen - len(rows) > 10  # so many were compared
    assert len({tuple(row.tolist()) for row in rows.values()}) == len(rows)


@pytest.mark.parametrize("recorded", ["plain"], indirect=True)
def test_decoding_of_the_genuine_recording(recorded: Path) -> None:
    assert live(recorded).layout.facts["left_out"].keys() == {"rows of decoded tokens"}


def test_inspect_tells_it(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["inspect", str(recorded), "--format", "json"])
    (told,) = json.loads(capsys.readouterr().out)["measurements"]["paths"]
    assert (told["kind"], told["format"], told["sequences"], told["tokens"]) == ("capture", "sglang-dumper", 5, 64)
    assert told["last_state"] == {"stored": "stored", "boundary": "post_norm"}
