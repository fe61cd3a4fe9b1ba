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
    assert "62 is none of a target with 61 layers" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
def test_engines_prints_every_rule_with_its_source(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engines", "--format", form]) == 0
    printed = capsys.readouterr().out
    for word in ("0.5.23", "0.32.0", "deepseek", "partial-sums"):
        assert word in printed
