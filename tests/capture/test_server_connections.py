"""What a capture says to servers that are gone, closed, something else, or hostile: a real server on loopback."""

from __future__ import annotations

import base64
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import torch

from eagle_parity.capture.servers import connection as connection_module
from eagle_parity.capture.servers import vllm as vllm_module
from eagle_parity.capture.servers.answers import count_of, prometheus_counts
from eagle_parity.capture.servers.connection import Connection, checked_url
from eagle_parity.capture.servers.server import NoAnswerError
from eagle_parity.capture.servers.sglang import HOOK_FACTORY, SglangServer, spool_of_hook
from eagle_parity.capture.servers.vllm import VllmServer
from eagle_parity.capture.spool.folder import SPOOL_ENV, TOKEN_ENV, make_spool, read_token
from eagle_parity.capture.spool.request_ids import request_id
from eagle_parity.capture.spool.worker import Spool
from eagle_parity.capture.vllm.endpoint import proof
from eagle_parity.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("httpx")

SESSION = "0123456789ab"


class Answers:
    """What the server on loopback says, by path; a callable is asked with the request's body."""

    def __init__(self) -> None:
        self.by_path: dict[str, Any] = {}
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.url = ""

    def __setitem__(self, path: str, answer: Any) -> None:
        self.by_path[path] = answer

    def last(self, path: str) -> Any:
        return json.loads(next(body for seen, _, body in reversed(self.seen) if seen == path))


@contextmanager
def serving(answers: Answers) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answers.seen.append((self.path, dict(self.headers.items()), body))
            answer = answers.by_path.get(self.path, (404, {}, b"not found"))
            if callable(answer):
                answer = answer(body)
            if answer is None:  # a server that dies in the middle of an answer
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"{")
                return
            if not isinstance(answer, tuple):
                answer = (200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
            status, headers, content = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if isinstance(content, bytes):
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                return
            self.end_headers()
            try:
                for piece in content:
                    self.wfile.write(piece)
            except OSError:
                pass  # the client has had enough

        do_GET = do_POST = respond  # noqa: N815  the names that the class looks for

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        answers.url = f"http://127.0.0.1:{http.server_address[1]}"
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield
        finally:
            http.shutdown()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answers]:
    monkeypatch.setenv(SPOOL_ENV, str(tmp_path / "spool"))
    monkeypatch.delenv(TOKEN_ENV, raising=False)
    found = Answers()
    with serving(found):
        yield found


@pytest.fixture
def token(tmp_path: Path) -> str:
    return make_spool(tmp_path / "spool")


def sglang_info(spool: object, **more: Any) -> dict[str, Any]:
    hooks = [{"hook_factory": HOOK_FACTORY, "config": {"spool": str(spool)}}]
    return {"tp_size": 2, "version": "0.5.23", "forward_hooks": hooks, **more}


def vllm_answers(answers: Answers, **facts: Any) -> None:
    answers["/version"] = {"version": "0.32.0"}
    answers["/v1/models"] = {"data": [{"id": "target", "max_model_len": 128}]}
    answers["/eagle_parity/info"] = {"results": [{"rank": "tp0", **facts}]}


BOTH = pytest.mark.parametrize("connect", [SglangServer, VllmServer], ids=["sglang", "vllm"])


