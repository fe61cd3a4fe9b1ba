from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from config_cases import KIMI_CONFIG, LLAMA_CONFIG

from eagle_parity.cli.app import run
from eagle_parity.drafts import IDS, NESTED_IDS
from eagle_parity.results import Result, decode_result

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def kimi(tmp_path: Path) -> str:
    path = tmp_path / "kimi.json"
    path.write_text(json.dumps(KIMI_CONFIG))
    return str(path)


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Result]:
    capsys.readouterr()
    status = run([*arguments, "--format", "json"])
    return status, decode_result(capsys.readouterr().out.encode(), path="stdout")


def test_ids_for_the_newest_engines(kimi: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, result = ask(capsys, "ids", "3,31,59", "--target", kimi)
    rows = {row["engine"]: row for row in result.measurements["ids"]}
    assert status == 0
    assert rows["sglang@0.5.23"]["write"] == {NESTED_IDS: [3, 31, 59]}
    assert rows["vllm@0.32.0"]["write"] == {IDS: [3, 31, 59]}
    assert rows["vllm@0.32.0"]["variants"] == ["runner=v1", "runner=v2"]
    assert rows["sglang@0.5.23"]["target_class"] == "KimiK25ForConditionalGeneration"


def test_ids_depend_on_version_and_class(kimi: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, result = ask(capsys, "ids", "3,31,59", "--target", kimi, "--engine", "sglang@0.5.12")
    assert result.measurements["ids"][0]["ids"] == [2, 30, 58]
    (tmp_path / "llama.json").write_text(json.dumps(LLAMA_CONFIG))
    _, result = ask(capsys, "ids", "3,16,28", "--target", str(tmp_path / "llama.json"), "--engine", "sglang@0.5.23")
    assert result.measurements["ids"][0]["ids"] == [2, 15, 27]


def test_what_an_engine_can_t_serve_is_an_error(kimi: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, result = ask(capsys, "ids", "0,3,31", "--target", kimi, "--engine", "vllm@0.32.0")
    assert (status, [f.name for f in result.findings]) == (1, ["engine-failure"])
    assert "TypeError" in result.measurements["ids"][0]["reason"]
    status, result = ask(capsys, "ids", "31,3,59", "--target", kimi, "--engine", "sglang@0.5.23")
    assert status == 1
    assert "ascending order" in result.measurements["ids"][0]["reason"]


def test_unknown_versions_and_classes_are_inconclusive(
    kimi: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(capsys, "ids", "3,31,59", "--target", kimi, "--engine", "sglang@0.9.9")[0] == 3
    assert ask(capsys, "ids", "3,31,59", "--target", kimi, "--engine", "sglang@0.9.9", "--assume-nearest")[0] == 0
    (tmp_path / "new.json").write_text(json.dumps({**LLAMA_CONFIG, "architectures": ["NewForCausalLM"]}))
    assert ask(capsys, "ids", "3,16,28", "--target", str(tmp_path / "new.json"))[0] == 3


def test_a_boundary_beyond_the_target_is_wrong_usage(kimi: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ids", "3,31,62", "--target", kimi]) == 2
    assert "BOUNDARIES: 62 is no boundary of a target with 61 layers" in capsys.readouterr().err


def test_without_a_draft_the_class_that_was_assumed_is_said(kimi: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, result = ask(capsys, "ids", "3,31,59", "--target", kimi, "--engine", "sglang@0.5.23")
    assert [(skip.check, skip.blocks_verdict) for skip in result.skipped] == [("draft-class", False)]
    assert "LlamaForCausalLMEagle3" in result.skipped[0].reason
    assert "LlamaForCausalLMEagle3" in result.measurements["head"]
    assert [(i.role, i.format) for i in result.inputs] == [("target", "config")]


def test_with_a_draft_the_list_is_for_that_head(kimi: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write(config: dict[str, object]) -> str:
        (tmp_path / "draft.json").write_text(json.dumps(config))
        return str(tmp_path / "draft.json")

    call = ("ids", "3,16,31,59", "--target", kimi, "--engine", "vllm@0.32.0")
    _, blank = ask(capsys, *call)
    assert blank.measurements["ids"][0]["write"] == {IDS: [3, 16, 31, 59], NESTED_IDS: [3, 16, 31, 59]}
    # Qwen3's draft class counts the top-level list, so that it is enough.
    head = write({"architectures": ["Eagle3Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 7168})
    status, result = ask(capsys, *call, "--draft", head)
    assert status == 0
    assert result.measurements["ids"][0]["write"] == {IDS: [3, 16, 31, 59]}
    assert result.measurements["head"] == head
    assert result.skipped == []
    assert [(i.role, i.format) for i in result.inputs] == [("draft", "config"), ("target", "config")]
    other = write({"architectures": ["DFlashDraftModel"], "dflash_config": {}})
    assert run([*call, "--draft", other]) == 2
    assert "a draft of the family dflash" in capsys.readouterr().err


def test_an_engine_that_is_named_twice_is_answered_for_once(kimi: str, capsys: pytest.CaptureFixture[str]) -> None:
    engines = ("--engine", "sglang@0.5.23", "--engine", "vllm@0.32.0", "--engine", "sglang@0.5.23.0")
    _, result = ask(capsys, "ids", "3,31,59", "--target", kimi, *engines)
    assert [row["engine"] for row in result.measurements["ids"]] == ["sglang@0.5.23", "vllm@0.32.0"]


@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
def test_engines_prints_every_rule_with_its_source(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engines", "--format", form]) == 0
    printed = capsys.readouterr().out
    for word in ("0.5.23", "0.32.0", "deepseek", "partial-sums"):
        assert word in printed
