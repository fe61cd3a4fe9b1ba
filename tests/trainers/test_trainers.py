from __future__ import annotations

from typing import Any

import msgspec
import pytest
from config_cases import draft_of, nested, target_of

from eagle_parity.drafts import IDS
from eagle_parity.errors import UsageError
from eagle_parity.trainers import TRAINERS, trained_with
from eagle_parity.trainers.tables import trainer_rows

KIMI_LAYERS = 61


def trained(text: str, num_layers: int = KIMI_LAYERS, **values: Any) -> tuple[Any, Any]:
    target = target_of("LlamaForCausalLM", num_layers)
    wiring = trained_with(text, draft_of(target, **values), target).wiring
    return wiring.slots, wiring.last_state


@pytest.mark.parametrize(
    ("text", "values", "slots", "last_state"),
    [
        ("specforge@0.2.0", nested([2, 30, 58]), (3, 31, 59), "post_norm"),
        ("specforge@0.2.0", {}, (2, 30, 58), "post_norm"),
        ("specforge@0.2.0", {IDS: [5, 6, 7]}, (2, 30, 58), "post_norm"),
        ("specforge@0.1.0", nested([-1, 2, 30]), (0, 3, 31), "post_norm"),
        ("speculators@0.2.0", {}, (3, 31, 59), "post_norm"),
        ("speculators@0.3.0", {}, (3, 31, 59), 61),
        ("speculators@0.4.0", nested([-1, 2, 30]), (3, 31, 59), 61),
        ("speculators@0.5.0", {}, (2, 30, 58), 61),
        ("speculators@0.9.0", {IDS: [3, 31, 59]}, (3, 31, 59), 61),
        ("speculators@0.9.0", {IDS: [59, 3, 31]}, (3, 31, 59), 61),
        ("speculators@0.9.0", {IDS: None}, (2, 30, 58), 61),
        ("Speculators@0.6.0", {IDS: [0, 61]}, (0, 61), 61),
        ("speculators@0.4.0+g12", {}, (3, 31, 59), 61),
        ("speculators@v0.5", {}, (2, 30, 58), 61),
        ("specforge@0.2.0.0", {}, (2, 30, 58), "post_norm"),
        ("eagle@cb7e084", {}, (2, 30, 58), None),
        ("eagle@cb7e084aa11bb22cc33dd44ee55ff6677889900a", nested([5, 6, 7]), (2, 30, 58), None),
        ("modelopt@0.39.0", nested([5, 6, 7]), (2, 30, 58), "post_norm"),
        ("modelopt@0.47.0:dump=hf", {}, (2, 30, 58), "post_norm"),
        ("modelopt@0.47.0:dump=hf", nested([57, 1, 29]), (2, 30, 58), "post_norm"),
        ("modelopt@a2fbac7ba:dump=hf", nested([2, 30, 58]), (3, 31, 59), "post_norm"),
        ("modelopt@0.47.0:dump=megatron", nested([2, 30, 58]), (3, 31, 59), "post_norm"),
        # The same numbers, one layer early and before the norm.
        ("modelopt@a2fbac7:dump=vllm,ids=1+29+57", nested([1, 29, 57]), (1, 29, 57), 61),
        ("modelopt@a2fbac7:dump=streaming,ids=2+30+58+61", {}, (2, 30, 58), 61),
        ("torchspec@6dda2bf", nested([1, 29, 57]), (2, 30, 58), None),
        ("torchspec@6dda2bf:backend=hf", nested([57, 1, 29]), (58, 2, 30), "post_norm"),
        ("torchspec@6dda2bf:backend=sglang", nested([57, 1, 29]), (2, 30, 58), "post_norm"),
        ("torchspec@6dda2bf:backend=vllm", nested([1, 29, 57]), (2, 30, 58), 60),
        (
            "torchspec@6dda2bf:backend=vllm",
            {"model_type": "kimi_k2", **nested([2, 30, 58])},
            (2, 30, 58),
            60,
        ),
        ("nemo-automodel@36044ad", nested([5, 6, 7]), (2, 30, 58), None),
        ("nemo-automodel@36044ad3d:backend=vllm", {}, (2, 30, 58), 61),
        ("nemo-automodel@36044ad3d:backend=hf,ids=5+3+9", {}, (6, 4, 10), None),
        ("angelslim@0.5.0", {}, (2, 30, 58), "post_norm"),
        ("angelslim@67394ce", {"aux_hidden_states_layer_ids": [9, 3, 5]}, (10, 4, 6), "post_norm"),
        ("angelslim@0.3.0", nested([5, 6, 7]), (2, 30, 58), "post_norm"),
        ("angelslim@0.2.0", {}, (2, 31, 59), "post_norm"),
        ("tensorrt-llm@17c59c36", {}, (2, 30, 58), "post_norm"),
    ],
)
def test_what_an_id_means_by_trainer_and_version(
    text: str, values: dict[str, Any], slots: tuple[int, ...], last_state: Any
) -> None:
    assert trained(text, **values) == (slots, last_state)


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        ("baldeagle@1.0", {}, "known: specforge, speculators"),
        ("eagle@1.0", {}, "which know EAGLE cb7e084"),
        ("eagle", {}, "such as eagle@cb7e084"),
        ("eagle@abcdef0", {}, "not in the tables"),
        ("dflash", {}, "no EAGLE-3 heads"),
        ("dflash@0.1:ids=1", {}, "no EAGLE-3 heads"),
        ("specforge@0.2.0:backend=hf", {}, 'no option "backend"; known: ids'),
        ("torchspec@6dda2bf:backend=trt", {}, 'backend can\'t be "trt"; known: hf, sglang, vllm'),
        ("modelopt@0.47.0:ids=a+b", {}, "expected numbers such as ids=1"),
        ("modelopt@0.47.0:dump=vllm", nested([1, 29, 57]), "--aux-layers of the dump is kept nowhere"),
        ("modelopt@0.47.0:dump=streaming", {}, "EAGLE_CAPTURE_IDS of the launch is kept nowhere"),
        ("modelopt@0.47.0:dump=megatron", {}, "default wasn't read"),
        # What a release alone can't say is said, and never guessed.
        ("modelopt@0.47.0", nested([1, 29, 57]), r"depends on how ModelOpt was run: dump=hf: \(2, 30, 58\)"),
        ("modelopt@0.47.0", {}, r"dump=vllm: needs ids=, --aux-layers of the dump"),
        ("modelopt@0.47.0:ids=1+29+57", {}, r"dump=vllm: \(1, 29, 57\)"),
        ("modelopt@0.40.0:dump=hf", {}, "which know ModelOpt 0.39.0, 0.47.0, a2fbac7"),
        ("torchspec@6dda2bf", {"model_type": "kimi_k2", **nested([2, 30, 58])}, r"backend=vllm: \(2, 30, 58\)"),
        ("torchspec@6dda2bf", nested([30, 2, 40]), r"backend=hf: \(31, 3, 41\)"),
        ("specforge@0.2.0", {"architectures": ["DFlashDraftModel"], "dflash_config": {}}, "family dflash"),
        ("specforge@0.2.0", {"architectures": ["PEagleDraftModel"]}, "family p-eagle"),
        ("eagle@cb7e084", {"architectures": ["LlamaForCausalLMEagle"]}, "family eagle1-2"),
        ("specforge", {}, "no version"),
        ("specforge@nightly", {}, "is no version"),
        ("specforge@0.3.0", {}, "knows? SpecForge|which know SpecForge"),
        ("speculators@0.10.0", {}, "not in the tables"),
        ("specforge@0.1.1", {}, "which know SpecForge 0.1.0, 0.2.0"),
        ("speculators@0.5.0.dev12", {}, "not in the tables"),
        ("speculators@0.6.0rc1", {}, "not in the tables"),
        ("specforge@0.2.0", nested([-1, 2, 30]), "refuses ids below 0"),
        ("specforge@0.2.0", nested([1, 2, 30, 40]), "takes exactly 3 ids"),
        ("specforge@0.2.0", nested([30, 2, 40]), "depends on the backend"),
        ("specforge@0.2.0", nested([2, 2, 40]), "names a layer twice"),
        ("specforge@0.2.0", nested("1,2,3"), "a string where a list"),
        ("specforge@0.2.0", nested([2, 30, 61]), "name no layers of a target with 61 layers"),
        ("speculators@0.9.0", {IDS: [3, 31, 62]}, "name no layers"),
    ],
)
def test_what_a_trainer_would_not_have_trained_is_a_usage_error(text: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        trained(text, **values)


def test_the_source_says_where_the_ids_come_from() -> None:
    target = target_of("LlamaForCausalLM")
    told = trained_with("specforge@0.2.0", draft_of(target, **nested([2, 30, 58])), target)
    assert told.key == "eagle_config.eagle_aux_hidden_state_layer_ids"
    assert "model_providers.py:188-215" in told.source
    assert "its default" in trained_with("speculators@0.4.0", draft_of(target), target).source


def test_the_tables_of_trainers_are_json_and_give_sources() -> None:
    rows = trainer_rows()
    msgspec.json.encode(rows)
    assert {row["trainer"] for row in rows} == {trainer.name for trainer in TRAINERS if trainer.rules}
    for row in rows:
        assert row["versions"]
        assert ".py" in row["source"]


def test_the_ways_of_every_trainer_are_those_of_its_option() -> None:
    for trainer in TRAINERS:
        ways = {rule.way for rule in trainer.rules}
        assert ways == (set(trainer.option.values) if trainer.option else {""} if trainer.rules else set())


def test_what_follows_from_the_draft_s_own_list_says_so() -> None:
    target = target_of("LlamaForCausalLM")
    kept = trained_with("specforge@0.2.0", draft_of(target), target)
    assert (kept.key, kept.derived_from) == (None, "eagle_config.eagle_aux_hidden_state_layer_ids")
    assert trained_with("speculators@0.4.0", draft_of(target), target).derived_from is None
    assert trained_with("modelopt@0.47.0:dump=hf,ids=1+2+3", draft_of(target), target).derived_from is None