@BOTH
def test_nobody_answers(connect: Callable[[str], Any], answers: Answers) -> None:
    with serving(gone := Answers()):
        pass
    del answers
    with pytest.raises(NoAnswerError, match=f"{gone.url}: no answer to GET .*; expected a running server"):
        connect(gone.url)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((401, {}, b"unauthorized"), "answered with 401 .*--api-key"),
        ((403, {}, b"no"), "answered with 403 .*--api-key"),
        ((500, {}, b"<b>\x1b[31m" + b"x" * 5000), r"answered with 500 \(<b>"),
        ((200, {"Content-Type": "text/html"}, b"<html>hello</html>"), "not answered with JSON"),
        ((200, {}, b'{"tp_size": '), "not answered with JSON"),
        ((200, {}, b"[" * 200_000), "not answered with JSON"),
        ((200, {}, b"\xff\xfe\xfa"), "not answered with JSON"),
        ((307, {"Location": "http://elsewhere/"}, b""), "redirect to http://elsewhere/"),
        ((200, {}, b'["tp_size"]'), "expected|object of JSON"),
        ((200, {}, b"7"), "expected|object of JSON"),
        ((200, {"Content-Encoding": "gzip"}, b"no gzip"), "no answer to GET"),
        ((500, {"Content-Type": "text/plain; charset=hex"}, b"\xff no"), "answered with 500"),
        ((500, {"Content-Type": "text/plain; charset=rot13"}, b"\xff no"), "answered with 500"),
        ((500, {"Content-Type": "text/plain; charset=undefined"}, b"\xff no"), "answered with 500"),
        ((500, {"Content-Type": "text/plain; charset=idna"}, b"\xff no"), "answered with 500"),
        (None, "no answer to GET"),
    ],
)
@BOTH
def test_answers_that_are_none(connect: Callable[[str], Any], answers: Answers, answer: Any, told: str) -> None:
    for path in ("/server_info", "/version"):
        answers[path] = answer if answer is not None else lambda _: None
    with pytest.raises(InputError, match=told) as caught:
        connect(answers.url)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@BOTH
def test_an_answer_without_an_end(
    connect: Callable[[str], Any], answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "MAX_ANSWER_BYTES", 1 << 20)
    for path in ("/server_info", "/version"):
        answers[path] = (200, {}, (b"x" * 65536 for _ in iter(int, 1)))
    with pytest.raises(InputError, match="longer than 1 MiB"):
        connect(answers.url)


