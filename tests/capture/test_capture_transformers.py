from __future__ import annotations

import io
import json
import lzma
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from eagle_parity.capture.manifest_file import read_manifest
from eagle_parity.capture.prompts import SkippedSequence, TokenSequence
from eagle_parity.capture.transformers import ReferenceForward, capture_transformers
from eagle_parity.cli.app import run
from eagle_parity.errors import InputError, MissingExtraError, UsageError
from eagle_parity.wiring import POST_NORM

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOKENS = tuple(range(5, 45))
SEQUENCE = TokenSequence("a", TOKENS)


def relative_error(actual: Any, expected: Any) -> float:
    """Median over tokens, the first one (a sink in real models) left out."""
    difference = (actual.float() - expected.float()).norm(dim=-1) / expected.float().norm(dim=-1)
    return float(difference[1:].median())


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def load(folder: Path, index: int = 0) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / read_manifest(folder).sequences[index].file))


def test_all_boundaries_are_the_states_between_the_layers(tiny_target: Path, tmp_path: Path) -> None:
    capture = capture_transformers(tiny_target, [SEQUENCE], tmp_path)
    assert capture.manifest.slots == list(range(11))
    assert capture.manifest.last_state == POST_NORM
    assert capture.manifest == read_manifest(tmp_path)
    tensors = load(tmp_path)

    # By an independent way: the library's own tuple, and the layers called one by one where it has a gap.
    model = transformers.LlamaForCausalLM.from_pretrained(tiny_target).eval()
    last_layer: list[Any] = []
    model.model.layers[9].register_forward_hook(lambda _m, _a, out: last_layer.append(out))
    with torch.no_grad():
        states = model(torch.tensor([TOKENS]), output_hidden_states=True).hidden_states
    pre_norm = last_layer[0][0] if isinstance(last_layer[0], tuple) else last_layer[0]
    for boundary in range(10):
        assert torch.allclose(tensors[f"slot.{boundary}"], states[boundary][0], atol=1e-5), boundary
    assert torch.allclose(tensors["slot.10"], pre_norm[0], atol=1e-5)
    assert torch.allclose(tensors["last_state"], states[10][0], atol=1e-5)
    assert relative_error(tensors["slot.10"], states[10][0]) > 0.1  # the norm is no identity here
    assert tensors["token_ids"].tolist() == list(TOKENS)


def test_a_list_is_kept_in_its_order_and_stored_in_another_dtype(tiny_target: Path, tmp_path: Path) -> None:
    capture_transformers(tiny_target, [SEQUENCE], tmp_path / "all")
    capture = capture_transformers(
        tiny_target, [SEQUENCE], tmp_path / "list", boundaries=[7, 0, 0], last_state=10, store_dtype="bfloat16"
    )
    every, some = load(tmp_path / "all"), load(tmp_path / "list")
    assert capture.manifest.producer.dtype == "float32"
    assert capture.manifest.dtype == "bfloat16"
    for slot, boundary in {"slot.0": 7, "slot.1": 0, "slot.2": 0, "last_state": 10}.items():
        assert torch.equal(some[slot], every[f"slot.{boundary}"].bfloat16())
    assert sorted(some) == ["last_state", "slot.0", "slot.1", "slot.2", "token_ids"]


def test_the_attention_implementations_agree(tiny_target: Path) -> None:
    sdpa = ReferenceForward(tiny_target).states(TOKENS, [10])[10]
    eager = ReferenceForward(tiny_target, attention="eager").states(TOKENS, [10])[10]
    assert relative_error(eager, sdpa) < 1e-4


def test_the_embedding_is_scaled_where_the_model_scales_it(tmp_path: Path) -> None:
    config = transformers.Gemma2Config(
        num_hidden_layers=2, hidden_size=64, intermediate_size=64, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, vocab_size=96,
    )  # fmt: skip
    model = transformers.Gemma2ForCausalLM(config)
    reference = ReferenceForward(saved(model, tmp_path), attention="eager")
    state = reference.states([5, 6, 7], [0])[0]
    raw = model.model.embed_tokens.weight[[5, 6, 7]].detach()
    assert torch.allclose(state, raw * 8, atol=1e-4)  # the square root of 64


