"""``inspect``: what each kind of path is called, what it can't say, and the exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from builders import (
    make_sequences,
    write_capture,
    write_nemo,
    write_sglang_dump,
    write_specforge,
    write_speculators_list,
    write_stacked,
)
from safetensors.torch import save_file

from eagle_parity import inspection
from eagle_parity.cli.app import run
from eagle_parity.results import decode_result

if TYPE_CHECKING:
    from pathlib import Path

DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 8,
    "vocab_size": 32,
    "draft_vocab_size": 16,
    "num_hidden_layers": 1,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 2, 15]},
}
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 30,
    "vocab_size": 32,
}


def inspect(capsys: pytest.CaptureFixture[str], *paths: Path, status: int = 0) -> dict[str, Any]:
    assert run(["inspect", *map(str, paths), "--format", "json"]) == status
    out = capsys.readouterr().out
    decode_result(out.encode(), path="stdout")
    document: dict[str, Any] = json.loads(out)
    return document


def write_draft(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(DRAFT))
    save_file({"fc.weight": torch.zeros(8, 24), "d2t": torch.zeros(16).long()}, folder / "model.safetensors")
    return folder


def test_shards_and_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sequences = make_sequences((3, 4))
    paths = (
        write_stacked(tmp_path / "vllm", sequences),
        write_stacked(tmp_path / "speculators", sequences, speculators=True),
        write_speculators_list(tmp_path / "list", sequences),
        write_specforge(tmp_path / "specforge", sequences),
        write_capture(tmp_path / "capture", sequences, slots=(3, 6, 8)),
    )
    document = inspect(capsys, *paths)
    assert document["verdict"] == "pass"
    told = document["measurements"]["paths"]
    assert [path["format"] for path in told] == ["stacked", "stacked", "speculators-list", "specforge", "capture"]
    assert all((path["sequences"], path["tokens"], path["hidden_size"]) == (2, 7, 8) for path in told)
    assert [path["slots"] for path in told] == [4, 3, 3, 3, 3]
    assert told[2]["declared"] == {"slots": [3, 6, 8], "last_state": 10}
    assert told[4]["kind"] == "capture"
    assert "diff-captures --reference" in told[0]["unknown"][0]
    assert told[2]["unknown"] == []
    assert document["inputs"][0]["tokens"] == 7


def test_a_file_that_holds_several_sequences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_nemo(tmp_path, make_sequences([4] * 40))
    (told,) = inspect(capsys, root)["measurements"]["paths"]
    # Of each sequence's four tokens the first isn't stored.
    assert (told["sequences"], told["tokens"], told["sequences_estimated"]) == (40, 120, None)
    assert told["declared"] == {"slots": [2, 5, 7], "last_state": None}
    assert any("--first-token" in text for text in told["unknown"])
    monkeypatch.setattr(inspection, "MAX_COUNTED", 5)
    document = inspect(capsys, root)
    (told,) = document["measurements"]["paths"]
    assert (told["sequences"], told["sequences_estimated"], told["sequences_counted"]) == (None, 40, 5)
    assert (told["tokens"], told["tokens_estimated"]) == (None, 120)
    assert document["inputs"][0]["sequences"] is None


def test_a_dump_of_sglang_says_why_it_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = write_sglang_dump(tmp_path, torch.zeros(12, 8)).iterdir()
    (told,) = inspect(capsys, path)["measurements"]["paths"]
    assert told["kind"] == "tensors"
    assert "SGLang's dumper" in told["not_read_because"]
    assert told["tensors"] == {"value": "[12, 8] float32", "meta": "no tensor"}


def test_the_collected_samples(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each set by what its facts say: layout, sequences, tokens, slots, dtype, whether a last state is stored."""
    expected = {
        "eagle/eagle1_ge_data": ("eagle-last-state", 1, 456, 0, "float16", "stored"),
        "eagle/eagle3_capture": ("eagle-list", 1, 38, 3, "bfloat16", "absent"),
        "speculators/v0.2.0-research-eagle3": ("speculators-research", 1, 105, 3, "bfloat16", "stored"),
        "speculators/v0.2.0-research-hass": ("speculators-research", 1, 102, 3, "float16", "stored"),
        "speculators/v0.3.0": ("speculators-list", 2, 77, 3, "bfloat16", "stored"),
        "speculators/v0.9.0": ("stacked", 3, 147, 3, "bfloat16", "stored"),
        "vllm/extract_ids_0_2_5_7_10": ("stacked", 1, 12, 5, "bfloat16", "undecided"),
        "hs-connectors/0.9.0-fp8": ("stacked-fp8", 2, 109, 4, "float8_e4m3fn", "undecided"),
        "hs-connectors/0.9.0-mooncake-object": ("mooncake", 1, 39, 4, "bfloat16", "undecided"),
        "modelopt/hf_head": ("modelopt", 2, 77, 3, "bfloat16", "stored"),
        "modelopt/vllm_head_1_4_6": ("modelopt", 2, 77, 3, "bfloat16", "stored"),
        "specforge/v010": ("specforge", 1, 38, 3, "bfloat16", "stored"),
        "specforge/d5de56f7": ("specforge", 1, 39, 3, "bfloat16", "absent"),
        "specforge/2ab6da7a": ("specforge", 1, 39, 3, "bfloat16", "stored"),
        "specforge/head": ("specforge", 2, 78, 3, "bfloat16", "stored"),
        "specforge/head_gz": ("specforge", 1, 39, 3, "bfloat16", "stored"),
        "angelslim": ("angelslim", 1, 38, 3, "bfloat16", "stored"),
        "nemo-automodel": ("nemo", 4, 177, 3, "bfloat16", "absent"),
        "torchspec": ("torchspec", 2, 77, 3, "bfloat16", "stored"),
    }
    facts = json.loads((shared / "samples" / "truth.json").read_text())["shards"]
    assert all(any(fact["files"].startswith(folder) for folder in expected) for fact in facts)
    document = inspect(capsys, *(shared / "samples" / folder for folder in expected))
    assert document["findings"] == []
    for told, facts_of_set in zip(document["measurements"]["paths"], expected.values(), strict=True):
        found = (told["format"], told["sequences"], told["tokens"], told["slots"], told["dtype"])
        assert (*found, told["last_state"]["stored"]) == facts_of_set
        assert told["hidden_size"] == 64
        # The one set that says all about itself has the trainer's own data_config.json.
        assert bool(told["unknown"]) is (told["format"] != "speculators-list")
        assert all("`" in text or "--" in text or "padding" in text for text in told["unknown"])


