"""``check-config`` with a trainer's rule: defaults that agree or don't, and remedies that edit the key of the rule."""

from __future__ import annotations

import pytest
from config_cases import KIMI_CONFIG, LLAMA_CONFIG, draft_config, make_draft, make_target, named, nested, only

from eagle_parity.config_check import check_config, stated_wiring
from eagle_parity.engines import parse_engine
from eagle_parity.results import Result, Verdict

ENGINES = ("sglang@0.5.23", "vllm@0.32.0")


def check(target: dict[str, object], trainer: str, *engines: str, **values: object) -> Result:
    model = make_target(target)
    draft = make_draft(draft_config(target, **values))
    return check_config(
        draft,
        model,
        engines=[parse_engine(engine) for engine in engines],
        stated=stated_wiring(draft, model, trainer=trainer),
    )


@pytest.mark.parametrize("target", [LLAMA_CONFIG, KIMI_CONFIG])
@pytest.mark.parametrize(
    "trainer", ["specforge@0.2.0", "speculators@0.9.0", "eagle@cb7e084", "angelslim@0.5.0", "torchspec@6dda2bf"]
)
def test_without_ids_the_defaults_of_most_trainers_and_engines_agree(target: dict[str, object], trainer: str) -> None:
    result = check(target, trainer, *ENGINES)
    assert result.verdict is Verdict.PASS
    assert (named(result), named(result, "note")) == ([], ["layer-ids-defaulted"] * 2)
    assert all("which is what the head was trained on" in f.message for f in result.findings if f.severity == "note")


@pytest.mark.parametrize("trainer", ["speculators@0.4.0", "speculators@0.2.0"])
def test_without_ids_old_speculators_sit_one_layer_later(trainer: str) -> None:
    result = check(LLAMA_CONFIG, trainer, *ENGINES)
    assert named(result) == ["layer-id-convention"] * 2
    assert result.verdict is Verdict.FAIL
    told = {f.engine: f.remedy for f in result.findings if f.name == "layer-id-convention"}
    assert told["sglang@0.5.23"] == "Write eagle_config.eagle_aux_hidden_state_layer_ids: [2, 15, 27]."
    assert told["vllm@0.32.0"] == "Write top-level eagle_aux_hidden_state_layer_ids: [3, 16, 28]."


def test_angelslim_0_2_0_counted_the_embedding_as_a_layer() -> None:
    result = check(LLAMA_CONFIG, "angelslim@0.2.0", "sglang@0.5.23")
    assert "[1, 14, 27]" in only(result, "layer-id-convention").remedy


def test_a_remedy_in_the_key_of_the_trainer_s_rule_says_what_to_state_from_then_on() -> None:
    result = check(KIMI_CONFIG, "specforge@0.2.0", "sglang@0.5.23", **nested([2, 30, 58]))
    remedy = only(result, "layer-id-convention").remedy
    assert "eagle_config.eagle_aux_hidden_state_layer_ids: [3, 31, 59]" in remedy
    assert "From then on state --trained-boundaries 3,31,59" in remedy


def test_a_remedy_elsewhere_needs_no_such_word() -> None:
    old = check(LLAMA_CONFIG, "speculators@0.4.0", "sglang@0.5.23")
    assert "From then on" not in only(old, "layer-id-convention").remedy
    other_key = check(LLAMA_CONFIG, "specforge@0.2.0", "vllm@0.32.0", **nested([2, 15, 27]))
    assert "From then on" not in next(f.remedy for f in other_key.findings if f.severity == "error")
