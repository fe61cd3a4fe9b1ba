"""Where vLLM's two model runners look for the id list, when their failures show, and how a list is written for both."""

from __future__ import annotations

from eagle_parity.dialects import SECTION
from eagle_parity.drafts import IDS, NESTED_IDS
from eagle_parity.engines.draft_rules import KeyRule, KeyStep, Placeholder, SpellingRule, Taken
from eagle_parity.engines.failures import Timing
from eagle_parity.engines.vllm.versions import FIRST, LAST

_V2_STEPS = (
    KeyStep(IDS),
    KeyStep("dflash_config.target_layer_ids", shift=1),
    KeyStep("dspark_target_layer_ids", shift=1),
    KeyStep("target_layer_ids", shift=1),
)

KEYS: tuple[KeyRule, ...] = (
    KeyRule(
        (
            KeyStep(IDS),
            KeyStep(NESTED_IDS, Taken.SECTION),
            KeyStep("dflash_config.target_layer_ids", shift=1),
        ),
        list_required=True,
        first=FIRST,
        last=LAST,
        source="v1/worker/gpu_model_runner.py:5404-5437 (0.25.0), :5608-5641 (0.28.0), :5456-5490 (0.31.0), :5251-5285"
        " (0.32.0)",
        runner="v1",
    ),
    KeyRule(
        _V2_STEPS,
        list_required=True,
        first="0.25.0",
        last="0.25.0",
        source="v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:36-63 (0.25.0)",
        runner="v2",
    ),
    KeyRule(
        (*_V2_STEPS, KeyStep("dflash_config.layer_ids"), KeyStep(f"{SECTION}.layer_ids")),
        list_required=True,
        first="0.28.0",
        last=LAST,
        source="v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:36-70 (0.28.0), :100-137 (0.31.0, 0.32.0)",
        runner="v2",
    ),
)

TIMINGS: tuple[Timing, ...] = (
    Timing(
        embedding=True,
        nothing=True,
        shortfall=False,
        first=FIRST,
        last=LAST,
        remark="the server reports healthy before; on CPU in eager mode every failure of a forward waits for a request",
        runner="v1",
    ),
    Timing(
        embedding=True,
        nothing=True,
        shortfall=True,
        first=FIRST,
        last=LAST,
        remark="the profiling run at start calls the draft with real states",
        runner="v2",
    ),
)

_USE_AUX = f"{SECTION}.use_aux_hidden_state"

SPELLINGS = SpellingRule(
    IDS,
    (
        {IDS: Placeholder.IDS},
        {IDS: Placeholder.IDS, NESTED_IDS: Placeholder.IDS},
        {IDS: Placeholder.IDS, "num_aux_hidden_states": Placeholder.COUNT},
        {IDS: Placeholder.IDS, _USE_AUX: True},
        {IDS: Placeholder.IDS, NESTED_IDS: Placeholder.IDS, _USE_AUX: True},
        {_USE_AUX: False},
    ),
    first=FIRST,
    last=LAST,
)
