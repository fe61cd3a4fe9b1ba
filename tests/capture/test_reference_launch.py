from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from config_cases import target_of

from eagle_parity.capture.manifest import CapturedTarget, Manifest, Producer
from eagle_parity.capture.reference_launch import ReferenceLaunch, missing_boundaries, reference_launch
from eagle_parity.engines import parse_engine
from eagle_parity.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.wiring import Boundary, BoundaryEntry

LAYERS = 8
ALL = tuple(range(LAYERS + 1))
LLAMA, DEEPSEEK = "LlamaForCausalLM", "DeepseekV3ForCausalLM"


def launch(
    engine: str, wanted: Sequence[Boundary] | None = None, architecture: str = LLAMA, *, exported: bool = False
) -> ReferenceLaunch:
    target = target_of(architecture, num_layers=LAYERS, hidden_size=128)
    return reference_launch(parse_engine(engine), target, wanted, "/spool", exported=exported)


def hook_of(flags: Sequence[str]) -> dict[str, Any]:
    (hook,) = json.loads(flags[list(flags).index("--forward-hooks") + 1])
    assert isinstance(hook, dict)
    return hook


def test_sglang_s_own_mode_and_what_the_hook_records_beside_it() -> None:
    found = launch("sglang@0.5.23")
    flags = list(found.flags)
    start = flags.index("--return-aux-hidden-state-layer-ids")
    assert flags[start + 1 : start + 8] == [str(number) for number in range(7)]
    assert flags[start + 8 :] == ["--speculative-algorithm", "EAGLE3"]
    hook = hook_of(flags)
    assert hook["config"] == {"spool": "/spool", "beside": [0, 8]}
    assert "model.norm" in hook["target_modules"]
    assert (found.records, found.missing, found.environment) == (ALL, (), {})


def test_nothing_is_recorded_beside_what_the_list_reaches() -> None:
    found = launch("sglang@0.5.23", [3, 6])
    assert hook_of(found.flags)["config"] == {"spool": "/spool"}
    assert "model.norm" not in hook_of(found.flags)["target_modules"]
    assert (found.records, len(found.notes)) == ((3, 6), 1)
    assert "384 values a token" in found.notes[0]
    assert hook_of(launch("sglang@0.5.23", None, DEEPSEEK).flags)["config"]["beside"] == [8]


def test_a_hook_in_one_file_is_named_as_such() -> None:
    assert hook_of(launch("sglang@0.5.23", exported=True).flags)["hook_factory"] == "eagle_parity_sglang:factory"


@pytest.mark.parametrize("engine", ["sglang@0.5.12", "sglang@0.5.17"])
def test_older_sglang_gets_the_list_through_the_plugin(engine: str) -> None:
    found = launch(engine)
    assert found.environment == {
        "EAGLE_PARITY_SPOOL": "/spool",
        "EAGLE_PARITY_LAYER_IDS": "0,1,2,3,4,5,6",
        "EAGLE_PARITY_BESIDE": "0,8",
    }
    assert not [flag for flag in found.flags if "hook" in flag or "speculative" in flag]
    assert found.records == ALL


def test_without_plugins_there_is_no_way() -> None:
    with pytest.raises(UsageError, match="no plugins"):
        launch("sglang@0.5.10")
    with pytest.raises(UsageError, match="needs the plugin"):
        launch("sglang@0.5.17", exported=True)


def test_vllm_needs_no_connector() -> None:
    found = launch("vllm@0.32.0")
    flag, value = found.flags
    assert flag == "--speculative-config"
    assert json.loads(value) == {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(ALL)}},
    }
    assert found.environment == {"VLLM_PLUGINS": "eagle_parity", "EAGLE_PARITY_SPOOL": "/spool"}
    assert any("1,152 values a token" in note for note in found.notes)


def test_what_vllm_can_t_hand_over_is_told() -> None:
    found = launch("vllm@0.32.0", None, DEEPSEEK)
    assert (found.records, found.missing) == (ALL[1:], (0,))


@pytest.mark.parametrize(
    ("engine", "wanted", "architecture", "told"),
    [
        ("sglang@0.9.9", None, LLAMA, "don't know this version"),
        ("sglang@0.5.23", [9], LLAMA, "9 is no boundary"),
        ("sglang@0.5.23", None, "Gemma3ForCausalLM", "FFN branch"),
        ("vllm@0.32.0", None, "NobodysForCausalLM", "no rule"),
        ("vllm@0.32.0:impl=transformers", None, LLAMA, "dies at start"),
    ],
)
def test_refusals(engine: str, wanted: Sequence[Boundary] | None, architecture: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        launch(engine, wanted, architecture)


def test_the_last_state_is_recorded_anyhow() -> None:
    assert launch("vllm@0.32.0", [3, "post_norm"]).records == (3,)


def manifest(slots: Sequence[BoundaryEntry], last_state: BoundaryEntry = "post_norm") -> Manifest:
    return Manifest(
        complete=True,
        producer=Producer(engine="sglang@0.5.23", dtype="bfloat16"),
        target=CapturedTarget(name="t", architectures=[LLAMA], num_layers=3, hidden_size=4),
        slots=list(slots),
        last_state=last_state,
        dtype="bfloat16",
        sequences=[],
    )


def test_a_capture_is_held_against_what_was_asked_for() -> None:
    assert missing_boundaries(manifest([0, 1, 2, 3]), None) is None
    assert missing_boundaries(manifest([1, 3]), [3, 1, "post_norm"]) is None
    told = missing_boundaries(manifest([1, 2]), None)
    assert told is not None
    assert "hands over (1, 2), without (0, 3)" in told
    told = missing_boundaries(manifest([1, 2], last_state=None), [1, "post_norm"])
    assert told is not None
    assert "without (post_norm)" in told
    told = missing_boundaries(manifest([None, None]), [1])
    assert told is not None
    assert "isn't known" in told
