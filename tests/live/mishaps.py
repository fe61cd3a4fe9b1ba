"""Scenarios that both engines share: a chat template, conditions, traffic, a full disk, a killed server."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.spool.files import TOKEN_FILE
from eagle_parity.capture.spool.folder import read_token
from live.captures import manifest, tensors, traffic
from live.storage import small_disk
from live.tool import Ran, run_json, run_tool, start_tool
from live.workshop import LENGTHS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from live.captures import CapturedEngine
    from live.scenarios import Scenario
    from live.servers import Server
    from live.workshop import Workshop

CONVERSATION = [{"role": "user", "content": "which layers?"}]
TEXT = "boundary three"
_LONG_ANSWER = "200"
"""Tokens: so that the capture is under way for long enough to be interrupted."""
_PARTS_BEFORE_KILL = 12
"""Of both ranks, target and draft: some sequences are whole by then."""
_WAIT_SECONDS = 300.0


def check_chat_template(engine: str, server: Server, target: Path, folder: Path, scenario: Scenario) -> None:
    """A conversation and a text, encoded by the server, are what transformers makes of them."""
    from transformers import AutoTokenizer

    scenario.expect("a conversation goes through the server's template and a text through its tokenizer")
    prompts = folder / "chat.jsonl"
    lines = [json.dumps({"messages": CONVERSATION}), json.dumps({"text": TEXT})]
    prompts.write_text("\n".join(lines) + "\n", "utf-8")
    words = ["capture", engine, "--server", server.url, "--prompts", str(prompts), "--output", str(folder / "chat")]
    run_json(*words, "--spool", spool_of(server))
    tokenizer = AutoTokenizer.from_pretrained(target)
    wanted = [
        tokenizer.apply_chat_template(CONVERSATION, add_generation_prompt=True, return_dict=False),
        tokenizer(TEXT)["input_ids"],
    ]
    files = [sequence["file"] for sequence in manifest(folder / "chat")["sequences"]]
    found = [tensors(folder / "chat" / name)["token_ids"].tolist() for name in files]
    scenario.find("equal token ids" if found == wanted else f"{found} instead of {wanted}")
    assert found == wanted


def check_conditions(capture: Path, compared: Ran, scenario: Scenario) -> None:
    """What was recorded in a batch, in chunks and behind a warm prefix is what was recorded alone."""
    scenario.expect("batch, chunk and prefix recorded, in each every slot as alone; no prefix-dependent")
    conditions = compared.result["measurements"]["recording"]["conditions"]
    found = {
        each["name"]: f"{each['slots'][0]['sequences']} sequences, {max(slot['largest'] for slot in each['slots']):.2g}"
        for each in conditions
    }
    scenario.find({**found, **manifest(capture)["live"]["skipped_conditions"]})
    assert set(found) == {"batch", "chunk", "prefix"}
    assert compared.errors == []


def check_under_traffic(
    engine: CapturedEngine,
    server: Server,
    workshop: Workshop,
    undisturbed: Path,
    folder: Path,
    send: Callable[[list[int]], None],
    scenario: Scenario,
) -> None:
    """A capture while other people's requests share its batches."""
    scenario.expect("every sequence complete and equal to the undisturbed capture; nobody else's rows stored")
    with traffic(send) as sent:
        recorded = engine.capture(server, workshop, folder / "live")["measurements"]
    during = sent[0]
    ran = run_json("diff-captures", str(undisturbed), str(folder / "live"))
    stored = [rank["tokens"] for rank in manifest(folder / "live")["live"]["ranks"]]
    left = files_left(server)
    scenario.find(
        f"{recorded['sequences']} sequences, {ran.result['verdict']}, beside {during} other requests; rows stored"
        f" {stored}, left in the spool {left}"
    )
    assert during > 0
    assert recorded["sequences"] == len(LENGTHS)
    assert recorded["incomplete"] == []
    assert stored == [sum(LENGTHS)] * 2
    assert left == ["token"]


def files_left(server: Server) -> list[str]:
    """What lies in a server's spool."""
    return sorted(path.name for path in (server.folder / "spool").iterdir())


def spool_of(server: Server) -> str:
    """Where a server of these tests has it."""
    return str(server.folder / "spool")


def check_full_disk(engine: str, server: Server, workshop: Workshop, folder: Path, scenario: Scenario) -> None:
    """A disk without much room, and one without any: the capture fails in words, the server answers."""
    scenario.expect("the capture says that the disk is full, status 2 or 3; the server goes on")
    told = []
    spool = server.folder / "spool"
    token = read_token(spool)
    for name, size in (("little", "64m"), ("none", "4k")):
        with small_disk(spool, size):
            # The disk lies over the spool; what makes a folder a spool is its token.
            (spool / TOKEN_FILE).write_text(token, "ascii")
            (spool / TOKEN_FILE).chmod(0o600)
            words = ["capture", engine, "--server", server.url, "--prompts", str(workshop.prompts()), "--token", token]
            words += ["--sequences", "1", "--output", str(folder / name), "--spool", str(spool)]
            ran = run_tool(*words, expected={2, 3})
            told.append(f"{size}: {ran.status}, {(ran.stderr.strip() or ran.stdout.strip()).splitlines()[-1]}")
            scenario.find("; ".join(told))
    healthy = server.healthy()
    scenario.find(f"{'; '.join(told)}; server {'healthy' if healthy else 'gone'}")
    assert healthy
    assert all("GiB free" in line or "No space left" in line for line in told)


def check_killed(engine: str, server: Server, workshop: Workshop, folder: Path, scenario: Scenario) -> None:
    """SIGKILL to all processes of a server while it is captured."""
    scenario.expect("SIGKILL in mid-capture: what was whole is readable, the manifest says complete: false")
    spool, output = server.folder / "spool", folder / "killed"
    words = ["capture", engine, "--server", server.url, "--prompts", str(workshop.prompts()), "--output", str(output)]
    before = set(spool.glob("*/*.safetensors"))
    process = start_tool(*words, "--generate", _LONG_ANSWER, "--spool", str(spool))
    deadline = time.monotonic() + _WAIT_SECONDS
    while len(set(spool.glob("*/*.safetensors")) - before) < _PARTS_BEFORE_KILL and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    server.kill()
    stdout, stderr = process.communicate(timeout=_WAIT_SECONDS)
    scenario.find(f"exit {process.returncode}: {stderr.strip()[-200:]}")
    content: dict[str, Any] = manifest(output)
    whole = [sequence for sequence in content["sequences"] if tensors(output / sequence["file"])]
    inspected = run_json("inspect", str(output), expected={0, 1, 3})
    lost = content["live"]["incomplete"]
    scenario.find(
        f"exit {process.returncode}, {len(whole)} sequences readable, complete {content['complete']}, inspect exit"
        f" {inspected.status}, {len(lost)} lost: {lost[0]['reason'][:120] if lost else stdout[:160]}"
    )
    assert whole
    assert content["complete"] is False
