"""What vLLM makes of a draft's config: its class, and for how many slots that builds fc."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from eagle_parity.dialects import SECTION, Dialect
from eagle_parity.drafts import IDS, NESTED_IDS
from eagle_parity.engines.draft_rules import DraftSeen, FcSkip, WidthRule
from eagle_parity.engines.failures import Failure, FailureKind
from eagle_parity.engines.ranges import in_force
from eagle_parity.engines.vllm.defects import FC_SKIPPED
from eagle_parity.engines.vllm.options import RUNNER
from eagle_parity.engines.vllm.versions import FIRST, LAST
from eagle_parity.engines.vocab_map import VocabMapRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.drafts import Draft

LLAMA_WIDTH = WidthRule(
    "llama-eagle3",
    ("num_aux_hidden_states", NESTED_IDS),
    3,
    FIRST,
    LAST,
    "model_executor/models/llama_eagle3.py:175-182 (0.25.0, 0.28.0), :210-216 (0.32.0)",
    FcSkip.WITHOUT_AUX,
    FC_SKIPPED,
)
QWEN3_WIDTH = WidthRule(
    "qwen3-eagle3",
    ("num_aux_layers", "num_aux_hidden_states", IDS, NESTED_IDS),
    3,
    FIRST,
    LAST,
    "model_executor/models/qwen3_eagle3.py:188-197 (0.25.0), :202-209 (0.31.0, 0.32.0)",
    FcSkip.WITHOUT_AUX,
    FC_SKIPPED,
)
DEEPSEEK_WIDTH = WidthRule(
    "deepseek-eagle3",
    ("num_aux_hidden_states", NESTED_IDS),
    3,
    FIRST,
    LAST,
    "model_executor/models/deepseek_eagle3.py:201-206 (0.25.0), :189-193 (0.32.0), fc in any case: 357-368 (0.32.0)",
    FcSkip.NEVER,
)

_WITHOUT_MAP = "its token k is taken for the target's token k: the map stays zero, and nothing tells"
VOCAB_MAPS = (
    VocabMapRule(
        "",
        _WITHOUT_MAP,
        "0.25.0",
        "0.28.0",
        "model_executor/models/llama_eagle3.py:304-307, 340-357, 389-391; qwen3_eagle3.py and deepseek_eagle3.py"
        " alike (0.25.0, 0.28.0)",
    ),
    VocabMapRule(
        "ValueError at start: There is no module or parameter named 'draft_id_to_target_id'; d2t is renamed to it, and"
        " a draft of the target's whole vocabulary has none",
        _WITHOUT_MAP,
        "0.31.0",
        "0.32.0",
        "model_executor/models/llama_eagle3.py:339-345, 428-430; qwen3_eagle3.py and deepseek_eagle3.py alike;"
        " models/utils.py:427 (0.31.0), :443 (0.32.0); seen on a running 0.32.0",
    ),
)
"""The three classes have the map as a parameter: up to 0.28 always, then for another vocabulary than the target's.

Nothing checks that it was loaded: their ``load_weights`` return no names
(model_executor/model_loader/default_loader.py:436 in 0.25.0).
"""

_DRAFT_CLASSES = {
    "Eagle3LlamaForCausalLM": LLAMA_WIDTH,
    "LlamaForCausalLMEagle3": LLAMA_WIDTH,
    "Eagle3MiniMaxM2ForCausalLM": LLAMA_WIDTH,
    "Eagle3Qwen2_5vlForCausalLM": LLAMA_WIDTH,
    "Eagle3Qwen3vlForCausalLM": LLAMA_WIDTH,
    "Eagle3Qwen3ForCausalLM": QWEN3_WIDTH,
    "Eagle3DeepseekV2ForCausalLM": DEEPSEEK_WIDTH,
    "Eagle3DeepseekV3ForCausalLM": DEEPSEEK_WIDTH,
}
"""model_executor/models/registry.py:658-673."""

_SPECULATORS_CLASSES = {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"}
"""transformers_utils/configs/speculators/algos.py:39-46."""

_REWRITTEN_TO_MTP = ("deepseek_v3", "deepseek_v32", "glm_moe_dsa")
"""config/speculative.py:679-694 turns drafts of these types into DeepSeekMTPModel before EAGLE-3 is looked at."""


def see_draft(draft: Draft, version: str, variant: Mapping[str, str]) -> DraftSeen:
    """The draft as vLLM sees it: speculators' form is unfolded, any other is taken key by key."""
    if draft.dialect is Dialect.SPECULATORS and draft.model_type in {"", "speculators"}:
        return _see_speculators(draft, version, variant)
    name, failure = _native_class(draft)
    config = draft.config
    section = config.get(SECTION)
    v1 = variant.get(RUNNER.name) == "v1"
    if section is not None and not isinstance(section, dict) and (v1 or section):
        place = "v1/spec_decode/llm_base_proposer.py:1684" if v1 else "model_executor/models/llama_eagle3.py:185"
        failure = Failure(
            FailureKind.DRAFT,
            at_load=True,
            words=f"AttributeError at start: eagle_config is no object and has no get ({place})",
        )
    return _with_aux(config, _width(name, version), variant, failure, {})


