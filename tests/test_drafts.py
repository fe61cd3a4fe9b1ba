from __future__ import annotations

import contextlib
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from config_cases import KIMI_CONFIG, LLAMA_CONFIG, draft_config, make_draft, make_target, nested, serve_one
from hypothesis import given
from hypothesis import strategies as st

from eagle_parity.dialects import Dialect
from eagle_parity.drafts import IDS, Family, read_draft
from eagle_parity.errors import InputError, ParityError
from eagle_parity.trainers import trained_with

if TYPE_CHECKING:
    from pathlib import Path


def write_safetensors(path: Path, header: dict[str, Any], size: int | None = None) -> None:
    raw = json.dumps(header).encode()
    payload = max((entry["data_offsets"][1] for entry in header.values()), default=0) if size is None else size
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(payload))


def fc_header(out: int, inner: int) -> dict[str, Any]:
    return {"fc.weight": {"dtype": "BF16", "shape": [out, inner], "data_offsets": [0, out * inner * 2]}}


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"]}, Family.EAGLE3),
        ({"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, Family.EAGLE3),
        ({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 32000}, Family.EAGLE3),
        ({"fc_norm": True}, Family.EAGLE3),
        (nested([1, 2, 3]), Family.EAGLE3),
        ({"speculators_model_type": "eagle3"}, Family.EAGLE3),
        ({"speculators_model_type": "dflash"}, Family.DFLASH),
        ({"speculators_model_type": "quantum"}, Family.UNKNOWN),
        ({"architectures": ["DFlashDraftModel"], "dflash_config": {}}, Family.DFLASH),
        ({"dflash_config": {"projector_type": "dspark"}}, Family.DSPARK),
        ({"architectures": ["DSparkDraftModel"]}, Family.DSPARK),
        ({"architectures": ["PEagleDraftModel"], "draft_vocab_size": 5}, Family.P_EAGLE),
        ({"model_type": "eagle", "model": {"hidden_size": 4096}}, Family.EAGLE_1_2),
        ({"architectures": ["DeepseekV3ForCausalLMNextN"]}, Family.MTP),
        ({"architectures": ["Qwen3NextForCausalLMMTP"]}, Family.MTP),
        ({"architectures": ["DeepSeekMTPModel"]}, Family.MTP),
        ({"architectures": ["LlamaForCausalLMEagle"]}, Family.EAGLE_1_2),
        ({"architectures": ["EagleLlamaForCausalLM"]}, Family.EAGLE_1_2),
        ({"architectures": ["DFlash2DraftModel"], "target_layer_ids": [1, 2]}, Family.DFLASH),
        ({"architectures": ["Qwen3DSparkModel"], "dspark_target_layer_ids": [1, 2]}, Family.DSPARK),
        ({"architectures": ["DSparkMiniMaxDraftModel"], "dflash_config": {"target_layer_ids": [1]}}, Family.DSPARK),
        ({"speculators_model_type": "peagle"}, Family.P_EAGLE),
        ({"speculators_model_type": "mtp"}, Family.MTP),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}, Family.UNKNOWN),
    ],
)
def test_families(config: dict[str, Any], family: Family) -> None:
    assert make_draft(config).family is family


@pytest.mark.parametrize("config", [KIMI_CONFIG, LLAMA_CONFIG, {}, {"hello": "world"}, {"num_hidden_layers": 10**30}])
def test_what_is_no_draft_is_refused_in_one_line(config: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected an EAGLE-3 draft's config"):
        make_draft(config)


def test_dialects() -> None:
    modelopt = nested([1, 2, 3], use_last_layernorm=True, parallel_draft_step=1)
    assert make_draft(draft_config(LLAMA_CONFIG, **modelopt)).dialect is Dialect.MODELOPT
    assert make_draft({"architectures": ["LlamaEagle3DraftModel"]}).dialect is Dialect.NEMO
    angelslim = {"architectures": ["Eagle3LlamaForCausalLM"], "target_model_type": "qwen3"}
    assert make_draft(angelslim).dialect is Dialect.ANGELSLIM
    assert make_draft(draft_config(LLAMA_CONFIG, aux_hidden_states_layer_ids=[1, 2, 3])).dialect is Dialect.ANGELSLIM
    assert make_draft(draft_config(LLAMA_CONFIG, **nested([1, 2, 3]))).dialect is Dialect.SPECFORGE
    assert make_draft(draft_config(LLAMA_CONFIG, **{IDS: [1, 2, 3]})).dialect is Dialect.FLAT
    assert make_draft({"speculators_model_type": "eagle3"}).dialect is Dialect.SPECULATORS


def test_torchspec_is_told_by_its_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(draft_config(LLAMA_CONFIG, **nested([1, 2, 3]))))
    header = json.dumps({"__metadata__": {"torchspec_version": "0.1"}, **fc_header(4, 12)}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(96))
    assert read_draft(str(tmp_path)).dialect is Dialect.TORCHSPEC