def test_draft(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (told,) = inspect(capsys, write_draft(tmp_path / "draft"))["measurements"]["paths"]
    assert told["kind"] == "draft"
    assert told["layer_ids"] == {"eagle_config.eagle_aux_hidden_state_layer_ids": [-1, 2, 15]}
    assert (told["fc"], told["slots"]) == ([8, 24], 3)
    assert told["weights"] == {"model.safetensors": {"d2t": "[16] int64", "fc.weight": "[8, 24] float32"}}
    assert any("check-config" in text for text in told["unknown"])


@pytest.mark.parametrize(
    ("config", "dialect", "meaning"),
    [
        ({"eagle_config": {"use_last_layernorm": True}}, "modelopt", "dumped with vLLM are one layer earlier"),
        ({"eagle_config": {}}, "specforge", "layer outputs"),
        ({"target_model_type": "qwen3"}, "angelslim", "which no engine reads"),
        ({"architectures": ["LlamaEagle3DraftModel"]}, "nemo-automodel", "manifest.json alone"),
        ({"speculators_model_type": "eagle3"}, "speculators", "from 0.5 on"),
        ({}, "flat", None),
    ],
)
def test_what_the_ids_of_a_dialect_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, Any], dialect: str, meaning: str | None
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 8, **config}))
    (told,) = inspect(capsys, path)["measurements"]["paths"]
    assert told["format"] == dialect
    if meaning is None:
        assert "ids_mean" not in told["facts"]
    else:
        assert meaning in told["facts"]["ids_mean"]


def test_the_ids_of_another_family_are_given_no_meaning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"speculators_model_type": "dflash", "aux_hidden_state_layer_ids": [1, 2]}))
    (told,) = inspect(capsys, path)["measurements"]["paths"]
    assert "dflash family" in told["description"]
    assert "ids_mean" not in told["facts"]


def test_draft_with_broken_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_draft(tmp_path / "draft")
    (folder / "model.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    (told,) = inspect(capsys, folder)["measurements"]["paths"]
    assert told["fc"] is None
    assert "truncated" in told["weights"]["model.safetensors"]


def test_target_and_bare_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.json").write_text(json.dumps(TARGET))
    (told,) = inspect(capsys, tmp_path / "some.json")["measurements"]["paths"]
    assert (told["kind"], told["num_layers"]) == ("target", 30)
    assert "boundaries 0 to 30" in told["description"]


def test_loose_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"d2t": torch.arange(3), "note": "text"}, tmp_path / "vocab_mapping.pt")
    (told,) = inspect(capsys, tmp_path / "vocab_mapping.pt")["measurements"]["paths"]
    assert told["kind"] == "tensors"
    assert told["tensors"] == {"d2t": "[3] int64", "note": "no tensor"}


def test_one_broken_shard_is_one_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_stacked(tmp_path, make_sequences([3] * 12))
    for path in sorted(root.glob("*.safetensors"))[-2:]:
        path.write_bytes(path.read_bytes()[:-4])
    document = inspect(capsys, root, status=1)
    (finding,) = document["findings"]
    assert finding["name"] == "unreadable-shard"
    assert (finding["evidence"]["unreadable"], finding["evidence"]["total"]) == (2, 12)
    assert document["measurements"]["paths"][0]["tokens"] == 30


def test_large_folders_are_sampled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "MAX_COUNTED", 5)
    (told,) = inspect(capsys, write_stacked(tmp_path, make_sequences([4] * 23)))["measurements"]["paths"]
    assert (told["sequences"], told["sequences_counted"]) == (23, 5)
    assert (told["tokens"], told["tokens_estimated"]) == (None, 92)


@pytest.mark.parametrize(
    ("name", "content"),
    [("nowhere", None), ("a.json", "{}"), ("b.json", "[1]"), ("c.json", "no"), ("d.pt", "no"), ("e.safetensors", "")],
)
def test_nothing_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    assert run(["inspect", str(path)]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("\n") == 1
    assert name in streams.err
    assert "expected" in streams.err


def test_one_path_of_two_is_unreadable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = inspect(capsys, tmp_path / "nowhere", write_draft(tmp_path / "draft"), status=1)
    assert [finding["name"] for finding in document["findings"]] == ["unreadable-shard"]
    assert len(document["measurements"]["paths"]) == 1


@pytest.mark.parametrize("format_", ["terminal", "markdown"])
def test_people_see_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], format_: str) -> None:
    shards = write_stacked(tmp_path / "shards", make_sequences((3, 4)))
    assert run(["inspect", str(shards), str(write_draft(tmp_path / "draft")), "--format", format_]) == 0
    text = capsys.readouterr().out
    for expected in ("stacked", "undecided", "can't say", "diff-captures", "[-1, 2, 15]", "fc.weight", "[8, 24]"):
        assert expected in text.replace("\\", "").replace("&#39;", "'"), expected
