from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eagle_parity.capture import prompts
from eagle_parity.capture.prompts import (
    SkippedSequence,
    TargetEncoder,
    TokenSequence,
    limit_sequences,
    prompt_sequences,
    replay_sequences,
)
from eagle_parity.errors import InputError

NO_TOKENIZER = "no-such-folder"


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_token_ids_need_no_tokenizer(tmp_path: Path) -> None:
    path = write(tmp_path, "p.jsonl", '{"token_ids": [1, 2]}\n\n  {"token_ids": [3]}\n')
    assert list(prompt_sequences(path, TargetEncoder(NO_TOKENIZER))) == [
        TokenSequence("p.jsonl:1", (1, 2)),
        TokenSequence("p.jsonl:3", (3,)),
    ]
    path = write(tmp_path, "p.yaml", "- token_ids: [1, 2]\n- {token_ids: [3]}\n")
    assert [
        s.token_ids for s in prompt_sequences(path, TargetEncoder(NO_TOKENIZER)) if isinstance(s, TokenSequence)
    ] == [(1, 2), (3,)]


def test_text_and_messages_go_through_the_targets_tokenizer(tmp_path: Path, smollm2: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(smollm2)
    user, assistant = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}
    entries = [{"text": "A glacier"}, {"messages": [user]}, {"messages": [user, assistant]}]
    json_lines = write(tmp_path, "p.jsonl", "\n".join(map(json.dumps, entries)))
    yaml = write(tmp_path, "p.yml", "- A glacier\n- messages: [{role: user, content: Hi}]\n")
    text = write(tmp_path, "p.txt", "A glacier\n")

    def texts(path: Path) -> list[str]:
        return [
            tokenizer.decode(s.token_ids)
            for s in prompt_sequences(path, TargetEncoder(smollm2))
            if isinstance(s, TokenSequence)
        ]

    plain, opened, closed = texts(json_lines)
    assert plain == "A glacier"
    assert opened.endswith("user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert closed.endswith("assistant\nHello.<|im_end|>\n")
    assert texts(yaml) == [plain, opened]
    assert texts(text) == [plain]


def test_a_bad_entry_is_skipped_and_the_others_are_read(
    tmp_path: Path, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "MAX_LINE_BYTES", 200)
    monkeypatch.setattr(prompts, "MAX_TOKENS", 50)
    cases = {
        "{bad": "not JSON",
        '{"a":' * 39: "not JSON",
        '{"text": "\xff"}': "not UTF-8 text|not JSON",
        "[1, 2]": "list; expected",
        "{}": r"keys \[\]; expected",
        '{"token_ids": [1, true]}': "no list of integers",
        '{"token_ids": [1.0]}': "no list of integers",
        '{"token_ids": "12"}': "no list of integers",
        json.dumps({"token_ids": [1] * 51}): "at most 50",
        '{"messages": []}': "0 messages",
        '{"messages": ["x"]}': "no list of objects",
        '{"messages": [{"role": "user"}]}': "tokenizer refuses it",
        json.dumps({"text": "x" * 500}): "a line of more than 200 bytes",
    }
    lines = [line.encode("latin-1") for line in cases]
    path = write(tmp_path, "p.jsonl", b'{"token_ids": [1]}\n' + b"\n".join(lines) + b'\n{"token_ids": [2]}')
    first, *skipped, last = prompt_sequences(path, TargetEncoder(smollm2))
    assert first == TokenSequence("p.jsonl:1", (1,))
    assert last == TokenSequence(f"p.jsonl:{len(cases) + 2}", (2,))
    for skip, reason in zip(skipped, cases.values(), strict=True):
        assert isinstance(skip, SkippedSequence)
        assert re.search(reason, skip.reason), skip


def test_files_that_hold_no_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content, message in {
        "text: hello": "YAML, but dict",
        "- [": "not YAML",
        "!!python/object/apply:os.system ['touch ran']": "not YAML",
        "[" * 5000: "not YAML",
    }.items():
        with pytest.raises(InputError, match=message):
            list(prompt_sequences(write(tmp_path, "p.yaml", content), TargetEncoder(NO_TOKENIZER)))
    monkeypatch.setattr(prompts, "MAX_YAML_BYTES", 10)
    with pytest.raises(InputError, match="use JSON lines"):
        list(prompt_sequences(write(tmp_path, "p.yaml", "- " + "x" * 20), TargetEncoder(NO_TOKENIZER)))
    with pytest.raises(InputError, match="expected a prompt file"):
        list(prompt_sequences(tmp_path, TargetEncoder(NO_TOKENIZER)))
    assert list(prompt_sequences(write(tmp_path, "p.txt", "\n \n"), TargetEncoder(NO_TOKENIZER))) == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match=f"{path}: no regular file"):
            list(prompt_sequences(path, TargetEncoder(NO_TOKENIZER)))
    with pytest.raises(InputError, match="an empty path"):
        list(prompt_sequences("", TargetEncoder(NO_TOKENIZER)))


def test_a_target_without_a_tokenizer_is_told(tmp_path: Path, tiny_target: Path) -> None:
    path = write(tmp_path, "p.txt", "A prompt\n")
    with pytest.raises(InputError, match="tokenizer can't be loaded"):
        list(prompt_sequences(path, TargetEncoder(tiny_target)))


def test_limits_count_what_is_usable() -> None:
    source: list[TokenSequence | SkippedSequence] = [
        SkippedSequence("a", "broken"),
        TokenSequence("b", (1, 2, 3), (0, 1, 1)),
        TokenSequence("c", (1,)),
        TokenSequence("d", (1,)),
    ]
    assert list(limit_sequences(source, sequences=2, max_tokens=2)) == [
        source[0],
        TokenSequence("b", (1, 2), (0, 1)),
        source[2],
    ]
    assert list(limit_sequences(source)) == source


def test_a_replay_takes_the_token_ids_and_tells_what_it_could_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from eagle_parity.hidden_states import HiddenStates, Layout, StateSequence, Unreadable

    files: dict[str, StateSequence | Unreadable] = {
        "good": StateSequence("good", torch.tensor([[4, 5]]), (), loss_mask=torch.tensor([[0, 1]])),
        "torn mask": StateSequence("torn mask", torch.tensor([4, 5]), (), loss_mask=torch.tensor([1])),
        "no ids": StateSequence("no ids", None, ()),
        "broken": Unreadable("broken", "truncated"),
    }
    layout = Layout("stacked", "", slots=3, hidden_size=8, dtype="bfloat16")
    states = HiddenStates(Path("s"), layout, tuple(files), files.__getitem__, (Unreadable("x", "a picture"),))
    readers = ModuleType("eagle_parity.readers")
    given: list[tuple[str, int | None]] = []

    def opened(_path: str, *, role: str, first_token: int | None) -> HiddenStates:
        given.append((role, first_token))
        return states

    readers.open_hidden_states = opened  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "eagle_parity.readers", readers)
    assert list(replay_sequences("s")) == [
        SkippedSequence("x", "a picture"),
        TokenSequence("good", (4, 5), (0, 1)),
        TokenSequence("torn mask", (4, 5)),
        SkippedSequence("no ids", "the file has no token ids to replay"),
        SkippedSequence("broken", "truncated"),
    ]
    assert given == [("replay", None)]
    lacking = replace(states, layout=replace(layout, first_token=False))
    readers.open_hidden_states = lambda *_, **__: lacking  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="--first-token"):
        list(replay_sequences("s"))
