"""The readers against shards that the trainers' own code wrote, where these are at hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open

from eagle_parity.errors import InputError
from eagle_parity.hidden_states import LastStateRule, StateSequence
from eagle_parity.readers import open_hidden_states
from eagle_parity.wiring import POST_NORM, Wiring

if TYPE_CHECKING:
    from pathlib import Path

    from eagle_parity.hidden_states import Rows

ALONE = {
    "eagle/eagle1_ge_data/0/*.ckpt": "eagle-last-state",
    "eagle/eagle3_capture/*.pt": "eagle-list",
    "speculators/v0.2.0-research-eagle3/0/*.ckpt": "speculators-research",
    "speculators/v0.2.0-research-hass/0/*.ckpt": "speculators-research",
    "hs-connectors/0.9.0-fp8/*.safetensors": "stacked-fp8",
    "hs-connectors/0.9.0-mooncake-object/*.bin": "mooncake",
    "modelopt/hf_head/*.pt": "modelopt",
    "modelopt/vllm_head_1_4_6/*.pt": "modelopt",
    "angelslim/rank_0/*/*.ckpt": "angelslim",
    "nemo-automodel/shard-*.safetensors": "nemo",
    "torchspec/*_hs": "torchspec",
}
"""The sets that have a reader of their own."""

READ = {
    "speculators/v0.3.0/data_*.pt": "speculators-list",
    "speculators/v0.9.0/hidden_states/*.safetensors": "stacked",
    "vllm/extract_ids_0_2_5_7_10/*.safetensors": "stacked",
    "specforge/v010/*/*.ckpt": "specforge",
    "specforge/d5de56f7/*/*.ckpt": "specforge",
    "specforge/2ab6da7a/*/*.ckpt": "specforge",
    "specforge/head/*/*.ckpt": "specforge",
    "specforge/head_gz/*/*.ckpt.gz": "specforge",
}
"""The sets of the first three layouts."""

LIST_KEYS = {"speculators-list": "hidden_states", "stacked": "hidden_states", "specforge": "aux_hidden_state"}


def truth(shared: Path) -> list[dict[str, Any]]:
    shards: list[dict[str, Any]] = json.loads((shared / "samples" / "truth.json").read_text())["shards"]
    return shards


def independently(path: Path, kind: str) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor | None]:
    """Token ids, slots and last state by the libraries' own loaders."""
    if kind == "stacked":
        with safe_open(path, "pt") as file:
            states = file.get_tensor("hidden_states")
            return file.get_tensor("token_ids"), list(states.unbind(1)), None
    content = torch.load(path, weights_only=True)
    if kind == "speculators-list":
        return content["input_ids"], content["hidden_states"][:-1], content["hidden_states"][-1]
    last = content["hidden_state"][0]
    aux = content["aux_hidden_state"][0]
    return content["input_ids"], list(aux.split(64, dim=-1)), last if last.shape[-1] == 64 else None


def same(rows: Rows | None, expected: torch.Tensor) -> bool:
    return rows is not None and torch.equal(rows.read(0, rows.tokens), expected)


@pytest.mark.parametrize("files", READ)
def test_samples_are_read_as_the_truth_has_them(shared: Path, files: str) -> None:
    kind = READ[files]
    (fact,) = [fact for fact in truth(shared) if fact["files"] == files]
    slots = fact["slots"][LIST_KEYS[kind]]
    for path in sorted((shared / "samples").glob(files)):
        states = open_hidden_states(path, role="trained")
        layout = states.layout
        assert (layout.format, layout.hidden_size) == (kind, 64)
        stored = layout.slots + (layout.last_state is LastStateRule.STORED)
        expected = len(slots) + (kind == "specforge" and fact["slots"]["hidden_state"] != "logits")
        assert stored == expected
        sequence = states.open(path.name)
        assert isinstance(sequence, StateSequence)
        if path.suffix == ".gz":
            continue  # the libraries have no loader for it; the round trips compare it
        token_ids, parts, last = independently(path, kind)
        assert sequence.token_ids is not None
        assert torch.equal(sequence.token_ids, token_ids)
        if layout.format == "stacked" and layout.last_state is LastStateRule.STORED:
            parts, last = parts[:-1], parts[-1]
        assert len(sequence.slots) == len(parts)
        assert all(same(rows, part) for rows, part in zip(sequence.slots, parts, strict=True))
        assert (sequence.last_state is None) is (last is None)
        if last is not None:
            assert same(sequence.last_state, last)


def test_what_the_samples_declare(shared: Path) -> None:
    samples = shared / "samples"
    old = open_hidden_states(samples / "speculators" / "v0.3.0", role="trained").layout
    # truth.json: hf[3], hf[6], hf[8] and pre_norm of ten layers, for ids [2, 5, 7, 9].
    assert old.declared == Wiring((3, 6, 8), 10)
    new = open_hidden_states(samples / "speculators" / "v0.9.0", role="trained")
    assert new.layout.last_state is LastStateRule.STORED
    assert len(new.names) == 3
    head = open_hidden_states(samples / "specforge" / "head", role="trained").layout
    assert head.last_state_boundary == POST_NORM


