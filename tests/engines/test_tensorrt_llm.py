"""TensorRT-LLM's rules: the list is the launch's, a set; -1 is the final state; what no layer answers to is fed too."""

from __future__ import annotations

import re
from typing import Any

import pytest
from config_cases import draft_of, nested, serve_all, serve_one, target_of, top, trained_on

from eagle_parity.config_check import check_config
from eagle_parity.engines import find_engine, parse_engine
from eagle_parity.engines.remedies import ConfigChange, NoChange, remedy
from eagle_parity.engines.serving import Served, Unjudged, serve, variants_of
from eagle_parity.engines.tensorrt_llm import CLASSES, LAUNCH_IDS, VERSION
from eagle_parity.ids_to_write import ids_to_write
from eagle_parity.results import Outcome, Verdict

ENGINE = f"tensorrt-llm@{VERSION}"
LAYERS = 36
DEFAULT = (2, 18, 33)


def served(options: str = "", architecture: str = "Qwen3ForCausalLM", layers: int = LAYERS, **values: Any) -> Served:
    target = target_of(architecture, layers)
    got = serve_one(f"{ENGINE}:{options}", draft_of(target, **values), target)
    assert isinstance(got, Served)
    return got


@pytest.mark.parametrize("architecture", [rule.architectures[0] for rule in CLASSES])
@pytest.mark.parametrize(
    ("options", "boundaries"),
    [
        ("", DEFAULT),
        ("ids=1+17+32", DEFAULT),
        ("ids=2+18+33", (3, 19, 34)),
        ("ids=33+2+18+2", (3, 19, 34)),
        ("ids=0+35", (1, 36)),
        ("ids=-1+2+18", ("post_norm", 3, 19)),
        ("ids=-1+2+18,one-model=yes", ("post_norm", 3, 19)),
        ("ids=-1+2+18,one-model=no", (3, 19, "post_norm")),
        ("ids=-2+-1+2,one-model=no", (None, "post_norm", 3)),
        ("ids=2+18+36", (3, 19, None)),
        ("ids=-2+2+18", (None, 3, 19)),
    ],
)
def test_what_a_list_of_the_launch_serves(architecture: str, options: str, boundaries: tuple[Any, ...]) -> None:
    got = served(options, architecture)
    assert got.boundaries == boundaries
    assert got.outcome is Outcome.SERVES
    assert got.default is (options == "")


@pytest.mark.parametrize(
    "values",
    [
        nested([5, 6, 7]),
        top([5, 6, 7]),
        {"speculative_config": {"eagle3_layers_to_capture": [5, 6, 7]}},
        {"eagle3_layers_to_capture": [5, 6, 7]},
    ],
)
def test_no_key_of_the_drafts_config_is_read(values: dict[str, Any]) -> None:
    got = served(**values)
    assert (got.boundaries, got.key) == (DEFAULT, None)


@pytest.mark.parametrize("layers", [2, 5])
def test_a_shallow_target_has_no_default(layers: int) -> None:
    got = served(layers=layers)
    assert got.outcome is Outcome.FAILS_AT_LOAD
    assert got.failure is not None
    assert "needs 6 layers" in got.failure.words
    assert served("ids=0+1", layers=layers).boundaries == (1, 2)


def unjudged(architecture: str, layers: int) -> str:
    target = target_of(architecture, layers)
    (got,) = serve_all(ENGINE, draft_of(target), target)
    assert isinstance(got, Unjudged)
    return got.reason


def test_a_default_of_its_own_is_not_judged() -> None:
    assert served(layers=7).boundaries == (2, 3, 4)
    assert "names layer 2 twice" in unjudged("Qwen3ForCausalLM", 6)
    assert "another default" in unjudged("Qwen3ForCausalLM", 1)
    assert served("ids=0", layers=1).boundaries == (1,)


