"""A head's map to the target's vocabulary: refused where there is none to make, and missed where one is needed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from config_cases import LLAMA_CONFIG, check, draft_config, make_target, named, nested, only
from safetensors.torch import save_file

from eagle_parity.drafts import IDS, read_draft
from eagle_parity.results import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from eagle_parity.results import Result

LLAMA = make_target(LLAMA_CONFIG)
HIDDEN, VOCAB, PRUNED = LLAMA_CONFIG["hidden_size"], LLAMA_CONFIG["vocab_size"], 64
TRAINED = (3, 16, 28)
VLLM_LIST: dict[str, Any] = {IDS: list(TRAINED)}


def head(folder: Path, *, entries: int | None, **values: Any) -> str:
    """A folder with a config and weights of which only the header matters; ``entries`` is the length of d2t."""
    weights = {"fc.weight": torch.zeros(1, 3 * HIDDEN), "t2d": torch.zeros(VOCAB, dtype=torch.bool)}
    if entries is not None:
        weights["d2t"] = torch.zeros(entries, dtype=torch.int64)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(draft_config(LLAMA_CONFIG, **values)), encoding="utf-8")
    return str(folder)


def judge(folder: str, *engines: str, trained: tuple[int, ...] | None = TRAINED) -> Result:
    return check(read_draft(folder), LLAMA, *engines, trained=trained)


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0"])
@pytest.mark.parametrize("stated", [{}, {"draft_vocab_size": None}, {"draft_vocab_size": VOCAB}])
def test_vllm_refuses_a_map_over_the_whole_vocabulary(tmp_path: Path, version: str, stated: dict[str, Any]) -> None:
    result = judge(head(tmp_path, entries=VOCAB, **VLLM_LIST, **stated), f"vllm@{version}")
    assert result.verdict is Verdict.FAIL
    assert named(result) == ["engine-failure"]
    finding = only(result, "engine-failure")
    assert finding.engine == f"vllm@{version}"
    assert "no module or parameter named 'draft_id_to_target_id'" in finding.message
    assert "model_executor/models/llama_eagle3.py" in finding.evidence["source"]
    assert finding.evidence["shape"] == [VOCAB]
    assert "Take d2t out of the draft's weights" in finding.remedy
    assert "vLLM 0.28.0" in finding.remedy
    assert {served.outcome.value for served in result.wiring.served} == {"fails-at-load"}
    # The list is read all the same.
    assert {tuple(served.boundaries) for served in result.wiring.served} == {TRAINED}


@pytest.mark.parametrize("engine", ["vllm@0.25.0", "vllm@0.28.0", "sglang@0.5.8", "sglang@0.5.23"])
def test_others_read_it(tmp_path: Path, engine: str) -> None:
    ids = nested([2, 15, 27]) if engine.startswith("sglang") else VLLM_LIST
    result = judge(head(tmp_path, entries=VOCAB, draft_vocab_size=VOCAB, **ids), engine)
    assert named(result) == []
    assert all(served.outcome.value == "serves" for served in result.wiring.served)


def test_a_map_of_a_smaller_vocabulary_is_what_it_is_for(tmp_path: Path) -> None:
    folder = head(tmp_path, entries=PRUNED, draft_vocab_size=PRUNED, **VLLM_LIST)
    assert named(judge(folder, "vllm@0.32.0")) == []


def test_where_the_config_states_no_smaller_vocabulary_the_map_says_its_size(tmp_path: Path) -> None:
    finding = only(judge(head(tmp_path, entries=PRUNED, **VLLM_LIST), "vllm@0.32.0"), "engine-failure")
    assert finding.remedy == (f"Write draft_vocab_size: {PRUNED} into the draft's config: its d2t has so many entries.")


def test_the_list_is_judged_beside_the_map(tmp_path: Path) -> None:
    """Two faults, two findings, and the remedy of the one isn't hidden by the other."""
    folder = head(tmp_path, entries=VOCAB, draft_vocab_size=VOCAB, **{IDS: [2, 15, 27]})
    result = judge(folder, "vllm@0.32.0")
    assert sorted(named(result)) == ["engine-failure", "layer-id-convention"]
    assert only(result, "layer-id-convention").evidence["change"] == {IDS: list(TRAINED)}


@pytest.mark.parametrize("engine", ["vllm@0.25.0", "vllm@0.32.0", "sglang@0.5.8", "sglang@0.5.23"])
def test_a_smaller_vocabulary_without_a_map_is_told_once(tmp_path: Path, engine: str) -> None:
    ids = nested([2, 15, 27]) if engine.startswith("sglang") else VLLM_LIST
    result = judge(head(tmp_path, entries=None, draft_vocab_size=PRUNED, **ids), engine)
    assert named(result) == ["vocab-map-missing"]
    finding = only(result, "vocab-map-missing")
    assert f"chooses from {PRUNED} tokens" in finding.message
    assert list(finding.evidence["engines"]) == [engine]
    assert "llama_eagle3.py" in finding.evidence["engines"][engine]


def test_without_weights_nothing_is_said(tmp_path: Path) -> None:
    folder = head(tmp_path, entries=VOCAB, draft_vocab_size=PRUNED, **VLLM_LIST)
    (tmp_path / "model.safetensors").unlink()
    result = judge(folder, "vllm@0.32.0", "sglang@0.5.23")
    assert not {"engine-failure", "vocab-map-missing"} & set(named(result))
    assert "vocab-map" not in [skip.check for skip in result.skipped]


def test_a_file_that_cannot_be_read_may_hold_the_map(tmp_path: Path) -> None:
    folder = head(tmp_path, entries=None, draft_vocab_size=PRUNED, **VLLM_LIST)
    (tmp_path / "other.safetensors").write_bytes(b"\xff" * 16)
    result = judge(folder, "vllm@0.32.0")
    assert named(result) == []
    assert "vocab-map" in [skip.check for skip in result.skipped]
