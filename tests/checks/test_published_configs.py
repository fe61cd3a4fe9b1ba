"""Every draft config that was gathered, with its target and the newest engines: an answer, and no error but these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eagle_parity.config_check import check_config, stated_wiring
from eagle_parity.drafts import Family, read_draft
from eagle_parity.engines import newest_engines
from eagle_parity.errors import InputError
from eagle_parity.results import Verdict
from eagle_parity.targets import read_target

if TYPE_CHECKING:
    from pathlib import Path

    from eagle_parity.drafts import Draft
    from eagle_parity.targets import Target

TRAINERS = {
    "specforge": "specforge@0.2.0",
    "angelslim": "angelslim@0.5.0",
    "torchspec": "torchspec@6dda2bf",
    "eagle": "eagle@cb7e084",
}

SGLANG, V1, V2 = "sglang@0.5.23", "vllm@0.32.0:runner=v1", "vllm@0.32.0:runner=v2"
VLLM = "vllm@0.32.0"

ERRORS = {
    # No setter in SGLang; vLLM serves these through its transformers backend.
    "angelslim__hunyuan-1.8b-eagle3": {("unsupported-target", SGLANG)},
    "angelslim__hunyuan-4b-eagle3": {("unsupported-target", SGLANG)},
    "angelslim__hunyuan-7b-eagle3": {("unsupported-target", SGLANG)},
    # No aux states: V1 feeds the final state, V2 asks for aux states all the same.
    "hf__nvidia-gpt-oss-120b-Eagle3-short-context": {("engine-failure", V2)},
    # A nested list: V2 doesn't look there.
    "hf__nvidia-gpt-oss-120b-Eagle3-v3": {("layer-ids-ignored", V2)},
    # A nested list of layer outputs: V1 takes it for boundaries; V2's default is the same wiring, or is not.
    "specforge__deepseek-v3-671b-eagle3": {("layer-id-convention", V1)},
    "specforge__qwen3-235B-A22B-eagle3": {("layer-id-convention", V1)},
    "specforge__gpt-oss-120B-eagle3": {("layer-id-convention", V1), ("layer-ids-ignored", V2)},
    "specforge__gpt-oss-20B-eagle3": {("layer-id-convention", V1), ("layer-ids-ignored", V2)},
    # SGLang feeds no boundary of Gemma 3, vLLM has no EAGLE-3 for it.
    "specforge__gemma3-1b-eagle3": {("known-engine-defect", SGLANG), ("unsupported-target", VLLM)},
    "specforge__ling-flash-2.0-eagle3": {("unsupported-target", VLLM)},
    # vLLM takes a draft of this model_type for an MTP model.
    "torchspec__qwen3_8b_eagle3_mla": {("engine-failure", VLLM)},
}

UNREADABLE = {
    # Gathered from reports: one without any key of a draft, one whose target nobody named.
    "hf__nvidia-Llama-3.3-70B-Instruct-Eagle3": "no key of a draft in it",
    "hf__Inferact-MiniMax-M3-EAGLE3": "no num_hidden_layers",
}


def read_both(path: Path) -> tuple[Draft, Target]:
    return read_draft(str(path)), read_target(str(path.with_suffix(".target.json")))


def test_every_published_config_gets_an_answer(shared: Path) -> None:
    drafts = [path for path in sorted((shared / "configs").glob("*.json")) if not path.name.endswith(".target.json")]
    assert len(drafts) > len(ERRORS)
    for path in drafts:
        name = path.stem
        if name in UNREADABLE:
            with pytest.raises(InputError, match=UNREADABLE[name]):
                read_both(path)
            continue
        draft, target = read_both(path)
        trainer = TRAINERS.get(name.partition("__")[0]) if draft.family is Family.EAGLE3 else None
        stated = None if trainer is None else stated_wiring(draft, target, trainer=trainer)
        result = check_config(draft, target, engines=newest_engines(), stated=stated)
        found = {(f.name, f.engine) for f in result.findings if f.severity == "error"}
        assert found == ERRORS.get(name, set()), name
        if draft.family is not Family.EAGLE3:
            assert (result.verdict, result.wiring.served) == (Verdict.INCONCLUSIVE, [])
            continue
        assert not any("no rule" in skip.reason for skip in result.skipped), name
        expected = Verdict.FAIL if found else Verdict.PASS if stated else Verdict.INCONCLUSIVE
        assert result.verdict is expected, name