def test_a_class_or_release_that_was_not_read_is_not_judged() -> None:
    assert "no rule for the target class Qwen2ForCausalLM" in unjudged("Qwen2ForCausalLM", LAYERS)
    target = target_of("Qwen3ForCausalLM", LAYERS)
    result = check_config(draft_of(target), target, engines=[parse_engine("tensorrt-llm@1.2.1")])
    assert result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("trained", "options", "ids"),
    [
        ((3, 19, 34), "", (2, 18, 33)),
        ((3, 19, 34), "ids=5+6+7", (2, 18, 33)),
        ((1, 18, 36), "", (0, 17, 35)),
        (("post_norm", 3, 19), "", (-1, 2, 18)),
        ((3, 19, "post_norm"), "one-model=no", (2, 18, -1)),
    ],
)
def test_the_list_to_write_goes_into_the_launch(trained: tuple[Any, ...], options: str, ids: tuple[int, ...]) -> None:
    name, target = parse_engine(f"{ENGINE}:{options}"), target_of("Qwen3ForCausalLM", LAYERS)
    change = remedy(
        find_engine(name), draft_of(target, **nested([9, 9, 9])), target, name=name, trained=trained, version=VERSION
    )
    assert isinstance(change, ConfigChange)
    assert change.values == {LAUNCH_IDS: list(ids)}
    assert "launch's configuration" in str(change)
    # What it tells to name from then on is read as the trained wiring.
    stated = f"ids={'+'.join(map(str, ids))}"
    assert stated in str(change)
    again = ",".join(filter(None, [options if "ids" not in options else "", stated]))
    assert served(again).boundaries == trained


@pytest.mark.parametrize(
    ("trained", "words"),
    [
        ((3, 19, "post_norm"), r"the state after the final norm first, .* to \(post_norm, 3, 19\)"),
        ((34, 19, 3), r"ascending order whatever .* to \(3, 19, 34\)"),
        ((0, 3, 19), "with any id list"),
    ],
)
def test_what_no_list_can_do_is_said(trained: tuple[Any, ...], words: str) -> None:
    name, target = parse_engine(ENGINE), target_of("Qwen3ForCausalLM", LAYERS)
    change = remedy(find_engine(name), draft_of(target), target, name=name, trained=trained, version=VERSION)
    assert isinstance(change, NoChange)
    assert re.search(words, change.reason), change.reason


def findings_of(options: str, *ids: int, trained: tuple[int, ...] | None = None) -> list[tuple[str, str]]:
    target = target_of("Qwen3ForCausalLM", LAYERS)
    stated = None if trained is None else trained_on(*trained)
    engines = [parse_engine(f"{ENGINE}:{options}")]
    result = check_config(draft_of(target, **nested(list(ids))), target, engines=engines, stated=stated)
    return [(finding.name, finding.severity.value) for finding in result.findings]


def test_what_check_config_says() -> None:
    assert findings_of("", 2, 18, 33, trained=(3, 19, 34)) == [("layer-ids-ignored", "error")]
    assert findings_of("", 1, 17, 32, trained=DEFAULT) == [("layer-ids-ignored", "warning")]
    assert findings_of("ids=2+18+33", 2, 18, 33, trained=(3, 19, 34)) == []
    assert findings_of("ids=3+19+34", 2, 18, 33, trained=(3, 19, 34)) == [("layer-id-convention", "error")]


def test_a_slot_that_nothing_is_written_to_is_an_error_although_the_others_agree() -> None:
    assert findings_of("ids=2+18+90", 2, 18, 90, trained=(3, 19, 34)) == [("layer-id-out-of-range", "error")]
    assert findings_of("ids=2+18+90", 2, 18, 90) == [("layer-id-out-of-range", "error")]


def test_the_final_state_is_no_id_without_a_layer() -> None:
    target = target_of("Qwen3ForCausalLM", LAYERS)
    engines = [parse_engine(f"{ENGINE}:ids=-1+2+90")]
    (finding,) = check_config(draft_of(target), target, engines=engines).findings
    assert "no layer answers to id 90" in finding.message
    assert "id -1" not in finding.message


def test_ids_answers_with_the_launchs_key() -> None:
    target = target_of("Qwen3ForCausalLM", LAYERS)
    result = ids_to_write((3, 19, 34), target, [parse_engine(ENGINE)])
    (row,) = result.measurements["ids"]
    assert (row["ids"], row["key"]) == ([2, 18, 33], LAUNCH_IDS)
    assert result.verdict is Verdict.PASS


def test_one_launch_is_stock() -> None:
    name = parse_engine(ENGINE)
    assert variants_of(find_engine(name), name, VERSION) == ({},)
    target = target_of("Qwen3ForCausalLM", LAYERS)
    got = serve(find_engine(name), draft_of(target), target, name=name, variant={}, version=VERSION)
    assert isinstance(got, Served)
    assert (VERSION in got.source, ".py:" in got.source) == (True, True)
