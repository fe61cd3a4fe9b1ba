"""What states the trained wiring, and what that can prove."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from conftest import ROOT

from eagle_parity.cli.app import run

if TYPE_CHECKING:
    from pathlib import Path

TARGET = str(ROOT / "eagle_parity/demo/data/target")  # 30 layers
IDS = "eagle_aux_hidden_state_layer_ids"


def draft(folder: Path, ids: list[int]) -> str:
    path = folder / "draft.json"
    config = json.loads((ROOT / "eagle_parity/demo/data/draft/config.json").read_text())
    config["eagle_config"][IDS] = ids
    path.write_text(json.dumps(config))
    return str(path)


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = run(["check-config", *arguments, "--target", TARGET, "--engine", "sglang@0.5.23", "--format", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_rule_that_reads_the_list_under_test_says_so(tmp_path: Path, capsys: Any) -> None:
    status, result = check(capsys, draft(tmp_path, [2, 15, 27]), "--trained-with", "specforge@0.2.0")
    assert (status, result["verdict"]) == (0, "pass")
    (skip,) = [s for s in result["skipped"] if s["check"] == "trained-declaration"]
    assert "the very list that is checked" in skip["reason"]
    status, result = check(capsys, draft(tmp_path, [2, 15, 27]), "--trained-boundaries", "3,16,28")
    assert not [s for s in result["skipped"] if s["check"] == "trained-declaration"]


def test_a_list_that_the_trainer_refuses_leaves_the_rest_checked(tmp_path: Path, capsys: Any) -> None:
    status, result = check(capsys, draft(tmp_path, [-1, 2, 15]), "--trained-with", "specforge@0.2.0")
    assert status == 3
    assert result["wiring"]["served"][0]["boundaries"] == [0, 3, 16]
    assert any("refuses ids below 0" in skip["reason"] and skip["blocks_verdict"] for skip in result["skipped"])


@pytest.mark.parametrize("trainer", ["specforge@9.9", "nobody@1.0", "specforge"])
def test_a_trainer_that_nobody_knows_is_wrong_usage(tmp_path: Path, capsys: Any, trainer: str) -> None:
    arguments = ["check-config", draft(tmp_path, [2, 15, 27]), "--target", TARGET, "--trained-with", trainer]
    assert run(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_list_that_lost_an_id_is_no_list_with_a_last_state(tmp_path: Path, capsys: Any) -> None:
    status, result = check(capsys, draft(tmp_path, [2, 15]), "--trained-boundaries", "3,16,28")
    assert status == 1
    (finding,) = [f for f in result["findings"] if f["severity"] == "error"]
    assert finding["name"] == "layer-id-convention"
    assert "takes 3 slots, not 2" in finding["message"]
    assert ". ." not in finding["message"]
    assert "[2, 15, 27]" in finding["remedy"]


@pytest.mark.parametrize("last", ["30", "post_norm"])
def test_a_last_boundary_beyond_the_slots_is_the_last_state(tmp_path: Path, capsys: Any, last: str) -> None:
    status, result = check(capsys, draft(tmp_path, [2, 15, 27]), "--trained-boundaries", f"3,16,28,{last}")
    assert status == 0
    assert result["wiring"]["trained"] == [3, 16, 28]
    assert str(result["wiring"]["last_state"]["trained"]) == last