@pytest.mark.parametrize(
    ("folder", "dialect", "ids", "boundaries"),
    [
        ("modelopt047", Dialect.MODELOPT, [1, 4, 6], {"modelopt@0.47.0:dump=hf": (2, 5, 7)}),
        ("specforge020", Dialect.SPECFORGE, [1, 4, 6], {"specforge@0.2.0": (2, 5, 7)}),
        ("speculators090", Dialect.SPECULATORS, [2, 5, 7], {"speculators@0.9.0": (2, 5, 7)}),
        # The converter drops the list; what is left is the default, which happens to be the same.
        ("converted_specforge_to_speculators", Dialect.SPECULATORS, None, {"speculators@0.9.0": (2, 5, 7)}),
    ],
)
def test_collected_exports(
    shared: Path, folder: str, dialect: Dialect, ids: list[int] | None, boundaries: dict[str, tuple[int, ...]]
) -> None:
    draft = read_draft(str(shared / "samples" / "drafts" / folder))
    target = make_target({**LLAMA_CONFIG, "num_hidden_layers": 10, "hidden_size": 64})
    assert (draft.family, draft.dialect) == (Family.EAGLE3, dialect)
    assert [list(entry.ids or ()) for entry in draft.id_lists] == ([] if ids is None else [ids])
    assert draft.fc_slots(64) == (None if ids is None else 3)
    for trainer, slots in boundaries.items():
        assert trained_with(trainer, draft, target).wiring.slots == slots
    # The same layers in two spellings: each engine reads one of them, or takes its default, which is the same here.
    for engine in ("sglang@0.5.23", "vllm@0.32.0:runner=v2"):
        served = serve_one(engine, draft, target)
        assert (served.boundaries, served.serves) == ((2, 5, 7), True)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("1,2", "a string"),
        ({"a": 1}, "an object"),
        ([1.5, 2], "no integer"),
        ([True, 2], "no integer"),
        ([[1], 2], "no integer"),
        ([None, 2], "no integer"),
        ([10**40, 2], "the number of no layer"),
        (list(range(10**6)), "1,000,000 entries"),
    ],
)
def test_malformed_lists_are_told_and_bounded(raw: object, problem: str) -> None:
    (entry,) = make_draft(draft_config(LLAMA_CONFIG, **{IDS: raw})).id_lists
    assert entry.ids is None
    assert entry.problem is not None
    assert problem in entry.problem
    assert len(str(entry)) < 2000


def test_every_place_is_found_and_can_be_changed() -> None:
    draft = make_draft(draft_config(LLAMA_CONFIG, **{IDS: [3], "target_layer_ids": [4], **nested([2])}))
    assert {entry.key: entry.ids for entry in draft.id_lists} == {
        f"eagle_config.{IDS}": (2,),
        IDS: (3,),
        "target_layer_ids": (4,),
    }
    changed = draft.with_changes({f"eagle_config.{IDS}": [9], IDS: [8]})
    assert [entry.ids for entry in changed.id_lists] == [(9,), (8,), (4,)]
    assert changed.section["use_aux_hidden_state"] is True
    assert [entry.ids for entry in draft.id_lists] == [(2,), (3,), (4,)]


def test_folder_config_and_bare_json_are_the_same_draft(tmp_path: Path) -> None:
    config = json.dumps(draft_config(LLAMA_CONFIG, **nested([2, 15, 27])))
    for name in ("config.json", "other.json"):
        (tmp_path / name).write_text(config)
    write_safetensors(tmp_path / "model.safetensors", fc_header(2, 3 * 576))
    drafts = [read_draft(str(path)) for path in (tmp_path, tmp_path / "config.json", tmp_path / "other.json")]
    assert {d.fc_shape for d in drafts} == {(2, 1728)}
    assert {d.fc_slots(576) for d in drafts} == {3}
    assert len({str(d.config) for d in drafts}) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 4,
        struct.pack("<Q", 10**13) + b"{}",
        struct.pack("<Q", 4) + b"nope",
        struct.pack("<Q", 2) + b"{}",
    ],
)
def test_a_damaged_weight_file_leaves_the_config_readable(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_text(json.dumps(draft_config(LLAMA_CONFIG)))
    (tmp_path / "model.safetensors").write_bytes(content)
    draft = read_draft(str(tmp_path))
    assert draft.fc_shape is None
    assert draft.fc_source is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@given(JSON, JSON, JSON, JSON)
def test_arbitrary_values_never_raise_anything_else(a: object, b: object, c: object, d: object) -> None:
    config = {"architectures": a, "model_type": b, IDS: c, "hidden_size": d, "eagle_config": {IDS: b}, "model": a}
    with contextlib.suppress(ParityError):
        make_draft(config)
    with contextlib.suppress(ParityError):
        make_draft({**config, "eagle_config": d, "transformer_layer_config": c, "dflash_config": a})


def test_a_name_keeps_its_own_quotes() -> None:
    assert make_draft(draft_config(LLAMA_CONFIG, model_type='"odd"')).model_type == '"odd"'


def test_a_draft_is_a_checkpoint_where_weights_lie_beside_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(draft_config(LLAMA_CONFIG)))
    assert read_draft(str(tmp_path)).format == "config"
    write_safetensors(tmp_path / "model.safetensors", fc_header(2, 3 * 576))
    assert read_draft(str(tmp_path)).format == "checkpoint"
