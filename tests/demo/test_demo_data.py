"""The recorded data is what the demo says it is: each state is nearest to its own boundary, with margin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import eagle_parity
from eagle_parity.capture.manifest_file import read_manifest

torch = pytest.importorskip("torch")

DATA = Path(eagle_parity.__file__).parent / "demo" / "data"
MAX_BYTES = 1_700_000


def load(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(path))


def references() -> list[dict[Any, Any]]:
    manifest = read_manifest(DATA / "reference")
    assert manifest.last_state == "post_norm"
    states = []
    for sequence in manifest.sequences:
        tensors = load(DATA / "reference" / sequence.file)
        states.append({"ids": tensors["token_ids"]} | {b: tensors[f"slot.{i}"] for i, b in enumerate(manifest.slots)})
    return states


def nearest(state: Any, reference: dict[Any, Any]) -> tuple[Any, float, float]:
    """The nearest boundary and its distance, and the distance of the next one; the sink token left out."""
    errors = {
        b: float(((state.float() - r.float()).norm(dim=1) / r.float().norm(dim=1))[1:].median())
        for b, r in reference.items()
        if b != "ids"
    }
    first, second, *_ = sorted(errors, key=lambda b: errors[b])
    return first, errors[first], errors[second]


def test_the_data_is_small() -> None:
    files = [path for path in DATA.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json", ".md"}
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES


def test_each_recorded_state_is_the_boundary_it_stands_for() -> None:
    live = read_manifest(DATA / "live")
    assert live.slots == [0, 3, 16]
    assert live.producer.engine.startswith("transformers@")
    for index, (reference, sequence) in enumerate(zip(references(), live.sequences, strict=True)):
        shard = load(DATA / "shards" / "hidden_states" / f"hs_{index}.safetensors")
        fed = load(DATA / "live" / sequence.file)
        assert torch.equal(shard["token_ids"], reference["ids"])
        assert torch.equal(fed["token_ids"], reference["ids"])
        cases = [(shard["hidden_states"][:, slot], b) for slot, b in enumerate((3, 16, 28, 30))]
        cases += [(fed[f"slot.{slot}"], b) for slot, b in enumerate((0, 3, 16))]
        for state, boundary in cases:
            found, distance, runner_up = nearest(state, reference)
            assert found == boundary
            assert distance < 0.02
            assert runner_up > 0.2


def test_the_three_recordings_are_three_computations() -> None:
    """A distance of zero would be no measurement."""
    reference = references()[0]
    shard = load(DATA / "shards" / "hidden_states" / "hs_0.safetensors")["hidden_states"]
    fed = load(DATA / "live" / "sequence_000000.safetensors")
    assert not torch.equal(shard[:, 0], reference[3])
    assert not torch.equal(fed["slot.1"], reference[3])
    assert not torch.equal(fed["slot.1"], shard[:, 0])


def test_the_draft_has_the_faulty_list() -> None:
    draft = json.loads((DATA / "draft" / "config.json").read_text())
    target = json.loads((DATA / "target" / "config.json").read_text())
    assert draft["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [-1, 2, 15]
    assert draft["hidden_size"] == target["hidden_size"] == read_manifest(DATA / "live").target.hidden_size
    assert target["num_hidden_layers"] == 30