def test_a_nested_decoder_is_found(tmp_path: Path) -> None:
    text = {
        "num_hidden_layers": 3, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 96, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True,
        },
    }  # fmt: skip
    # The vision tower has as many blocks as the decoder has layers: it must not be taken for it.
    vision = {"depth": 3, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision | {"deepstack_visual_indexes": [0]})
    folder = saved(transformers.Qwen3VLForConditionalGeneration(config), tmp_path)
    reference = ReferenceForward(folder)
    states = reference.states([1, 2, 3], [0, 1, 3, POST_NORM])
    embedding: Any = reference.model.get_input_embeddings()
    assert torch.equal(states[0], embedding.weight[[1, 2, 3]])
    assert torch.allclose(reference.norm(states[3]), states[POST_NORM], atol=1e-5)
    assert torch.allclose(
        reference.model.base_model(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state[0], states[POST_NORM]
    )


def test_an_unknown_structure_is_told(tmp_path: Path) -> None:
    config = transformers.MambaConfig(num_hidden_layers=2, hidden_size=16, vocab_size=32, state_size=4)
    with pytest.raises(InputError, match=r"no decoder of 2 layers|can't load it"):
        ReferenceForward(saved(transformers.MambaForCausalLM(config), tmp_path))


def test_a_layer_that_runs_twice_is_told(tiny_target: Path) -> None:
    reference = ReferenceForward(tiny_target)
    reference.model.model.layers[4] = reference.model.model.layers[3]  # as weight-shared models do
    with pytest.raises(InputError, match="boundary 3 is passed twice"):
        reference.states(TOKENS, [3])


def test_several_residual_streams_are_told(tiny_target: Path) -> None:
    reference = ReferenceForward(tiny_target)
    reference.target = type(reference.target)(
        **{name: getattr(reference.target, name) for name in reference.target.__slots__} | {"hidden_size": 32}
    )
    with pytest.raises(InputError, match="not one residual stream"):
        reference.states(TOKENS, [3])


def test_sequences_that_cannot_run_are_skipped_with_a_reason(tiny_target: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    capture = capture_transformers(
        tiny_target,
        [
            SkippedSequence("gone", "no token ids"),
            TokenSequence("empty", ()),
            TokenSequence("foreign", (1, 384)),
            TokenSequence("negative", (-1,)),
            TokenSequence("long", (1,) * 257),
            TokenSequence("good", (1,) * 256, loss_mask=(0,) * 200 + (1,) * 56),
        ],
        tmp_path,
        boundaries=[3],
        on_sequence=seen.append,
    )
    assert [s.name for s in capture.manifest.sequences] == ["good"]
    reasons = {skip.name: skip.reason for skip in capture.skipped}
    assert reasons["gone"] == "no token ids"
    assert reasons["empty"] == "no tokens"
    assert "token id 384 at position 1 is outside the target's vocabulary of 384" in reasons["foreign"]
    assert "token id -1" in reasons["negative"]
    assert "257 tokens, but the target has 256 positions" in reasons["long"]
    assert load(tmp_path)["loss_mask"].sum() == 56
    assert seen == ["empty", "foreign", "negative", "long", "good"]


def test_nothing_to_capture_is_an_error(tiny_target: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to capture"):
        capture_transformers(tiny_target, [], tmp_path)
    with pytest.raises(InputError, match=r"1 sequences were skipped; the first: b: no tokens"):
        capture_transformers(tiny_target, [TokenSequence("b", ())], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_source_costs_no_former_capture(tiny_target: Path, tmp_path: Path) -> None:
    capture_transformers(tiny_target, [SEQUENCE], tmp_path, boundaries=[3])

    def broken() -> Any:
        raise InputError("shards", "no shards in it")
        yield

    with pytest.raises(InputError, match="no shards"):
        capture_transformers(tiny_target, broken(), tmp_path, overwrite=True)
    assert read_manifest(tmp_path).complete


def test_a_boundary_that_the_target_does_not_have(tiny_target: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="boundary 11: the target has 10 layers"):
        capture_transformers(tiny_target, [SEQUENCE], tmp_path, boundaries=[3, 11])


def copied(target: Path, folder: Path, **config: object) -> Path:
    shutil.copytree(target, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def test_targets_that_are_none(tiny_target: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    truncated = copied(tiny_target, tmp_path / "truncated")
    weights = truncated / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    bare = copied(tiny_target, tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    cases = {
        tmp_path / "nowhere": "no such folder",
        tmp_path / "empty": r"no config\.json",
        truncated: "can't load it",
        bare: "no weights in this folder",
        copied(tiny_target, tmp_path / "vast", vocab_size=10**12): "claims an embedding of",
        copied(tiny_target, tmp_path / "deep", num_hidden_layers=10**9): "num_hidden_layers 1,000,000,000",
        copied(tiny_target, tmp_path / "more", num_hidden_layers=12): "weights are missing",
        copied(tiny_target, tmp_path / "odd", model_type="no-such-model"): "can't load it",
    }
    for folder, message in cases.items():
        with pytest.raises(InputError, match=message):
            ReferenceForward(folder)


def test_code_in_the_targets_folder_is_not_run(tiny_target: Path, tmp_path: Path) -> None:
    mine = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    folder = copied(tiny_target, tmp_path / "code", model_type="mine", auto_map=mine)
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InputError, match="can't load it"):
        ReferenceForward(folder)
    assert not (tmp_path / "ran").exists()


def test_a_missing_extra_is_named(tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"eagle-parity\[transformers\]"):
        capture_transformers(tiny_target, [SEQUENCE], tmp_path)


def test_the_command_end_to_end(tiny_target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"token_ids": [1, 2, 3, 4]}\n{"token_ids": [999]}\n{"token_ids": [5, 6]}\n{"token_ids": [7]}\n')
    call = ["capture", "transformers", "--target", str(tiny_target), "--prompts", str(prompts), "--format", "json"]
    call += ["--boundaries", "0,3-4", "--last-state", "10", "--sequences", "3", "--max-tokens", "3"]
    call += ["--output", str(tmp_path / "out")]
    assert run(call) == 0
    stdout, stderr = capsys.readouterr()
    assert stderr == ""
    result = json.loads(stdout)
    assert result["command"] == "capture"
    assert result["verdict"] == "pass"
    assert {k: result["measurements"][k] for k in ("sequences", "tokens", "boundaries", "last_state")} == {
        "sequences": 2, "tokens": 5, "boundaries": [0, 3, 4], "last_state": 10,
    }  # fmt: skip
    assert [skip["check"] for skip in result["skipped"]] == ["capture of prompts.jsonl:2"]
    assert read_manifest(tmp_path / "out").target.name == tiny_target.name

    assert run(call) == 2  # the folder isn't empty any more
    assert "--overwrite" in capsys.readouterr().err
    assert run([*call, "--overwrite"]) == 0


def test_a_replay_runs_over_the_tokens_of_a_capture(tiny_target: Path, tmp_path: Path) -> None:
    sequences = [SEQUENCE, TokenSequence("b", (9, 8, 7))]
    capture_transformers(tiny_target, sequences, tmp_path / "first", boundaries=[2, 5, 7])
    call = ["capture", "transformers", "--target", str(tiny_target), "--output", str(tmp_path / "second"), "--quiet"]
    assert run([*call, "--replay", str(tmp_path / "first")]) == 0
    first, second = read_manifest(tmp_path / "first"), read_manifest(tmp_path / "second")
    assert second.sequences == first.sequences
    for index in range(2):
        former, later = load(tmp_path / "first", index), load(tmp_path / "second", index)
        assert torch.equal(former["token_ids"], later["token_ids"])
        assert torch.equal(former["slot.1"], later["slot.5"])


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--prompts", "p", "--replay", "s"],
        ["--replay", "out"],
        ["--prompts", "p", "--boundaries", "x"],
        ["--prompts", "p", "--last-state", "1,2"],
        ["--prompts", "p", "--dtype", "int8"],
        ["--prompts", "p", "--sequences", "0"],
        ["--prompts", "no-such-file"],
    ],
)
def test_wrong_calls_are_usage_errors(
    tiny_target: Path, tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p").write_text("text\n")
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert run(["capture", "transformers", "--target", str(tiny_target), "--output", "out", *options]) == 2
    assert not Path("out").exists()


def test_the_samples_target_agrees_with_its_vocabulary(shared: Path, tmp_path: Path) -> None:
    """The sample shards' states, each in the place that ``truth.json`` gives it."""
    from safetensors.torch import load_file

    for source in (shared / "samples" / "_target" / "tiny-llama").iterdir():
        data = source.read_bytes()
        (tmp_path / source.name.removesuffix(".xz")).write_bytes(
            lzma.decompress(data) if source.suffix == ".xz" else data
        )
    reference = ReferenceForward(tmp_path)
    truth = json.loads((shared / "samples" / "truth.json").read_text())
    checked = 0
    for entry in truth["shards"]:
        for path in sorted((shared / "samples").glob(entry["files"])):
            if path.suffix not in {".safetensors", ".ckpt", ".pt"} or {"scales", "reader", "row_shift"} & set(entry):
                continue  # their containers are the readers' business
            is_safetensors = path.suffix == ".safetensors"
            tensors = load_file(path) if is_safetensors else torch.load(path, weights_only=True)
            token_ids = tensors[entry["ids"]].reshape(-1).tolist()
            states = reference.states(token_ids, [*range(11), POST_NORM])
            for key, named in entry["slots"].items():
                names = [named] if isinstance(named, str) else named
                for state, name in zip(split(tensors[key], len(names), entry), names, strict=True):
                    errors = {b: relative_error(state[: len(token_ids)], s) for b, s in states.items()}
                    nearest = sorted(errors, key=lambda b: errors[b])
                    assert nearest[0] == boundary_of(name), (path, key)
                    assert errors[nearest[0]] < 0.06
                    assert errors[nearest[1]] > 0.2
                    checked += 1
    assert checked > 50


def split(value: Any, count: int, entry: dict[str, Any]) -> list[Any]:
    if isinstance(value, list):
        return value
    if entry.get("slot_axis") == 1:
        return list(value.unbind(1))
    return list(value.reshape(-1, value.shape[-1]).chunk(count, dim=-1))


def boundary_of(name: str) -> int | str:
    if name == "post_norm":
        return POST_NORM
    return 10 if name == "pre_norm" else int(name.removeprefix("hf[").removesuffix("]"))


def test_the_real_models_shards_are_reproduced(shared: Path, smollm2: Path) -> None:
    """The shards of a real 30-layer model: boundaries 3, 16, 28 and 30, and no neighbour."""
    from safetensors.torch import load_file

    reference = ReferenceForward(smollm2)
    shards = sorted((shared / "testbed" / "shards-speculators" / "hidden_states").glob("*.safetensors"))
    for path in shards[:4]:
        tensors = load_file(path)
        states = reference.states(tensors["token_ids"].tolist(), range(31))
        for slot, boundary in enumerate((3, 16, 28, 30)):
            errors = {b: relative_error(tensors["hidden_states"][:, slot], state) for b, state in states.items()}
            nearest = sorted(errors, key=lambda b: errors[b])
            assert nearest[0] == boundary
            assert errors[nearest[0]] < 0.02
            assert errors[nearest[1]] > 0.2