def _width(name: str, version: str) -> WidthRule | None:
    return in_force((_DRAFT_CLASSES.get(name, LLAMA_WIDTH),), version)


def _native_class(draft: Draft) -> tuple[str, Failure | None]:
    """The draft class after EAGLEConfig's prefixing (transformers_utils/configs/eagle.py:59-64)."""
    if draft.model_type in _REWRITTEN_TO_MTP:
        words = (
            f"ValueError at start: a draft of model_type {draft.model_type} is taken for an MTP model and renamed to a"
            " class that vLLM doesn't have (config/speculative.py:679-694, from reading the code)"
        )
        return "", Failure(FailureKind.DRAFT, at_load=True, words=words)
    if not draft.architectures:
        return "", None
    name = draft.architectures[0][:100]
    if not name.startswith("Eagle3") and not name.endswith("Eagle3"):
        name = f"Eagle3{name}"
    if name in _DRAFT_CLASSES:
        return name, None
    told = re.sub(r"[^\w.]", "?", name)
    words = f"ValueError at start: model architecture {told} is not supported (model_executor/models/registry.py:658)"
    return name, Failure(FailureKind.DRAFT, at_load=True, words=words)


def _see_speculators(draft: Draft, version: str, variant: Mapping[str, str]) -> DraftSeen:
    """transformers_utils/configs/speculators/base.py:59, algos.py:30-50: the layer's config plus a few keys.

    A top-level ``eagle_config`` is dropped; keys inside ``transformer_layer_config`` survive.
    """
    layer = draft.config.get("transformer_layer_config")
    config: dict[str, Any] = dict(layer) if isinstance(layer, dict) else {}
    renamed = {IDS: f"transformer_layer_config.{IDS}"} if config.get(IDS) else {}
    if draft.config.get(IDS):
        config[IDS] = draft.config[IDS]
        renamed = {}
    failure = None
    model_type = config.get("model_type")
    name = _SPECULATORS_CLASSES.get(model_type, "") if isinstance(model_type, str) else ""
    if not name and model_type is not None:
        failure = Failure(
            FailureKind.DRAFT,
            at_load=True,
            words="ValueError at start: Unsupported model_type in transformer_layer_config; llama and qwen3 are"
            " supported (transformers_utils/configs/speculators/algos.py:39-46)",
        )
    return _with_aux(config, _width(name, version), variant, failure, renamed)


def _with_aux(
    config: Mapping[str, Any],
    width: WidthRule | None,
    variant: Mapping[str, str],
    failure: Failure | None,
    renamed: Mapping[str, str],
) -> DraftSeen:
    """V1 heeds the flag (llm_base_proposer.py:1672-1685), V2 asks for aux states always (gpu/model_runner.py:300)."""
    section = config.get(SECTION)
    uses_aux = bool(section.get("use_aux_hidden_state", True)) if isinstance(section, dict) else True
    return DraftSeen(
        config,
        width,
        uses_aux=uses_aux or variant.get(RUNNER.name) == "v2",
        declines_aux=not uses_aux,
        renamed=renamed,
        failure=failure,
    )
