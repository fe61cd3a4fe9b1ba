from __future__ import annotations

from typing import Any

import pytest
from config_cases import draft_of, nested, target_of

from eagle_parity.drafts import IDS
from eagle_parity.errors import UsageError
from eagle_parity.trainers import trained_with

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
    ],
)
def test_what_an_id_means_by_trainer_and_version(
    text: str, values: dict[str, Any], slots: tuple[int, ...], last_state: Any
) -> None:
    assert trained(text, **values) == (slots, last_state)


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        ("eagle@1.0", {}, "known: specforge, speculators"),
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