def test_an_answer_that_comes_a_byte_now_and_then(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    def drip() -> Iterator[bytes]:
        for _ in range(200):
            time.sleep(0.02)
            yield b" "

    monkeypatch.setattr(connection_module, "ANSWER_SECONDS", 0.2)
    answers["/server_info"] = (200, {}, drip())
    with pytest.raises(NoAnswerError, match="its end had not come"):
        SglangServer(answers.url)


def test_an_answer_that_unpacks_without_an_end(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    monkeypatch.setattr(connection_module, "MAX_ANSWER_BYTES", 1 << 20)
    answers["/server_info"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(b" " * (64 << 20)))
    with pytest.raises(InputError, match="longer than 1 MiB"):
        SglangServer(answers.url)


def test_a_packed_answer_is_read(answers: Answers, tmp_path: Path, token: str) -> None:
    import gzip

    packed = gzip.compress(json.dumps(sglang_info(tmp_path / "spool")).encode())
    answers["/server_info"] = (200, {"Content-Encoding": "gzip"}, packed)
    assert SglangServer(answers.url).token == token


@BOTH
def test_a_server_of_another_kind(connect: Callable[[str], Any], answers: Answers) -> None:
    with pytest.raises(InputError, match=r"SGLang server|vLLM server"):
        connect(answers.url)


def test_sglang_without_the_hook(answers: Answers) -> None:
    answers["/server_info"] = {"tp_size": 1, "forward_hooks": None}
    with pytest.raises(InputError, match=r"without the capture hook.*--launch-flags"):
        SglangServer(answers.url)


def test_vllm_without_the_hook(answers: Answers, token: str) -> None:
    del token
    vllm_answers(answers)
    answers["/eagle_parity/info"] = (404, {}, b"")
    with pytest.raises(InputError, match=r"without the capture hook.*--launch-flags"):
        VllmServer(answers.url)


def test_vllm_in_development_mode(answers: Answers, tmp_path: Path, token: str) -> None:
    vllm_answers(answers)
    answers["/eagle_parity/info"] = (404, {}, b"")
    answers["/collective_rpc"] = {"results": [{"rank": "tp0", "spool": str(tmp_path / "spool")}]}
    assert VllmServer(answers.url).token == token
    assert answers.last("/collective_rpc")["method"] == "eagle_parity_info"


def test_the_token_stays_here(answers: Answers, token: str) -> None:
    vllm_answers(answers, spool="/elsewhere")
    server = VllmServer(answers.url)
    answers["/eagle_parity/start"] = {"results": [{"rank": "tp0", "spool": "/elsewhere"}]}
    answers["/eagle_parity/stop"] = {"results": [{"rank": "tp0"}]}
    with server.recording():
        pass
    answers["/v1/completions"] = {"usage": {}}
    server.generate([1], request_id="x", salt="s", new_tokens=1)
    for path, headers, body in answers.seen:
        assert token not in path + json.dumps(headers) + body.decode()
    path, headers, body = next(one for one in answers.seen if one[0] == "/eagle_parity/start")
    assert headers["X-Eagle-Parity-Proof"] == proof(token, "start", body)


@pytest.mark.parametrize("status", [403, 500])
def test_vllm_that_wants_another_token(answers: Answers, status: int) -> None:
    vllm_answers(answers)
    answers["/eagle_parity/info"] = (status, {}, b'{"error": "x"}')
    told = f"token can't be read.*{TOKEN_ENV}" if status == 403 else "answered with 500"
    with pytest.raises(InputError, match=told):
        VllmServer(answers.url)


def recorded_limit(folder: Path, limit: int) -> bytes:
    """The record of a rank that has reached it, and what lies beside."""
    spool = Spool(folder, "tp0", max_tokens=limit)
    marks = spool.marks([request_id(read_token(folder), SESSION, 0)])
    rows = torch.arange(2)
    for _ in range(2):
        states = {"token_ids": rows, "positions": rows, "slot.0": torch.zeros(2, 4)}
        spool.write("aux", states, marks, [slice(0, 2)], mode="EXTEND")
    return (folder / SESSION / "tp0.json").read_bytes()


def test_a_limit_is_seen_in_a_spool_on_this_host(
    answers: Answers, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del token
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)
    answers["/server_info"] = sglang_info(tmp_path / "spool")
    vllm_answers(answers, spool=str(tmp_path / "spool"))
    servers = (SglangServer(answers.url), VllmServer(answers.url))
    assert [server.limit(SESSION) for server in servers] == [None, None]
    recorded_limit(tmp_path / "spool", 4)
    assert [server.limit(SESSION) for server in servers] == [None, None]
    record = json.loads(recorded_limit(tmp_path / "spool", 2))
    assert [server.limit(SESSION) for server in servers] == ["max_tokens=2"] * 2
    (tmp_path / "spool" / SESSION / "tp0.json").write_text(json.dumps(record | {"limit": ["x"]}))
    assert [server.limit(SESSION) for server in servers] == [None, None]
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 2**62)
    assert "free where the spool lies" in str(servers[0].limit(SESSION))
    # A folder of that name, and of another spool: this host's disk says nothing of the server's.
    assert SglangServer(answers.url, token="a token").limit(SESSION) is None  # noqa: S106  any


def test_a_limit_is_seen_through_vllms_route(
    answers: Answers, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del token
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)
    record = recorded_limit(tmp_path / "elsewhere", 2)
    vllm_answers(answers, spool="/elsewhere")
    server = VllmServer(answers.url)
    asked: list[Any] = []

    def read(body: bytes) -> Any:
        asked.append(json.loads(body))
        return {"results": [{"rank": "tp0", "data": base64.b64encode(record).decode()}]}

    answers["/eagle_parity/read"] = read
    assert server.limit(SESSION) == "max_tokens=2"
    assert server.limit(SESSION) is None  # too soon to ask every rank again
    assert asked == [{"session": SESSION, "name": "tp0.json", "offset": 0}]
    monkeypatch.setattr(vllm_module, "LIMIT_SECONDS", 0.0)
    answer: Any
    for answer in (
        {"results": [{"rank": "tp0", "data": "bm9uZQ=="}]},
        {"results": [{"error": "no session"}]},
        [],
        None,
    ):
        server = VllmServer(answers.url)
        answers["/eagle_parity/read"] = answer if answer is not None else lambda _: None
        assert server.limit(SESSION) is None


@pytest.mark.parametrize(
    "results",
    [None, [], {}, "x", [1], [None], [[]], [{"error": "this server runs no draft head \x1b[31m" + "x" * 5000}]],
)
def test_ranks_that_answer_something_else(answers: Answers, token: str, results: Any) -> None:
    del token
    vllm_answers(answers)
    answers["/eagle_parity/info"] = {"results": results}
    with pytest.raises(InputError) as caught:
        VllmServer(answers.url)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("models", [{}, {"data": None}, {"data": []}, {"data": [1]}, {"data": {"a": 1}}])
def test_models_of_any_kind(answers: Answers, token: str, models: Any) -> None:
    del token
    vllm_answers(answers)
    answers["/v1/models"] = models
    assert VllmServer(answers.url).max_tokens() is None


def test_tokens_of_texts(answers: Answers, tmp_path: Path, token: str) -> None:
    del token
    answers["/server_info"] = sglang_info(tmp_path / "spool")
    vllm_answers(answers)
    for server in (SglangServer(answers.url), VllmServer(answers.url)):
        answers["/tokenize"] = {"tokens": [1, 2]}
        assert server.encode_text("a") == [1, 2]
        assert server.encode_messages([{"role": "user", "content": "a"}]) == [1, 2]
        bad: Any
        for bad in ({"tokens": ["1"]}, {"tokens": [True]}, {"tokens": None}, {}, []):
            answers["/tokenize"] = bad
            with pytest.raises(InputError):
                server.encode_text("a")
        answers["/tokenize"] = (400, {}, b"no template")
        with pytest.raises(ValueError, match="no template"):
            server.encode_messages([])


def test_generation(answers: Answers, tmp_path: Path, token: str) -> None:
    del token
    answers["/server_info"] = sglang_info(tmp_path / "spool")
    server = SglangServer(answers.url)
    for names in (
        ("spec_draft_token_num", "spec_accept_token_num"),
        ("spec_proposed_drafts", "spec_accepted_drafts"),
        ("spec_num_proposed_drafts", "spec_num_correct_drafts"),
    ):
        meta = {"prompt_tokens": 2, "cached_tokens": 0, "completion_tokens": 5, "spec_verify_ct": 3}
        answers["/generate"] = {"meta_info": meta | dict(zip(names, (9, 2), strict=True))}
        generation = server.generate([1, 2], request_id="r", salt="s", new_tokens=5)
        assert (generation.drafts, generation.draft_tokens, generation.accepted_tokens) == (3, 9, 2)
    sent = answers.last("/generate")
    assert (sent["rid"], sent["extra_key"], sent["input_ids"]) == ("r", "s", [1, 2])
    answers["/generate"] = {"meta_info": {"prompt_tokens": "x", "completion_tokens": [1]}}
    assert server.generate([1], request_id="r", salt="s", new_tokens=1).output_tokens == 0
    answers["/generate"] = [1]
    with pytest.raises(InputError, match="object of JSON"):
        server.generate([1], request_id="r", salt="s", new_tokens=1)


def test_generated_ids_and_the_temperature(answers: Answers, tmp_path: Path, token: str) -> None:
    del token
    answers["/server_info"] = sglang_info(tmp_path / "spool")
    vllm_answers(answers)
    sglang, vllm = SglangServer(answers.url), VllmServer(answers.url)
    ids: Any
    choices: Any
    for ids, found in (([7, 8], (7, 8)), ([], ()), (None, None), ("78", None), ([7, "8"], None), ([True], None)):
        answers["/generate"] = {"output_ids": ids}
        answers["/v1/completions"] = {"choices": [{"token_ids": ids}]}
        for server in (sglang, vllm):
            generation = server.generate([1], request_id="r", salt="s", new_tokens=2, temperature=0.5)
            assert generation.output_ids == found
    assert answers.last("/generate")["sampling_params"]["temperature"] == 0.5
    sent = answers.last("/v1/completions")
    assert (sent["temperature"], sent["return_token_ids"]) == (0.5, True)
    for ids in ([2**64], [-1]):
        answers["/v1/completions"] = {"choices": [{"token_ids": ids}]}
        assert vllm.generate([1], request_id="r", salt="s", new_tokens=2).output_ids is None
    for choices in (None, [], {}, [7], [[]]):
        answers["/v1/completions"] = {"choices": choices}
        assert vllm.generate([1], request_id="r", salt="s", new_tokens=2).output_ids is None
    assert answers.last("/v1/completions")["temperature"] == 0


def test_generated_rows_are_asked_for_by_name(answers: Answers, token: str) -> None:
    del token
    vllm_answers(answers)
    server = VllmServer(answers.url)
    for verb in ("start", "stop"):
        answers[f"/eagle_parity/{verb}"] = {"results": [{"rank": "tp0"}]}
    with server.recording():
        assert answers.last("/eagle_parity/start") == {}
    with server.recording(generated=True):
        assert answers.last("/eagle_parity/start") == {"generated": True}
    with server.recording(SESSION):
        assert answers.last("/eagle_parity/start") == {"session": SESSION}
    assert answers.last("/eagle_parity/stop") == {"session": SESSION}


def test_parts_on_another_host_are_removed_there(answers: Answers, tmp_path: Path) -> None:
    server = remote(answers, {}, lambda _asked: {})
    server.discard(SESSION)  # an older hook has no such verb
    answers["/eagle_parity/discard"] = {"results": [{"rank": "tp0"}]}
    server.discard(SESSION)
    assert answers.last("/eagle_parity/discard") == {"session": SESSION}
    here = remote(answers, {}, lambda _asked: {})
    here.spool = tmp_path
    (tmp_path / SESSION).mkdir()
    here.discard(SESSION)
    assert not (tmp_path / SESSION).exists()


def test_a_token_of_another_spool(answers: Answers, token: str) -> None:
    del token
    vllm_answers(answers)
    answers["/eagle_parity/info"] = (403, {}, b'{"error": "x"}')
    with pytest.raises(InputError, match="isn't that of its spool"):
        VllmServer(answers.url)


def test_counters(answers: Answers, token: str) -> None:
    del token
    vllm_answers(answers)
    server = VllmServer(answers.url)
    assert server.counters() is None
    page = (
        '# HELP x\nvllm:spec_decode_num_drafts_total{engine="0"} 3\n'
        'vllm:spec_decode_num_drafts_total{engine="1"} 4.0 17\n'
        "vllm:spec_decode_num_draft_tokens_total 9\nvllm:spec_decode_num_accepted_tokens_total NaN\n"
        'vllm:spec_decode_num_accepted_tokens_total{a="}"} \n'
    )
    answers["/metrics"] = (200, {}, page.encode())
    counters = server.counters()
    assert counters is not None
    assert (counters.drafts, counters.draft_tokens, counters.accepted_tokens) == (7, 9, 0)
    assert prometheus_counts("a{ 1e999\na 1e400\na inf", {"x": "a"}) == {"x": 0}


def remote(answers: Answers, files: Any, pieces: Callable[[dict[str, Any]], Any]) -> VllmServer:
    vllm_answers(answers, spool="/a folder of another host")
    answers["/eagle_parity/files"] = {"results": [{"rank": "tp0", "files": files}]}
    answers["/eagle_parity/read"] = lambda body: {"results": [{"rank": "tp1"}, pieces(json.loads(body))]}
    return VllmServer(answers.url, token="a token")  # noqa: S106  any


def test_files_come_over_the_control_channel(answers: Answers, tmp_path: Path) -> None:
    content = {"tp0.json": b"{}", "tp0-000000-aux.safetensors": bytes(range(250))}

    def pieces(asked: dict[str, Any]) -> dict[str, Any]:
        data = content[asked["name"]][asked["offset"] : asked["offset"] + 100]
        return {"rank": "tp0", "data": base64.b64encode(data).decode()}

    server = remote(answers, {name: len(data) for name, data in content.items()}, pieces)
    for _ in range(2):
        folder = server.fetch(SESSION, tmp_path / "copy" / SESSION)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == content
    read = [json.loads(body)["name"] for path, _, body in answers.seen if path == "/eagle_parity/read"]
    assert read.count("tp0-000000-aux.safetensors") == 3  # what never changes is fetched once


@pytest.mark.parametrize(
    "files",
    [
        {"../../../.bashrc": 10},
        {"..": 10},
        {"": 10},
        {"/etc/cron.d/x": 10},
        {"tp0-000000-aux.safetensors/../../x": 10},
        {"tp1.json": 10},
        {"tp0.json": -1},
        {"tp0.json": "10"},
        {"tp0.json": True},
        {"tp0.json": 1.5},
        {"tp0.json": None},
        [],
        "x",
        None,
    ],
)
def test_names_and_sizes_of_a_hostile_server(answers: Answers, tmp_path: Path, files: Any) -> None:
    server = remote(answers, files, lambda _: {"rank": "tp0", "data": "AAAA"})
    with pytest.raises(InputError, match="a rank"):
        server.fetch(SESSION, tmp_path / "copy" / SESSION)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_more_bytes_than_there_is_room_for(answers: Answers, tmp_path: Path) -> None:
    server = remote(answers, {"tp0.json": 2**60}, lambda _: {"rank": "tp0", "data": "AAAA"})
    with pytest.raises(InputError, match=r"bytes, and .* free"):
        server.fetch(SESSION, tmp_path / "copy" / SESSION)


@pytest.mark.parametrize(
    ("data", "told"),
    [("", "ends at 0 of 10"), ("!!!", "no base64"), (7, "no base64"), (None, "no base64"), ([], "no base64")],
)
def test_pieces_of_a_hostile_server(answers: Answers, tmp_path: Path, data: Any, told: str) -> None:
    server = remote(answers, {"tp0.json": 10}, lambda _: {"rank": "tp0", "data": data})
    with pytest.raises(InputError, match=told):
        server.fetch(SESSION, tmp_path / "copy" / SESSION)


def test_a_file_that_goes_on_after_its_end(answers: Answers, tmp_path: Path) -> None:
    endless = base64.b64encode(b"x" * 1000).decode()
    server = remote(answers, {"tp0.json": 10}, lambda _: {"rank": "tp0", "data": endless})
    folder = server.fetch(SESSION, tmp_path / "copy" / SESSION)
    assert (folder / "tp0.json").read_bytes() == b"x" * 10


def test_parts_out_of_reach_are_told_with_the_way_to_them(answers: Answers) -> None:
    answers["/server_info"] = sglang_info("/a folder of another host")
    with pytest.raises(InputError, match="token can't be read"):
        SglangServer(answers.url)
    server = SglangServer(answers.url, token="a token")  # noqa: S106  any
    with pytest.raises(InputError, match=f"--from-parts {SESSION}"):
        server.fetch(SESSION, None)  # type: ignore[arg-type]  # it has no use for one
    server.discard(SESSION)


@pytest.mark.parametrize("spool", ["/a folder of another host", None])
def test_a_token_of_the_environment_brings_no_folder_within_reach(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, spool: str | None
) -> None:
    answers["/server_info"] = sglang_info(spool) if spool else {"tp_size": 2}
    monkeypatch.setenv(TOKEN_ENV, "ab" * 32)
    with pytest.raises(InputError, match=f"--from-parts {SESSION}"):
        SglangServer(answers.url).fetch(SESSION, None)  # type: ignore[arg-type]  # it has no use for one


def test_parts_that_aren_t_there_though_the_folder_is(answers: Answers, tmp_path: Path, token: str) -> None:
    answers["/server_info"] = sglang_info(tmp_path / "spool")
    server = SglangServer(answers.url)
    assert server.token == token
    with pytest.raises(InputError, match="its workers recorded nothing"):
        server.fetch(SESSION, tmp_path)


def test_the_token_of_the_environment(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    answers["/server_info"] = sglang_info("/a folder of another host")
    monkeypatch.setenv(TOKEN_ENV, " a token\n")
    assert SglangServer(answers.url).token == "a token"  # noqa: S105  any


def test_discarding_follows_no_link(answers: Answers, tmp_path: Path, token: str) -> None:
    del token
    answers["/server_info"] = sglang_info(tmp_path / "spool")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (tmp_path / "spool" / SESSION).symlink_to(kept)
    SglangServer(answers.url).discard(SESSION)
    assert (kept / "file").is_file()


@pytest.mark.parametrize(
    "hooks", [None, {}, "x", [], [1], [{}], [{"hook_factory": HOOK_FACTORY, "config": {"spool": 7}}]]
)
def test_options_of_any_kind(hooks: Any) -> None:
    assert spool_of_hook(hooks) is None


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "file:///etc/passwd", "host:port:x/y"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError):
        checked_url(url)


@pytest.mark.parametrize(
    "host",
    ["\x01", "[v1.x]", "a" * 70_000, "\u2603.net", "\u202e", "\ud800", "xn--a", ".", "a..b", f"{'a' * 64}.invalid"],
)
def test_hosts_that_are_none(host: str) -> None:
    with pytest.raises((UsageError, NoAnswerError)) as caught:
        SglangServer(f"http://{host}:1")
    told = str(caught.value)
    assert "an address such as" in told or "a running server" in told
    assert told.isprintable()


@pytest.mark.parametrize("secret", ["\u043a\u043b\u044e\u0447", "one\ntwo", "\udcff"])
def test_secrets_that_no_header_can_hold_are_not_repeated(answers: Answers, secret: str) -> None:
    answers["/server_info"] = sglang_info("/a folder of another host")
    for options in ({"api_key": secret}, {"token": secret}):
        with pytest.raises(UsageError, match="isn't plain text") as caught:
            SglangServer(answers.url, **options)
        assert secret not in str(caught.value)


@pytest.mark.parametrize("spool", ["/" + "a" * 5000, "\0", "\ud800", "/dev/null", "/proc/self/mem", "relative"])
def test_spools_that_can_t_be_one(answers: Answers, tmp_path: Path, spool: str) -> None:
    answers["/server_info"] = sglang_info(spool)
    with pytest.raises(InputError, match="can't be read from here"):
        SglangServer(answers.url, token="a token").fetch(SESSION, tmp_path)  # noqa: S106  any
    vllm_answers(answers, spool=spool)
    answers["/eagle_parity/files"] = {"results": [{"rank": "tp0", "files": {}}]}
    answers["/eagle_parity/discard"] = {"results": [{}]}
    vllm = VllmServer(answers.url, token="a token")  # noqa: S106  any
    assert vllm.limit(SESSION) is None
    assert vllm.fetch(SESSION, tmp_path / "copy") == tmp_path / "copy"
    vllm.discard(SESSION)


@pytest.mark.parametrize(
    ("value", "count"), [(3, 3), (-1, None), (2**40, None), (True, None), ("3", None), (3.0, None)]
)
def test_counts_that_are_none(value: object, count: int | None) -> None:
    assert count_of({"a": value}, "a") == count


def test_counters_that_are_none() -> None:
    page = "a 1e308\na 1e308\na -5\na nan\na inf\na 7\n"
    assert prometheus_counts(page, {"found": "a"}) == {"found": 7}


def test_addresses() -> None:
    assert checked_url("http://user:secret@host:1/path?x=1") == "http://host:1"
    assert checked_url("host:30000") == "http://host:30000"
    assert Connection("[::1]:8000").url == "http://[::1]:8000"