def test_every_set_of_the_truth_has_a_reader(shared: Path) -> None:
    assert {fact["files"] for fact in truth(shared)} == READ.keys() | ALONE.keys()


def loaded(path: Path, kind: str) -> list[tuple[torch.Tensor, list[torch.Tensor], torch.Tensor | None]]:
    """Token ids, slots and last state of each sequence, by the libraries' own loaders or from the bare bytes."""
    if kind == "mooncake":
        manifest = json.loads(path.with_name(path.stem + ".kv_transfer_params.json").read_text())["tensors"]
        data = bytearray(path.read_bytes())
        ids, states = (
            torch.frombuffer(data, dtype=dtype, offset=entry["offset"], count=entry["nbytes"] // dtype.itemsize).view(
                entry["shape"]
            )
            for dtype, entry in (
                (torch.int64, manifest["token_ids"]),
                (torch.bfloat16, manifest["hidden_states"]),
            )
        )
        return [(ids, list(states.unbind(1)), None)]
    if kind == "torchspec":
        key = path.name.removesuffix("_hs")

        def raw(name: str, dtype: torch.dtype) -> torch.Tensor:
            return torch.frombuffer(bytearray(path.with_name(f"{key}_{name}").read_bytes()), dtype=dtype)

        states = raw("hs", torch.bfloat16).view(-1, 192)
        return [
            (
                raw("ids", torch.int64),
                [states[:, i : i + 64] for i in (0, 64, 128)],
                raw("lhs", torch.bfloat16).view(-1, 64),
            )
        ]
    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            content = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  it is no dict
    else:
        content = torch.load(path, weights_only=True)
    if kind == "stacked-fp8":
        states = content["hidden_states"].float() * content["hidden_states_scales"]
        return [(content["token_ids"], list(states.unbind(1)), None)]
    if kind == "nemo":
        found: list[tuple[torch.Tensor, list[torch.Tensor], torch.Tensor | None]] = []
        for ids, mask, aux in zip(
            content["input_ids"], content["attention_mask"], content["aux_hidden_states"], strict=True
        ):
            length = int(mask.sum())
            # Row t of the ids is about the token of row t + 1 of the states.
            found.append((ids[: length - 1], list(aux[1:length].split(64, -1)), None))
        return found
    ids = content["input_ids"].reshape(-1)
    if kind == "eagle-list":
        return [(ids, content["hs"], None)]
    if kind == "eagle-last-state":
        return [(ids, [], content["hidden_state"])]
    aux_key, last_key = {
        "speculators-research": ("hidden_state", "target"),
        "modelopt": ("aux_hidden_states", "hidden_states"),
        "angelslim": ("hidden_states", "target_hiddens"),
    }[kind]
    aux, last = content[aux_key].reshape(len(ids), -1), content[last_key].reshape(len(ids), -1)
    return [(ids, list(aux.split(64, -1)), last)]


@pytest.mark.parametrize("files", ALONE)
def test_samples_are_read_bit_for_bit(shared: Path, files: str) -> None:
    kind = ALONE[files]
    paths = sorted((shared / "samples").glob(files))
    assert paths
    for path in paths:
        states = open_hidden_states(path, role="trained")
        expected = loaded(path, kind)
        assert (states.layout.format, states.layout.hidden_size) == (kind, 64)
        assert states.layout.unknown
        assert len(states.names) == len(expected)
        for name, (token_ids, slots, last) in zip(states.names, expected, strict=True):
            sequence = states.open(name)
            assert isinstance(sequence, StateSequence)
            assert sequence.token_ids is not None
            assert torch.equal(sequence.token_ids, token_ids)
            assert states.count_tokens(name) == sequence.rows == len(token_ids)
            assert len(sequence.slots) == len(slots) == states.layout.slots
            assert all(same(rows, slot) for rows, slot in zip(sequence.slots, slots, strict=True))
            assert (sequence.last_state is None) is (last is None)
            assert last is None or same(sequence.last_state, last)


def test_a_draft_is_no_shard(shared: Path) -> None:
    with pytest.raises(InputError, match="no layout that is known"):
        open_hidden_states(shared / "samples" / "drafts" / "speculators090", role="trained")


def test_testbed(shared: Path) -> None:
    stacked = open_hidden_states(shared / "testbed" / "shards-speculators", role="trained")
    specforge = open_hidden_states(shared / "testbed" / "shards-specforge", role="trained")
    assert (len(stacked.names), stacked.layout.slots, stacked.layout.hidden_size) == (12, 4, 576)
    assert stacked.layout.last_state is LastStateRule.UNDECIDED
    assert (len(specforge.names), specforge.layout.slots, specforge.layout.hidden_size) == (4, 3, 576)
    # The first four sequences are in both: their slots are the same numbers.
    split = stacked.decide_last_state(stored=True)
    for name, other in zip(split.names, specforge.names, strict=False):
        one, two = split.open(name), specforge.open(other)
        assert isinstance(one, StateSequence)
        assert isinstance(two, StateSequence)
        assert one.token_ids is not None
        assert two.token_ids is not None
        assert torch.equal(one.token_ids, two.token_ids)
        assert all(same(rows, o.read(0, o.tokens)) for rows, o in zip(one.slots, two.slots, strict=True))
