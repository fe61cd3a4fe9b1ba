from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file

from eagle_parity.target_weights import find_embedding, read_final_norm
from eagle_parity.targets import Target, read_target

if TYPE_CHECKING:
    from pathlib import Path

EMBEDDING = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
NORM = torch.tensor([0.5, 1.0, 1.5, 2.0])


def target(folder: Path, **config: Any) -> Target:
    settings = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 4, **config}
    (folder / "config.json").write_text(json.dumps(settings))
    return read_target(str(folder))


def save(path: Path, prefix: str = "model.", **more: torch.Tensor) -> None:
    tensors = {f"{prefix}embed_tokens.weight": EMBEDDING.bfloat16(), f"{prefix}norm.weight": NORM}
    save_file({**tensors, **more}, path)


@pytest.mark.parametrize("prefix", ["model.", "model.language_model.", "language_model.model."])
def test_rows_and_gains(prefix: str, tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", prefix)
    table = find_embedding(target(tmp_path))
    assert table is not None
    rows = table.rows(torch.tensor([3, 3, 0, 9]))
    assert rows.dtype == torch.float32
    assert torch.equal(rows, EMBEDDING.bfloat16().float()[[3, 3, 0, 9]])
    gains = read_final_norm(target(tmp_path))
    assert gains is not None
    assert torch.equal(gains, NORM)


def test_ids_outside_the_vocabulary_have_no_row(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors")
    table = find_embedding(target(tmp_path))
    assert table is not None
    assert table.rows(torch.tensor([-1, 10, 2**40, 1])).isnan().all(1).tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("config", "scale"),
    [({"model_type": "gemma2"}, 2.0), ({"embedding_multiplier": 12}, 12.0), ({"scale_emb": 3.5}, 3.5), ({}, 1.0)],
)
def test_the_scale_of_the_first_boundary(config: dict[str, Any], scale: float, tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors")
    table = find_embedding(target(tmp_path, **config))
    assert table is not None
    assert math.isclose(table.scale, scale)
    assert torch.equal(table.rows(torch.tensor([1])), EMBEDDING.bfloat16().float()[1:2] * scale)


def test_gemma_stores_gains_minus_one(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors")
    gains = read_final_norm(target(tmp_path, model_type="gemma3_text"))
    assert gains is not None
    assert torch.equal(gains, NORM + 1)


def test_sharded_weights_are_found_by_the_index(tmp_path: Path) -> None:
    save_file({"model.embed_tokens.weight": EMBEDDING}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"model.norm.weight": NORM}, tmp_path / "model-00002-of-00002.safetensors")
    weight_map = {
        "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
        "model.norm.weight": "model-00002-of-00002.safetensors",
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert find_embedding(target(tmp_path)) is not None
    assert read_final_norm(target(tmp_path)) is not None


def test_an_index_points_nowhere_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    save(tmp_path / "secret.safetensors")
    for name in ("../secret.safetensors", str(tmp_path / "secret.safetensors"), 3, None):
        index = {"weight_map": {"model.embed_tokens.weight": name, "model.norm.weight": name}}
        (tmp_path / "target" / "model.safetensors.index.json").write_text(json.dumps(index))
        assert find_embedding(target(tmp_path / "target")) is None
        assert read_final_norm(target(tmp_path / "target")) is None


@pytest.mark.parametrize("index", ["nope", "[]", '{"weight_map": 3}'])
def test_without_a_usable_index_the_files_are_searched(index: str, tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert find_embedding(target(tmp_path)) is not None


def test_an_index_that_names_a_tensor_which_is_not_there(tmp_path: Path) -> None:
    save_file({"other": NORM}, tmp_path / "model.safetensors")
    index = {"weight_map": {"model.embed_tokens.weight": "model.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert find_embedding(target(tmp_path)) is None


@pytest.mark.parametrize("data", [b"", b"nope", b"\xff" * 100])
def test_damaged_weights_are_none(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    (tmp_path / "folder.safetensors").mkdir()
    assert find_embedding(target(tmp_path)) is None
    assert read_final_norm(target(tmp_path)) is None


def test_a_config_alone_has_no_weights(tmp_path: Path) -> None:
    target(tmp_path)
    alone = read_target(str(tmp_path / "config.json"))
    assert find_embedding(alone) is None


def test_a_table_of_another_width_is_another_models(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors")
    assert find_embedding(target(tmp_path, hidden_size=8)) is None
    assert read_final_norm(target(tmp_path, hidden_size=8)) is None
