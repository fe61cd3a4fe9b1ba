"""Sending, gathering and writing down: with a server whose workers' spools are real."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from recording_server import HIDDEN, SLOTS, RecordingServer, gone, states_of
from safetensors.torch import load_file

from eagle_parity.capture import live as live_module
from eagle_parity.capture.live import capture_from_parts, capture_live
from eagle_parity.capture.manifest_file import read_manifest
from eagle_parity.capture.prompts import SkippedSequence, TokenSequence
from eagle_parity.capture.sending import REQUESTS_NAME, THE_REST, read_sent
from eagle_parity.capture.servers.server import Counters
from eagle_parity.capture.writer import CaptureWriter
from eagle_parity.comparison.record import judge_recording, measure_recording
from eagle_parity.comparison.thresholds import Thresholds
from eagle_parity.errors import InputError
from eagle_parity.findings import Finding
from eagle_parity.inspection import inspect_path
from eagle_parity.readers import open_hidden_states
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SEQUENCES = [TokenSequence("a", (5, 6, 7, 8, 9, 10)), TokenSequence("b", (1, 2, 3)), TokenSequence("c", (4, 4, 4, 4))]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)
    monkeypatch.setattr(live_module, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(live_module, "_POLL_SECONDS", 0.01)


@pytest.fixture
def server(tmp_path: Path) -> RecordingServer:
    return RecordingServer(tmp_path / "spool")


def record(server: Any, output: Path, sequences: Sequence[Any] = SEQUENCES, **options: Any) -> Any:
    return capture_live(server, iter(sequences), output, **options)


def check_states(folder: Path, token_ids: Sequence[int], file: str, first: int = 0) -> None:
    tensors = load_file(folder / file)
    assert tensors["token_ids"].tolist() == list(token_ids[first:])
    for index, slot in enumerate(states_of(token_ids)):
        assert torch.equal(tensors[f"slot.{index}"], slot[first:])


def test_every_sequence_of_every_rank(server: RecordingServer, tmp_path: Path) -> None:
    names: list[str] = []
    capture = record(server, tmp_path / "live", on_sequence=names.append)
    manifest = read_manifest(tmp_path / "live")
    assert manifest == capture.manifest
    assert (manifest.complete, manifest.tokens, names) == (True, 13, ["a", "b", "c"])
    assert manifest.producer.engine == "sglang@0.5.23"
    assert manifest.slots == [1, 3, 5]
    assert (manifest.target.name, manifest.target.hidden_size) == ("target", HIDDEN)
    for sequence, written in zip(SEQUENCES, manifest.sequences, strict=True):
        assert (written.name, written.ranks, written.draft_input) == (sequence.name, ["tp0", "tp1"], "equal")
        check_states(tmp_path / "live", sequence.token_ids, written.file)
        check_states(tmp_path / "live" / "ranks" / "tp1", sequence.token_ids, written.file)
    assert manifest.live is not None
    assert [rank.name for rank in manifest.live.ranks] == ["tp0", "tp1"]
    assert manifest.live.layer_set == {"list": [1, 3, 5]}
    assert server.recordings == ["on", "off"]
    # What is in the capture is no longer in the spool.
    assert [path.name for path in server.spool.iterdir()] == ["token"]
    files = [path for path in (tmp_path / "live").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_each_request_has_a_number_and_a_salt_of_its_own(server: RecordingServer, tmp_path: Path) -> None:
    server.cache = True
    record(server, tmp_path / "live", [*SEQUENCES, TokenSequence("a again", SEQUENCES[0].token_ids)])
    assert len({identifier for identifier, _, _ in server.sent}) == len({salt for _, salt, _ in server.sent}) == 4
    assert read_manifest(tmp_path / "live").complete


def test_the_token_is_in_nothing_that_is_written(server: RecordingServer, tmp_path: Path) -> None:
    capture = record(server, tmp_path / "live")
    capture.sent.save(tmp_path / "live")
    for path in (tmp_path / "live").rglob("*"):
        assert path.is_dir() or server.token.encode() not in path.read_bytes()
    assert stat.S_IMODE((tmp_path / "live" / REQUESTS_NAME).stat().st_mode) == 0o600


def test_what_can_t_be_sent_is_told(server: RecordingServer, tmp_path: Path) -> None:
    odd = [SkippedSequence("s", "unreadable"), TokenSequence("empty", ()), TokenSequence("long", (1,) * 65)]
    capture = record(server, tmp_path / "live", [*odd, *SEQUENCES])
    reasons = dict(capture.sent.skipped)
    assert reasons["s"] == "unreadable"
    assert reasons["empty"] == "no tokens"
    assert "--max-tokens" in reasons["long"]
    assert capture.manifest.complete  # the server was never asked for them


def test_nothing_to_send(server: RecordingServer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing was captured, 1 sequences were left out; the first: s: unreadable"):
        record(server, tmp_path / "live", [SkippedSequence("s", "unreadable")])
    assert not (tmp_path / "live").exists()


def test_a_server_that_dies_leaves_what_was_whole(server: RecordingServer, tmp_path: Path) -> None:
    server.answers = lambda number, _: gone() if number >= 2 else None
    many = [*SEQUENCES, *(TokenSequence(f"{i}", (i + 1, 2)) for i in range(100))]
    capture = record(server, tmp_path / "live", many)
    manifest = read_manifest(tmp_path / "live")
    assert not manifest.complete
    assert [sequence.name for sequence in manifest.sequences] == ["a"]
    assert manifest.live is not None
    assert [(lost.name, lost.reason.split(";")[0].rpartition(": ")[2]) for lost in manifest.live.incomplete] == [
        ("b", "no answer"),
        ("c", "no answer"),
        (THE_REST, "not sent: the server doesn't answer any more".rpartition(": ")[2]),
    ]
    assert capture.sent.skipped == []
    assert len(server.sent) == 1


def test_a_refusal_of_one_is_no_reason_to_leave_the_others(server: RecordingServer, tmp_path: Path) -> None:
    def refuse(number: int, _: object) -> None:
        if number < 4:
            raise InputError(server.url, "/generate was answered with 400 (too long)")

    server.answers = refuse
    capture = record(server, tmp_path / "live")
    assert [sequence.name for sequence in capture.manifest.sequences] == ["c"]
    assert [name for name, _ in capture.sent.lost] == ["a", "b"]
    assert not capture.manifest.complete


def test_a_server_that_dies_at_once(server: RecordingServer, tmp_path: Path) -> None:
    server.answers = gone
    with pytest.raises(InputError, match="nothing was captured, 3 sequences were left out; the first: a:"):
        record(server, tmp_path / "live")
    assert server.recordings == ["on", "off"]


def test_an_interrupt_leaves_what_was_whole(server: RecordingServer, tmp_path: Path) -> None:
    def interrupt(number: int, _: object) -> None:
        if number >= 2:
            raise KeyboardInterrupt

    server.answers = interrupt
    capture = record(server, tmp_path / "live")
    assert capture.sent.lost == [(THE_REST, "not sent: interrupted")]
    assert not read_manifest(tmp_path / "live").complete
    assert server.recordings == ["on", "off"]
    server.answers = lambda *_: interrupt(2, None)
    with pytest.raises(KeyboardInterrupt):
        record(server, tmp_path / "other")


def test_a_server_that_can_t_be_reached_any_more_while_its_ranks_are_waited_for(
    server: RecordingServer, tmp_path: Path
) -> None:
    times: list[int] = []

    def once() -> None:
        times.append(1)
        if len(times) > 1:
            gone()

    server.fetched = once
    server.ranks = server.ranks[:1]  # the other one never writes
    capture = record(server, tmp_path / "live")
    assert [sequence.ranks for sequence in capture.manifest.sequences] == [["tp0"]] * 3


def test_parts_out_of_reach_are_finished_from_a_copy(server: RecordingServer, tmp_path: Path) -> None:
    server.fetched = gone
    with pytest.raises(InputError):
        record(server, tmp_path / "live")
    sent = read_sent(tmp_path / "live")
    copy = (server.spool / sent.session).rename(tmp_path / "a copy")
    capture = capture_from_parts(copy, tmp_path / "live")
    assert (capture.manifest.complete, capture.manifest.tokens) == (True, 13)
    assert not (tmp_path / "live" / REQUESTS_NAME).exists()


def test_an_interrupt_while_writing_leaves_what_finishes_it(
    server: RecordingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C behind the first sequence: the parts lie in the spool, and what was sent in the output."""
    write, written = CaptureWriter.write, list[str]()

    def interrupted(writer: CaptureWriter, name: str, *arguments: Any, **options: Any) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(name)
        write(writer, name, *arguments, **options)

    monkeypatch.setattr(CaptureWriter, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        record(server, tmp_path / "live")
    monkeypatch.setattr(CaptureWriter, "write", write)
    assert not read_manifest(tmp_path / "live").complete
    sent = read_sent(tmp_path / "live")
    capture = capture_from_parts(server.spool / sent.session, tmp_path / "live")
    assert (capture.manifest.complete, capture.manifest.tokens) == (True, 13)
    assert not (tmp_path / "live" / REQUESTS_NAME).exists()


def test_parts_of_another_session_are_refused(server: RecordingServer, tmp_path: Path) -> None:
    for name in ("one", "two"):
        server.fetched = gone
        with pytest.raises(InputError):
            record(server, tmp_path / name)
    other = server.spool / read_sent(tmp_path / "two").session
    with pytest.raises(InputError, match="parts of another capture"):
        capture_from_parts(other, tmp_path / "one")
    with pytest.raises(InputError, match="no parts of a capture"):
        capture_from_parts(tmp_path, tmp_path / "one")
    assert capture_from_parts(server.spool, tmp_path / "two").manifest.complete


@pytest.mark.parametrize(
    "changed",
    [
        {"session": "../../../etc"},
        {"session": ""},
        {"requests": [{"number": "x"}]},
        {"kind": "other"},
        {"requests": 7},
        {"requests": [{"number": -1, "name": "a", "token_ids": [5]}]},
        {"requests": [{"number": 0, "name": "a", "token_ids": []}]},
        {"requests": [{"number": 0, "name": "a", "token_ids": [2**63]}]},
        {"requests": [{"number": 0, "name": "a", "token_ids": [5], "loss_mask": [1, 1]}]},
    ],
)
def test_requests_that_are_none(server: RecordingServer, tmp_path: Path, changed: dict[str, Any]) -> None:
    server.fetched = gone
    with pytest.raises(InputError):
        record(server, tmp_path / "live")
    path = tmp_path / "live" / REQUESTS_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(InputError, match="what a capture left"):
        capture_from_parts(server.spool, tmp_path / "live")


def test_parts_behind_links_in_a_circle(server: RecordingServer, tmp_path: Path) -> None:
    server.fetched = gone
    with pytest.raises(InputError):
        record(server, tmp_path / "live")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for parts in (tmp_path / "loop", tmp_path / "loop" / "x", tmp_path / ("a" * 5000)):
        with pytest.raises(InputError, match="what the capture hook wrote"):
            capture_from_parts(parts, tmp_path / "live")


@pytest.mark.parametrize("text", ["\ud800", "x" * 8000, "\x1b[31m\n"])
def test_what_a_server_calls_things_can_be_written_down(server: RecordingServer, tmp_path: Path, text: str) -> None:
    target = server._facts_of("tp0")["target"]
    server.version = text[:200]
    server.architectures = lambda: [text] * 1000  # type: ignore[method-assign]  # what this server answers
    server.facts = {
        "tap": text,
        "server": {text: text, "model_path": text},
        "variants": {text: text},
        "parallel": {text: 1},
        "target": {**target, "dtype": text, "layer_set": {text: [1]}, "config": {"_name_or_path": text}},
        "draft": {"model_class": text, "config": {text: [text]}},
    }
    manifest = record(server, tmp_path / "live", [replace(SEQUENCES[0], name=text)]).manifest
    assert read_manifest(tmp_path / "live") == manifest
    assert len(manifest.target.architectures) == 16


@pytest.mark.parametrize("architectures", [5, True, "Llama", {"a": 1}, [None, 7], None])
def test_a_config_of_any_kind(server: RecordingServer, tmp_path: Path, architectures: object) -> None:
    server.architectures = list  # type: ignore[method-assign]  # a server that says none
    target = server._facts_of("tp0")["target"]
    server.facts = {"target": {**target, "config": {"architectures": architectures}}}
    assert record(server, tmp_path / "live").manifest.complete


def test_conditions_that_are_fulfilled(server: RecordingServer, tmp_path: Path) -> None:
    server.cache = True
    server.chunk = 4
    capture = record(server, tmp_path / "live", conditions=("chunk", "prefix"))
    live = capture.manifest.live
    assert live.conditions == ["chunk", "prefix"]
    assert live.skipped_conditions == {}
    chunks = read_manifest(tmp_path / "live" / "conditions" / "chunk")
    assert [sequence.name for sequence in chunks.sequences] == ["a"]  # the only one that is longer than a chunk
    prefix = read_manifest(tmp_path / "live" / "conditions" / "prefix")
    assert [sequence.first_position for sequence in prefix.sequences] == [3, 1, 2]
    for sequence, written in zip(SEQUENCES, prefix.sequences, strict=True):
        folder = tmp_path / "live" / "conditions" / "prefix"
        check_states(folder, sequence.token_ids, written.file, written.first_position)


def test_a_batch(server: RecordingServer, tmp_path: Path) -> None:
    alone = server.answers

    def count(number: int, tokens: Sequence[int]) -> None:
        if number >= 2 * len(SEQUENCES) and server.together == 1:
            server.wait_for(len(SEQUENCES))
        alone(number, tokens)

    server.answers = count
    capture = record(server, tmp_path / "live", conditions=("batch",))
    assert capture.manifest.live.conditions == ["batch"]
    batch = read_manifest(tmp_path / "live" / "conditions" / "batch")
    assert [sequence.name for sequence in batch.sequences] == ["a", "b", "c"]
    for sequence, written in zip(SEQUENCES, batch.sequences, strict=True):
        check_states(tmp_path / "live" / "conditions" / "batch", sequence.token_ids, written.file)


def test_conditions_that_are_not_come_about_are_refused_with_the_reason(
    server: RecordingServer, tmp_path: Path
) -> None:
    capture = record(server, tmp_path / "live", conditions=("batch", "chunk", "prefix"))
    assert capture.manifest.live.conditions == []
    reasons = capture.manifest.live.skipped_conditions
    assert "no two sequences" in reasons["batch"]
    assert "--chunked-prefill-size" in reasons["chunk"]
    assert "no prefix" in reasons["prefix"]
    assert capture.manifest.complete


class Sampling:
    """Tokens of a prompt: each rank the same, but for what is told."""

    def __init__(self, other: dict[str, dict[int, int]] | None = None) -> None:
        self.other = other or {}

    def __call__(self, rank: str, prompt: Sequence[int]) -> list[int]:
        chosen = [sum(prompt) % 50 + index for index in range(16)]
        for index, token in self.other.get(rank, {}).items():
            chosen[index] = token
        return chosen


@pytest.fixture
def generating(server: RecordingServer) -> RecordingServer:
    server.engine = "vllm"
    server.choices = Sampling()
    return server


def test_what_was_generated(generating: RecordingServer, tmp_path: Path) -> None:
    capture = record(generating, tmp_path / "live", conditions=("generate",), new_tokens=6)
    live = capture.manifest.live
    assert (live.conditions, live.skipped_conditions, live.settings["temperature"]) == (["generate"], {}, 0.0)
    folder = tmp_path / "live" / "conditions" / "generate"
    generated = read_manifest(folder)
    for sequence, written in zip(SEQUENCES, generated.sequences, strict=True):
        at = len(sequence.token_ids)
        assert (written.name, written.first_position, written.tokens) == (sequence.name, at, 5)
        assert written.ranks == ["tp0", "tp1"]
        chosen = Sampling()("tp0", sequence.token_ids)[:6]
        check_states(folder, [*sequence.token_ids, *chosen[:-1]], written.file, at)
        for place in (folder, folder / "ranks" / "tp1"):
            assert load_file(place / written.file)["sampled_ids"].tolist() == chosen[1:]
    # The prompts' own files are what they are without it, and nothing is sent for it.
    assert "sampled_ids" not in load_file(tmp_path / "live" / "sequence_000000.safetensors")
    assert len(generating.sent) == len(SEQUENCES)
    assert capture.manifest.live.incomplete == []


def test_each_rank_keeps_its_own_tokens(generating: RecordingServer, tmp_path: Path) -> None:
    generating.choices = Sampling({"tp1": {3: 99, 4: 98}})
    generating.accepted = {"tp1": 4}
    record(generating, tmp_path / "live", conditions=("generate",), new_tokens=6, temperature=0.5)
    folder = tmp_path / "live" / "conditions" / "generate"
    (first, *_) = read_manifest(folder).sequences
    own = load_file(folder / "ranks" / "tp1" / first.file)
    assert own["token_ids"].tolist() == [45, 46, 47, 99]
    assert own["sampled_ids"].tolist() == [46, 47, 99, 98]
    assert load_file(folder / first.file)["token_ids"].tolist() == [45, 46, 47, 48, 49]
    assert generating.temperatures == [0.5] * 3
    assert read_manifest(tmp_path / "live").live.settings["temperature"] == 0.5  # type: ignore[union-attr]  # it has one


def test_the_first_rank_is_the_one_that_answered(generating: RecordingServer, tmp_path: Path) -> None:
    choices = Sampling({"tp1": {3: 99}})
    # The answer is the second rank's.
    generating.choices = lambda rank, prompt: choices({"tp0": "tp1", "tp1": "tp0"}[rank], prompt)
    real = generating.generate

    def answer(token_ids: Any, **more: Any) -> Any:
        generation = real(token_ids, **more)
        return replace(generation, output_ids=tuple(choices("tp0", token_ids)[:6]))

    generating.generate = answer  # type: ignore[method-assign]  # see above
    record(generating, tmp_path / "live", conditions=("generate",), new_tokens=6)
    ranks = [sequence.ranks for sequence in read_manifest(tmp_path / "live" / "conditions" / "generate").sequences]
    assert ranks == [["tp1", "tp0"]] * 3


def test_an_answer_that_ends_at_once_is_told(generating: RecordingServer, tmp_path: Path) -> None:
    real = generating.generate

    def answer(token_ids: Any, **more: Any) -> Any:
        generation = real(token_ids, **more)
        ended = tuple(token_ids) == SEQUENCES[1].token_ids
        return replace(generation, output_ids=(2,)) if ended else generation

    generating.generate = answer  # type: ignore[method-assign]  # see above
    record(generating, tmp_path / "live", conditions=("generate",), new_tokens=6)
    generated = read_manifest(tmp_path / "live" / "conditions" / "generate")
    assert [sequence.name for sequence in generated.sequences] == [SEQUENCES[0].name, SEQUENCES[2].name]
    assert generated.live is not None
    (missing,) = generated.live.incomplete
    assert missing.name == SEQUENCES[1].name
    assert missing.reason == "its answer has one token, and the last one is never computed"
    # The prompts were recorded whole: that an answer is short is no fault of the capture.
    whole = read_manifest(tmp_path / "live")
    assert whole.live is not None
    assert (whole.live.incomplete, whole.live.conditions) == ([], ["generate"])
    measured = measure_recording(
        open_hidden_states(tmp_path / "live", role="live"), None, bad_row_distance=Thresholds().bad_row_distance
    )
    assert measured is not None
    generation = measured[1].generation
    assert generation is not None
    assert (generation.sequences, generation.missing_count) == (2, 1)
    assert generation.missing == [(missing.name, missing.reason)]


def test_generated_rows_that_can_t_be_had_are_refused_with_the_reason(server: RecordingServer, tmp_path: Path) -> None:
    def reason(name: str, **options: Any) -> str:
        capture = record(server, tmp_path / name, conditions=("generate",), **options)
        assert capture.manifest.complete
        assert capture.manifest.live.conditions == []
        return str(capture.manifest.live.skipped_conditions["generate"])

    assert "the hook in sglang records prompts' rows alone" in reason("sglang")
    server.engine = "vllm"
    assert "no answer has two generated tokens" in reason("no ids")
    server.choices = Sampling()
    assert "no answer has two generated tokens" in reason("one", new_tokens=1)
    server.accepted = {"tp0": 0, "tp1": 0}
    assert reason("no rows") == "no rank recorded rows of generated tokens"
    server.accepted = {}
    real = server.generate
    server.generate = lambda ids, **more: replace(real(ids, **more), output_ids=(1, 2, 3))  # type: ignore[method-assign]
    assert "no rank generated the tokens that the server answered with" in reason("others")


def test_a_rank_that_computed_other_ids_than_were_sent_is_no_missing_one(
    server: RecordingServer, tmp_path: Path
) -> None:
    real = server._forward

    def other(spool: Any, spans: Any) -> None:
        if spool.rank == "tp0":
            spans = [(name, [*tokens[:-1], 0], start, stop) for name, tokens, start, stop in spans]
        real(spool, spans)

    server._forward = other  # type: ignore[method-assign]  # a broken rank
    capture = record(server, tmp_path / "live")
    assert [sequence.ranks for sequence in capture.manifest.sequences] == [["tp1", "tp0"]] * 3
    assert load_file(tmp_path / "live" / "ranks" / "tp0" / "sequence_000001.safetensors")["token_ids"].tolist() == [
        1,
        2,
        0,
    ]
    outcomes = judge_recording(open_hidden_states(tmp_path / "live", role="live"))
    assert [each.name for each in outcomes if isinstance(each, Finding)] == ["rank-divergence"]


def test_rows_from_a_cache_say_which_flag_helps(server: RecordingServer, tmp_path: Path) -> None:
    server.cache = True
    server._computed = dict.fromkeys((f"{n}" for n in range(3)), (5, 6))
    real = server.generate

    def one_salt(token_ids: Any, *, request_id: str, salt: str, new_tokens: int, temperature: float = 0) -> Any:
        del salt, temperature
        return real(token_ids, request_id=request_id, salt="0", new_tokens=new_tokens)

    server.generate = one_salt  # type: ignore[method-assign]  # an engine without salts
    capture = record(server, tmp_path / "live")
    (lost,) = capture.manifest.live.incomplete
    assert lost.name == "a"
    assert "no rows of positions 0 to 1" in lost.reason
    assert "--disable-radix-cache" in lost.reason


def test_the_hooks_limit_and_failures_are_told(server: RecordingServer, tmp_path: Path) -> None:
    for spool in server.ranks:
        spool.max_tokens = 9
    capture = record(server, tmp_path / "live")
    (lost,) = capture.manifest.live.incomplete
    assert lost.name == "c"
    assert [rank.limit for rank in capture.manifest.live.ranks] == ["max_tokens=9"] * 2


LIMIT = "not sent: the hook stopped at its limit (max_tokens={})"


def test_nothing_is_sent_any_more_once_a_limit_is_reached(server: RecordingServer, tmp_path: Path) -> None:
    for spool in server.ranks:
        spool.max_tokens = 8
    many = [*SEQUENCES, TokenSequence("d", (2, 2)), SkippedSequence("s", "unreadable"), TokenSequence("e", (2, 2))]
    capture = record(server, tmp_path / "live", many, conditions=("batch", "chunk", "prefix"))
    # The second one doesn't fit, which is seen before the third is sent.
    assert [tokens for _, _, tokens in server.sent] == [SEQUENCES[0].token_ids, SEQUENCES[1].token_ids]
    live = capture.manifest.live
    assert not capture.manifest.complete
    assert [sequence.name for sequence in capture.manifest.sequences] == ["a"]
    (rest, beyond) = live.incomplete
    assert (rest.name, rest.reason) == (THE_REST, LIMIT.format(8))
    assert beyond.name == "b"
    assert "the hook stopped at its limit (max_tokens=8)" in beyond.reason
    for reason in live.skipped_conditions.values():
        assert reason == f"no request of it was answered ({LIMIT.format(8)})"
    assert sorted(live.skipped_conditions) == ["batch", "chunk", "prefix"]


def test_a_limit_that_a_condition_reaches_is_told_where_it_is(server: RecordingServer, tmp_path: Path) -> None:
    server.cache = True
    for spool in server.ranks:
        # All alone, the first one behind its prefix, and the prefix of the second, but not that one itself.
        spool.max_tokens = 13 + 6 + 1
    capture = record(server, tmp_path / "live", conditions=("prefix",))
    assert len(server.sent) == len(SEQUENCES) + 2 * 2
    assert [sequence.name for sequence in capture.manifest.sequences] == ["a", "b", "c"]
    assert capture.manifest.live.conditions == ["prefix"]
    assert [rank.limit for rank in capture.manifest.live.ranks] == ["max_tokens=20"] * 2
    prefix = read_manifest(tmp_path / "live" / "conditions" / "prefix")
    assert prefix.live is not None
    assert not prefix.complete
    assert [sequence.name for sequence in prefix.sequences] == ["a"]
    assert [lost.name for lost in prefix.live.incomplete] == [THE_REST, "b"]
    assert all("the hook stopped at its limit (max_tokens=20)" in lost.reason for lost in prefix.live.incomplete)


def test_a_full_disk_is_seen_where_no_record_could_be_written(
    server: RecordingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers = lambda *_: monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 2**62)
    with pytest.raises(InputError, match=r"(?s)not one sequence was recorded whole.*free where the spool lies"):
        record(server, tmp_path / "live")
    assert len(server.sent) == 1


def test_where_a_limit_can_t_be_seen_all_is_sent(server: RecordingServer, tmp_path: Path) -> None:
    for spool in server.ranks:
        spool.max_tokens = 6
    server.limit = lambda session: None  # type: ignore[method-assign]  # noqa: ARG005  a spool on another host
    capture = record(server, tmp_path / "live")
    assert len(server.sent) == len(SEQUENCES)
    assert [lost.name for lost in capture.manifest.live.incomplete] == ["b", "c"]


def test_nothing_recorded_names_the_hooks_failure(server: RecordingServer, tmp_path: Path) -> None:
    def fail(number: int, _: object) -> None:
        mark = server.ranks[0].marks([server_id(server, number)])
        server.ranks[0].fail(mark, "this release isn't known")

    session: list[str] = []

    def server_id(server: RecordingServer, number: int) -> str:
        from eagle_parity.capture.spool.request_ids import request_id

        return request_id(server.token, session[0], number)

    server.kinds = ()
    real = server.generate

    def generate(token_ids: Any, *, request_id: str, **more: Any) -> Any:
        session[:] = [request_id.split(".")[1]]
        answer = real(token_ids, request_id=request_id, **more)
        fail(0, None)
        return answer

    server.generate = generate  # type: ignore[method-assign]  # the hook fails in every forward
    with pytest.raises(InputError, match=r"not one sequence was recorded whole.*the hook: this release isn't known"):
        record(server, tmp_path / "live")


def test_no_rank_recorded_anything(server: RecordingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.ranks = []
    server.fetch = lambda *_: tmp_path  # type: ignore[method-assign]  # an empty session
    with pytest.raises(InputError, match=r"no rank recorded anything; .*server's log"):
        record(server, tmp_path / "live")
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 2**62)
    with pytest.raises(InputError, match="no rank recorded anything;"):  # the disk of a copy says nothing
        record(server, tmp_path / "live")
    empty = server.spool / "empty"
    empty.mkdir()
    server.fetch = lambda *_: empty  # type: ignore[method-assign]
    with pytest.raises(InputError, match="GiB free where the spool lies"):
        record(server, tmp_path / "live")


def test_other_token_ids_than_were_sent(server: RecordingServer, tmp_path: Path) -> None:
    real = server.generate
    server.generate = lambda ids, **more: real([*ids[:-1], 0], **more)  # type: ignore[method-assign]  # a broken server
    with pytest.raises(InputError, match="other token ids than were sent"):
        record(server, tmp_path / "live")


def test_a_server_that_says_nothing_of_itself_is_taken_to_have_a_draft(server: RecordingServer, tmp_path: Path) -> None:
    server.facts = {"server": {}, "draft": {}}
    server.kinds = ("aux",)
    capture = record(server, tmp_path / "live")
    assert {sequence.draft_input for sequence in capture.manifest.sequences} == {"absent"}


def test_the_engine_as_it_is_named_reads_the_layer_set(server: RecordingServer, tmp_path: Path) -> None:
    server.version = "0.0.7"
    assert record(server, tmp_path / "own").manifest.slots == [None] * SLOTS
    manifest = record(server, tmp_path / "named", engine="sglang@0.5.23").manifest
    assert (manifest.slots, manifest.producer.engine) == ([1, 3, 5], "sglang@0.5.23")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_which_of_a_releases_ways_was_read_is_told(server: RecordingServer, tmp_path: Path, engine: str) -> None:
    server.engine = engine
    server.facts = {"engine": {"name": engine}, "variants": {"token_ids": "argument"}}
    record(server, tmp_path / "live")
    live = read_manifest(tmp_path / "live").live
    assert live is not None
    assert live.variants == {"token_ids": "argument"}
    assert inspect_path(str(tmp_path / "live")).description["facts"]["variants"] == live.variants


def test_the_kinds_of_forwards_are_told(server: RecordingServer, tmp_path: Path) -> None:
    server.engine = "vllm"
    server.choices = lambda _rank, ids: [ids[-1] + 1, 7, 8]
    record(server, tmp_path / "live", conditions=("generate",), new_tokens=3)
    assert [entry.modes for entry in read_manifest(tmp_path / "live").sequences] == [["EXTEND"]] * len(SEQUENCES)
    facts = inspect_path(str(tmp_path / "live")).description["facts"]
    assert facts["forward_modes"] == {"EXTEND": "3 sequence(s)"}
    generated = inspect_path(str(tmp_path / "live" / "conditions" / "generate")).description["facts"]
    assert generated["forward_modes"] == {"DECODE": "3 sequence(s)"}


def test_that_prompts_were_computed_in_chunks_is_told(server: RecordingServer, tmp_path: Path) -> None:
    server.chunk = 4
    record(server, tmp_path / "live")
    expected = [-(-len(sequence.token_ids) // 4) for sequence in SEQUENCES]
    assert len(set(expected)) > 1
    assert [entry.forwards for entry in read_manifest(tmp_path / "live").sequences] == expected
    facts = inspect_path(str(tmp_path / "live")).description["facts"]
    assert facts["forwards_per_sequence"] == f"{min(expected)} to {max(expected)}"


@pytest.mark.parametrize("other", ["wide", "half", "many", "no last state"])
def test_a_sequence_whose_states_are_of_another_kind_is_told(
    server: RecordingServer, tmp_path: Path, other: str
) -> None:
    write = server.ranks[0].write

    def changed(kind: str, tensors: Any, marks: Any, spans: Any, *, mode: str) -> None:
        tensors = dict(tensors)
        if kind == "aux" and marks[0].number == 2:  # of the second sequence
            slots = {name: state for name, state in tensors.items() if name.startswith("slot.")}
            if other == "wide":
                tensors |= {name: torch.cat([state, state], dim=1) for name, state in slots.items()}
            elif other == "half":
                tensors |= {name: state.half() for name, state in (slots | {"last_state": slots["slot.0"]}).items()}
            elif other == "many":
                tensors["slot.3"] = slots["slot.0"]
            else:
                del tensors["last_state"]
        write(kind, tensors, marks, spans, mode=mode)

    server.ranks = server.ranks[:1]
    server.ranks[0].write = changed  # type: ignore[method-assign]  # what this rank records
    server.facts = {"parallel": {"tp_size": 1}}
    manifest = record(server, tmp_path / "live").manifest
    assert [sequence.name for sequence in manifest.sequences] == ["a", "c"]
    (lost,) = manifest.live.incomplete
    assert lost.name == "b"
    assert "of another kind than those of a" in lost.reason
    assert not manifest.complete


def test_a_loss_mask_comes_with_its_rows(server: RecordingServer, tmp_path: Path) -> None:
    server.cache = True
    sequence = TokenSequence("a", (5, 6, 7, 8), (0, 0, 1, 1))
    record(server, tmp_path / "live", [sequence], conditions=("prefix",))
    file = "sequence_000000.safetensors"
    assert load_file(tmp_path / "live" / file)["loss_mask"].tolist() == [0, 0, 1, 1]
    assert load_file(tmp_path / "live" / "conditions" / "prefix" / file)["loss_mask"].tolist() == [1, 1]


def test_an_input_that_one_rank_lacks_is_not_known(server: RecordingServer, tmp_path: Path) -> None:
    def lose() -> None:
        for part in server.spool.glob("*/tp1-*-draft.safetensors"):
            part.unlink()

    server.fetched = lose
    manifest = record(server, tmp_path / "live").manifest
    assert {sequence.draft_input for sequence in manifest.sequences} == {"absent"}


def test_an_input_of_the_head_that_differs_is_kept(server: RecordingServer, tmp_path: Path) -> None:
    server.kinds = ("aux",)
    capture = record(server, tmp_path / "absent")
    assert {sequence.draft_input for sequence in capture.manifest.sequences} == {"absent"}
    server.kinds = ("aux", "draft")
    rolled = torch.roll
    real = torch.cat

    def wrong(tensors: Any, dim: int = 0) -> torch.Tensor:
        whole = real(tensors, dim=dim)
        return rolled(whole, 1, 1) if dim == 1 and whole.shape[1] == SLOTS * HIDDEN and sending else whole

    sending = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recording_server.torch.cat", wrong)
        server.fetched = patch.undo
        capture = record(server, tmp_path / "differs")
    assert {sequence.draft_input for sequence in capture.manifest.sequences} == {"differs"}
    assert load_file(tmp_path / "differs" / "sequence_000000.safetensors")["draft_input"].shape == (6, SLOTS * HIDDEN)


def test_acceptance_of_each_answer_and_of_the_servers_counters(server: RecordingServer, tmp_path: Path) -> None:
    capture = record(server, tmp_path / "own", new_tokens=8)
    acceptance = capture.manifest.live.acceptance
    assert (acceptance.drafts, acceptance.draft_tokens, acceptance.accepted_tokens) == (12, 36, 12)
    assert (acceptance.output_tokens, acceptance.other_traffic) == (24, False)
    server.counts = [Counters(1, 3, 2, "page"), Counters(11, 33, 7, "page")]
    acceptance = record(server, tmp_path / "page").manifest.live.acceptance
    assert (acceptance.drafts, acceptance.draft_tokens, acceptance.accepted_tokens) == (10, 30, 5)
    assert acceptance.other_traffic
    server.counts = [Counters(11, 33, 7, "page"), Counters(1, 3, 2, "page")]  # started anew meanwhile
    assert record(server, tmp_path / "anew").manifest.live.acceptance is None


def test_conditions_add_nothing_to_the_acceptance(server: RecordingServer, tmp_path: Path) -> None:
    capture = record(server, tmp_path / "live", new_tokens=8, conditions=("chunk",))
    assert len(server.sent) == 2 * len(SEQUENCES)
    assert capture.manifest.live.acceptance.drafts == 4 * len(SEQUENCES)


def test_a_server_that_is_gone_is_not_waited_for_under_conditions(server: RecordingServer, tmp_path: Path) -> None:
    asked: list[int] = []

    def die(number: int, _: object) -> None:
        asked.append(number)
        if len(asked) > len(SEQUENCES):
            gone()

    server.answers = die
    capture = record(server, tmp_path / "live", conditions=("prefix", "chunk"))
    assert len(asked) == len(SEQUENCES) + 2
    assert "answered" in capture.manifest.live.skipped_conditions["chunk"]


def test_no_more_is_generated_than_there_is_room_for(server: RecordingServer, tmp_path: Path) -> None:
    sequences = [TokenSequence("short", (1,) * 4), TokenSequence("full", (1,) * 64), TokenSequence("near", (1,) * 60)]
    capture = record(server, tmp_path / "live", sequences, new_tokens=8)
    assert capture.manifest.live.acceptance.output_tokens == 8 + 1 + 5


def test_an_output_that_isn_t_empty_is_refused_before_anything_is_sent(server: RecordingServer, tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "file").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        record(server, tmp_path / "live")
    assert server.sent == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"ranks": []}, "a sequence of rank"),
        ({"ranks": "first"}, "a sequence of rank"),
        ({"ranks": "twice"}, "two ranks of one name"),
        ({"ranks": "line"}, "not a capture's manifest"),
        ({"acceptance": {"drafts": -1}}, "not a capture's manifest"),
        ({"acceptance": {"accepted_tokens": 10**400}}, "not a capture's manifest"),
        ({"settings": {"temperature": 10**400}}, "not a capture's manifest"),
    ],
)
def test_a_manifest_that_contradicts_itself(
    server: RecordingServer, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    record(server, tmp_path / "live")
    path = tmp_path / "live" / "manifest.json"
    manifest = json.loads(path.read_text())
    live = manifest["live"]
    ranks = live["ranks"]
    line = [{**rank, "name": f"{rank['name']}\n"} for rank in ranks]
    made = {"first": ranks[:1], "twice": ranks * 2, "line": line}
    for key, value in changed.items():
        if isinstance(value, dict):
            live[key] = {**live[key], **value}
        else:
            live[key] = made[value] if isinstance(value, str) else value
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=told):
        read_manifest(tmp_path / "live")


def test_numbers_of_a_server_that_nobody_can_hold(server: RecordingServer, tmp_path: Path) -> None:
    server.facts = {"server": {"seed": 10**30, "other": -(10**30), "good": 7}}
    live = record(server, tmp_path / "live").manifest.live
    assert live.settings == {"seed": str(10**30), "other": str(-(10**30)), "good": 7, "temperature": 0.0}


def test_a_condition_that_the_manifest_names_and_isn_t_there_is_no_pass(
    server: RecordingServer, tmp_path: Path
) -> None:
    server.chunk = 4
    record(server, tmp_path / "live", conditions=("chunk",))
    shutil.rmtree(tmp_path / "live" / "conditions" / "chunk")
    outcomes = judge_recording(open_hidden_states(tmp_path / "live", role="live"))
    (skip,) = [one for one in outcomes if isinstance(one, Skip) and one.check == "live-conditions"]
    assert skip.blocks_verdict
    assert "no such file" in skip.reason
