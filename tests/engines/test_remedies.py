from __future__ import annotations

from typing import Any

import pytest
from config_cases import draft_of, nested, target_of
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_parity.drafts import IDS, NESTED_IDS
from eagle_parity.engines import ENGINES, find_engine, parse_engine
from eagle_parity.engines.class_rules import Captures
from eagle_parity.engines.engine import EngineName
from eagle_parity.engines.ranges import in_force
from eagle_parity.engines.remedies import ConfigChange, NoChange, remedy, with_list
from eagle_parity.engines.serving import Served, serve, variants_of

LLAMA, KIMI = "LlamaForCausalLM", "KimiK25ForConditionalGeneration"


def find(engine: str, architecture: str, trained: tuple[Any, ...], **values: Any) -> ConfigChange | NoChange:
    name = parse_engine(engine)
    target = target_of(architecture)
    return remedy(
        find_engine(name), draft_of(target, **values), target, name=name, trained=trained, version=name.version
    )


@pytest.mark.parametrize(
    ("engine", "architecture", "trained", "values"),
    [
        ("sglang@0.5.12", KIMI, (3, 31, 59), {NESTED_IDS: [2, 30, 58]}),
        ("sglang@0.5.23", KIMI, (3, 31, 59), {NESTED_IDS: [3, 31, 59]}),
        ("sglang@0.5.23", KIMI, (0, 3, 31), {NESTED_IDS: [0, 3, 31]}),
        ("sglang@0.5.23", KIMI, (1, 5, 9), {NESTED_IDS: [5, 9, 1]}),
        ("sglang@0.5.23", LLAMA, (3, 16, 28), {NESTED_IDS: [2, 15, 27]}),
        ("sglang@0.5.23", LLAMA, (0, 3, 16), {NESTED_IDS: [-1, 2, 15]}),
        ("sglang@0.5.23", "GptOssForCausalLM", (24, 30, 61), {NESTED_IDS: [24, 30, 61]}),
        ("sglang@0.5.23", LLAMA, (3, 16, 28, 40), {NESTED_IDS: [2, 15, 27, 39]}),
        ("vllm@0.32.0", LLAMA, (3, 16, 28), {IDS: [3, 16, 28]}),
        ("vllm@0.32.0", LLAMA, (3, 16, 28, 40), {IDS: [3, 16, 28, 40], NESTED_IDS: [3, 16, 28, 40]}),
        ("vllm@0.32.0:impl=transformers", LLAMA, (28, 3, 16), {IDS: [28, 3, 16]}),
    ],
)
def test_the_list_to_write(engine: str, architecture: str, trained: tuple[int, ...], values: dict[str, Any]) -> None:
    change = find(engine, architecture, trained)
    assert isinstance(change, ConfigChange)
    assert change.values == values


def test_a_stale_list_of_another_length_is_replaced_too() -> None:
    change = find("vllm@0.32.0", LLAMA, (3, 16, 28), **nested([1, 2, 5, 9]))
    assert isinstance(change, ConfigChange)
    assert change.values == {IDS: [3, 16, 28], NESTED_IDS: [3, 16, 28]}


def test_a_head_that_was_switched_to_the_final_state_is_switched_back() -> None:
    change = find("sglang@0.5.23", LLAMA, (3, 16, 28), **nested([], use_aux_hidden_state=False))
    assert isinstance(change, ConfigChange)
    assert change.values == {NESTED_IDS: [2, 15, 27], "eagle_config.use_aux_hidden_state": True}


@pytest.mark.parametrize(
    ("engine", "architecture", "trained", "words"),
    [
        ("sglang@0.5.23", LLAMA, (28, 16, 3), "ascending order"),
        ("sglang@0.5.23", LLAMA, (3, 3, 28), "captures a layer once"),
        ("sglang@0.5.23", LLAMA, (3, 16, 61), "with any id list"),
        ("sglang@0.5.23", LLAMA, (3, 16, "post_norm"), "after the final norm"),
        ("sglang@0.5.12", LLAMA, (0, 3, 16), "TypeError"),
        ("vllm@0.32.0", KIMI, (0, 3, 31), "TypeError"),
        ("sglang@0.5.9", KIMI, (3, 31, 59), "set_eagle3_layers_to_capture"),
    ],
)
def test_what_no_list_can_do_is_said(engine: str, architecture: str, trained: tuple[Any, ...], words: str) -> None:
    change = find(engine, architecture, trained)
    assert isinstance(change, NoChange)
    assert words in change.reason


CASES = [
    (engine, rule, version)
    for engine in ENGINES
    for rule in engine.classes
    for version in engine.versions
    if version in {rule.first, rule.last}
]


@settings(deadline=None)  # a few hundred lists may be tried, on whatever else runs here
@given(
    st.integers(0, len(CASES) - 1),
    st.integers(5, 80),
    st.lists(st.integers(0, 80), min_size=1, max_size=5),
    st.booleans(),
)
def test_a_remedy_serves_what_it_promises(case: int, num_layers: int, wanted: list[int], nested_too: bool) -> None:
    engine, rule, version = CASES[case]
    trained = tuple(boundary % (num_layers + 1) for boundary in wanted)
    target = target_of(rule.architectures[0], num_layers)
    draft = draft_of(target, **(nested([1, 2, 3]) if nested_too else {}))
    name = EngineName(engine.name, version)
    change = remedy(engine, draft, target, name=name, trained=trained, version=version)
    if isinstance(change, NoChange):
        assert change.reason
        # Three ascending layers between the first and the last can be served wherever boundaries are captured at all.
        assert not (
            rule.captures is Captures.STREAM
            and len(trained) == 3
            and sorted(set(trained)) == list(trained)
            and 1 < trained[0] < trained[2] < num_layers
        )
        return
    assert rule.captures is Captures.STREAM or set(trained) <= {0, "post_norm"}
    written = in_force(engine.spellings, version)
    assert written is not None
    for variant in variants_of(engine, name, version):
        changed, launch = with_list(written, draft, variant, ids=change.ids, values=change.values)
        served = serve(engine, changed, target, name=name, variant=launch, version=version)
        assert isinstance(served, Served)
        assert served.serves
        assert served.boundaries == trained
