"""``capture sglang`` and ``capture vllm``: options, statuses, and what is said of a capture."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from recording_server import RecordingServer, gone

from eagle_parity.capture import live as live_module
from eagle_parity.capture.launching import EXPORTED_NAME
from eagle_parity.capture.sending import REQUESTS_NAME, read_sent
from eagle_parity.capture.spool.folder import SPOOL_ENV, TOKEN_ENV
from eagle_parity.cli.app import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BOTH = pytest.mark.parametrize("engine", ["sglang", "vllm"])
CLASSES = {"sglang": "sglang.SglangServer", "vllm": "vllm.VllmServer"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)
    monkeypatch.setattr(live_module, "SETTLE_SECONDS", 0.05)
    monkeypatch.setenv(SPOOL_ENV, str(tmp_path / "spool"))
    monkeypatch.delenv(TOKEN_ENV, raising=False)


class Tool:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        status = run(["capture", *words])
        said = self.capsys.readouterr()
        return status, said.out, said.err


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"token_ids": [5, 6, 7, 8]}\n{"token_ids": [1, 2, 3]}\n')
    return str(path)


class Connected:
    """The stand-in that the command gets, and how it was asked for."""

    def __init__(self, server: RecordingServer) -> None:
        self.server = server
        self.options: dict[str, Any] = {}

    def __call__(self, url: str, **options: Any) -> RecordingServer:
        self.options = {"url": url, **options}
        return self.server


@pytest.fixture
def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connected:
    found = Connected(RecordingServer(tmp_path / "spool"))
    for name in CLASSES.values():
        monkeypatch.setattr(f"eagle_parity.capture.servers.{name}", found)
    return found


def test_what_a_killed_client_left_is_removed_and_told(
    tool: Tool, connected: Connected, prompts: str, tmp_path: Path
) -> None:
    def left(session: str) -> Path:
        folder = tmp_path / "spool" / session
        folder.mkdir(mode=0o700)
        os.utime(folder, (0, 0))
        return folder

    for words in ((), ("--quiet",)):
        folder = left("0123456789ab")
        output = tmp_path / f"live{len(words)}"
        called = ("sglang", "--server", "x:1", "--prompts", prompts, "--output", str(output), *words)
        status, _, told = tool(*called)
        assert status == 0
        assert not folder.exists()
        assert told == ("" if words else "removed from the spool, abandoned by former captures: 0123456789ab\n")
    assert connected.server.sent


@BOTH
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "needs --server URL"),
        (["--server", "x"], "needs --output DIR"),
        (["--output", "x"], "needs --server URL"),
    ],
)
def test_missing_options(tool: Tool, engine: str, words: list[str], told: str) -> None:
    status, out, err = tool(engine, *words)
    assert (status, out) == (2, "")
    assert told in err
    assert "--launch-flags" in err
    assert "Traceback" not in err


@BOTH
@pytest.mark.parametrize(
    "case",
    [
        ([], "one of --replay SHARDS and --prompts FILE"),
        (["--prompts", "p", "--replay", "r"], "one of --replay SHARDS and --prompts FILE"),
        (["--prompts", "PROMPTS", "--conditions", "batch,chunks"], "no condition 'chunks'"),
        (["--prompts", "no such file"], "no such file"),
        (["--replay", "OUT"], "can't be written over what it reads"),
        (["--prompts", "PROMPTS", "--temperature", "inf"], "expected a finite number"),
        (["--prompts", "PROMPTS", "--temperature", "-1"], "--temperature"),
    ],
)
def test_options_that_don_t_go_together(
    tool: Tool, connected: Connected, prompts: str, engine: str, case: tuple[list[str], str]
) -> None:
    words, told = case
    tmp_path = connected.server.spool.parent
    output = str(tmp_path / "live")
    given = [{"PROMPTS": prompts, "OUT": output}.get(word, word) for word in words]
    connected.server.engine = engine
    status, _, err = tool(engine, "--server", "x", "--output", output, *given)
    assert status == 2
    assert told in err
    assert connected.server.sent == []


@pytest.mark.parametrize("diverges", [True, False])
def test_ranks_that_choose_other_tokens(
    tool: Tool, connected: Connected, prompts: str, tmp_path: Path, *, diverges: bool
) -> None:
    def chosen(rank: str, prompt: Sequence[int]) -> list[int]:
        other = diverges and rank == "tp1" and len(prompt) == 3
        return [10, 11, 99 if other else 12, 13]

    connected.server.engine = "vllm"
    connected.server.choices = chosen
    words = ["--server", "x", "--output", str(tmp_path / "live"), "--prompts", prompts, "--conditions", "generate"]
    status, out, err = tool("vllm", *words, "--temperature", "0.6", "--format", "json")
    assert connected.server.temperatures == [0.6, 0.6]
    result = json.loads(out)
    found = [(finding["name"], finding["message"]) for finding in result["findings"]]
    if not diverges:
        assert (status, found) == (0, []), err
        return
    ((name, message),) = found
    assert (status, name) == (1, "rank-divergence")
    assert "at temperature 0.6: rank tp1 chose token 99 where rank tp0 chose token 12, first in prompts" in message
    assert "at position 5 (generated token 3); in 1 of 2 sequences, 1 of 8 tokens differ" in message


@pytest.mark.usefixtures("connected")
def test_a_server_whose_hook_has_no_generated_rows_says_so(tool: Tool, prompts: str, tmp_path: Path) -> None:
    words = ["--server", "x", "--output", str(tmp_path / "live"), "--prompts", prompts, "--conditions", "generate"]
    status, out, _ = tool("sglang", *words, "--format", "json")
    assert status == 0
    reasons = [skip["reason"] for skip in json.loads(out)["skipped"] if skip["check"] == "rank-states"]
    assert reasons
    assert reasons[0].startswith("generate: the hook in sglang records prompts' rows alone")


@BOTH
def test_the_engine_that_is_named_is_the_commands(tool: Tool, connected: Connected, prompts: str, engine: str) -> None:
    other = {"sglang": "vllm@0.32.0", "vllm": "sglang@0.5.23"}[engine]
    connected.server.engine = engine
    words = ["--server", "x", "--output", "y", "--prompts", prompts, "--engine", other]
    status, _, err = tool(engine, *words)
    assert status == 2
    assert f"this is capture {engine}" in err


@BOTH
def test_nobody_answers(tool: Tool, prompts: str, tmp_path: Path, engine: str) -> None:
    pytest.importorskip("httpx")
    words = ["--server", "127.0.0.1:9", "--output", str(tmp_path / "live"), "--prompts", prompts]
    status, out, err = tool(engine, *words)
    assert (status, out) == (2, "")
    assert "no answer to GET" in err
    assert len(err.strip().splitlines()) == 1


def test_a_capture(tool: Tool, connected: Connected, prompts: str, tmp_path: Path) -> None:
    output = str(tmp_path / "live")
    words = ["sglang", "--server", "here", "--output", output, "--prompts", prompts]
    words += ["--conditions", "prefix, chunk", "--token", "0" * 64, "--api-key", "the key", "--spool", "there"]
    status, out, err = tool(*words, "--format", "json")
    result = json.loads(out)
    assert status == 0, err
    assert connected.options == {"url": "here", "api_key": "the key", "spool": "there", "token": "0" * 64}
    measured = result["measurements"]
    assert (measured["sequences"], measured["tokens"], measured["slots"]) == (2, 7, [1, 3, 5])
    assert measured["ranks"] == ["tp0", "tp1"]
    assert measured["draft_input"] == {"equal": 2}
    assert "--chunked-prefill-size" in json.dumps(result["skipped"])
    for text in (out, err, *(path.read_bytes().decode("latin-1") for path in (tmp_path / "live").rglob("*.*"))):
        assert "0" * 64 not in text
        assert connected.server.token not in text
        assert "the key" not in text


def test_a_capture_that_is_cut_short_is_no_success(
    tool: Tool, connected: Connected, prompts: str, tmp_path: Path
) -> None:
    connected.server.answers = lambda number, _: gone() if number else None
    words = ["sglang", "--server", "here", "--output", str(tmp_path / "live"), "--prompts", prompts]
    status, out, _ = tool(*words, "--format", "json")
    result = json.loads(out)
    assert (status, result["verdict"]) == (3, "inconclusive")
    (told,) = [finding["message"] for finding in result["findings"] if finding["name"] == "capture-incomplete"]
    assert "1 of 2 sequences were sent and not recorded whole (prompts.jsonl:2: " in told
    assert "no answer" in told
    (skip,) = [skip for skip in result["skipped"] if skip["check"] == "capture-complete"]
    assert skip["blocks_verdict"]
    assert "sequences" not in skip["reason"]  # the finding has told them


def test_what_a_hook_says_of_itself_is_repeated(tool: Tool, connected: Connected, prompts: str, tmp_path: Path) -> None:
    for spool in connected.server.ranks:
        spool.max_tokens = 4
    words = ["sglang", "--server", "here", "--output", str(tmp_path / "live"), "--prompts", prompts]
    status, out, _ = tool(*words, "--format", "json")
    (found,) = [one for one in json.loads(out)["findings"] if one["name"] == "capture-incomplete"]
    assert status == 3
    assert found["evidence"]["limits"] == {"tp0": "max_tokens=4", "tp1": "max_tokens=4"}
    assert "the hook stopped at its limit (max_tokens=4)" in found["message"]


def test_parts_out_of_reach_are_finished_later(tool: Tool, connected: Connected, prompts: str, tmp_path: Path) -> None:
    output = str(tmp_path / "live")
    connected.server.fetched = gone
    status, _, _ = tool("sglang", "--server", "here", "--output", output, "--prompts", prompts)
    assert status == 2
    session = read_sent(output).session
    status, _, err = tool("sglang", "--from-parts", str(tmp_path / "spool" / session))
    assert (status, "needs --output DIR" in err) == (2, True)
    parts = str(tmp_path / "spool" / session)
    status, out, _ = tool("sglang", "--from-parts", parts, "--output", output, "--format", "json")
    assert (status, json.loads(out)["measurements"]["sequences"]) == (0, 2)
    assert not (tmp_path / "live" / REQUESTS_NAME).exists()
    status, _, err = tool("sglang", "--from-parts", parts, "--output", output)
    assert (status, REQUESTS_NAME in err) == (2, True)


@BOTH
def test_what_needs_no_server_is_said_without_one(tool: Tool, engine: str, prompts: str, tmp_path: Path) -> None:
    nowhere = [engine, "--server", "http://127.0.0.1:1", "--output", str(tmp_path / "live")]
    for words, told in (
        (["--prompts", prompts, "--conditions", "chunks"], "no condition 'chunks'"),
        (["--replay", str(tmp_path / "missing")], "no such file or folder"),
        ([], "one of --replay SHARDS and --prompts FILE"),
        (["--prompts", prompts], "no answer"),
    ):
        status, _, err = tool(*nowhere, *words)
        assert (status, told in err) == (2, True)


def test_sglangs_launch_flags(tool: Tool) -> None:
    status, out, _ = tool("sglang", "--launch-flags", "--engine", "sglang@0.5.12", "--spool", "/a spool")
    words = shlex.split(out)
    assert status == 0
    assert words[0] == "--forward-hooks"
    assert json.loads(words[1])[0]["config"] == {"spool": "/a spool"}
    assert words[2:] == ["--disable-piecewise-cuda-graph"]
    status, _, err = tool("sglang", "--launch-flags", "--engine", "sglang@0.5.9")
    assert (status, "no request ids" in err) == (2, True)


def test_vllms_launch_flags(tool: Tool, tmp_path: Path) -> None:
    status, out, err = tool("vllm", "--launch-flags")
    assert status == 0
    assert "--engine vllm@VERSION" in err
    assert shlex.split(out) == ["VLLM_PLUGINS=eagle_parity", f"{SPOOL_ENV}={tmp_path / 'spool'}"]
    _, out, _ = tool("vllm", "--launch-flags", "--engine", "vllm@0.25.0", "--spool", "/s")
    assert shlex.split(out) == ["VLLM_SERVER_DEV_MODE=1", f"{SPOOL_ENV}=/s"]


def test_the_hook_as_one_file(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / EXPORTED_NAME
    status, out, err = tool("sglang", "--export-hook", str(path))
    assert status == 0
    compile(path.read_text(), str(path), "exec")
    assert "eagle_parity_sglang:factory" in shlex.split(out)[1]  # flags alone, so that a shell can append them
    assert EXPORTED_NAME in err
    assert all(line.startswith("# ") for line in err.splitlines())
    status, _, err = tool("sglang", "--export-hook", str(tmp_path / "no" / "such" / "folder.py"))
    assert (status, len(err.strip().splitlines())) == (2, 1)


def test_the_hook_replaces_no_other_file(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "notes.py"
    path.write_text("mine")
    status, out, err = tool("sglang", "--export-hook", str(path))
    assert (status, out, path.read_text(), "--overwrite" in err) == (2, "", "mine", True)
    assert tool("sglang", "--export-hook", str(path), "--overwrite")[0] == 0
    assert tool("sglang", "--export-hook", str(path))[0] == 0  # the same once more


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_flags_are_for_a_shell_and_of_a_release(tool: Tool, engine: str) -> None:
    status, out, err = tool(engine, "--launch-flags", "--format", "json")
    assert (status, out, "words for a shell" in err) == (2, "", True)
    _, _, err = tool(engine, "--launch-flags", "--engine", f"{engine}@0.99.0")
    assert "no release whose rules are known" in err
