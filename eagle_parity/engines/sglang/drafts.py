"""What SGLang makes of a draft's config: where it looks for the list, and for how many slots its classes build fc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.dialects import SECTION
from eagle_parity.drafts import IDS, NESTED_IDS
from eagle_parity.engines.draft_rules import (
    BufferRule,
    DraftSeen,
    FcSkip,
    KeyRule,
    KeyStep,
    Placeholder,
    SpellingRule,
    Taken,
    WidthRule,
)
from eagle_parity.engines.failures import Failure, FailureKind, Timing
from eagle_parity.engines.ranges import in_force
from eagle_parity.engines.sglang.defects import FC_SKIPPED
from eagle_parity.engines.vocab_map import VocabMapRule
from eagle_parity.versions import in_range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.drafts import Draft

KEYS = KeyRule(
    (KeyStep(NESTED_IDS, Taken.NOT_NULL),),
    list_required=False,
    first="0.5.8",
    last="0.5.23",
    source="model_executor/model_runner_components/spec_aux_hidden_state.py:184-196 (0.5.23);"
    " model_executor/model_runner.py:428-441 (0.5.12)",
)

FIRST_FORWARD = Timing(
    embedding=False,
    nothing=False,
    shortfall=False,
    first="0.5.8",
    last="0.5.23",
    remark="the server's own warm-up request counts as the first one; with CUDA graphs, from 0.5.11 on, an error of the"
    " target's forward shows while they are captured",
)

LLAMA_WIDTHS = (
    WidthRule(
        "llama-eagle3",
        (),
        3,
        "0.5.8",
        "0.5.11",
        "models/llama_eagle3.py:135 (0.5.8 to 0.5.11)",
        FcSkip.EQUAL_WIDTH,
        FC_SKIPPED,
    ),
    WidthRule(
        "llama-eagle3",
        ("num_aux_hidden_states", NESTED_IDS),
        3,
        "0.5.12",
        "0.5.23",
        "models/llama_eagle3.py:148-156 (0.5.12 to 0.5.23)",
        FcSkip.EQUAL_WIDTH,
        FC_SKIPPED,
    ),
)
DEEPSEEK_WIDTHS = (
    WidthRule(
        "deepseek-eagle3",
        (NESTED_IDS, IDS),
        3,
        "0.5.12",
        "0.5.23",
        "models/kimi_k25_eagle3.py:47-58 (0.5.12 to 0.5.23)",
        FcSkip.EQUAL_WIDTH,
        FC_SKIPPED,
    ),
)
BUFFERS = (
    BufferRule((), 3, "0.5.8", "0.5.11", "speculative/eagle_draft_extend_cuda_graph_runner.py:105-125 (0.5.8)"),
    BufferRule(
        (),
        3,
        "0.5.12",
        "0.5.14",
        "speculative/eagle_info.py:877-901 (0.5.12), :372 (0.5.14): looked up in the target's config, where no draft"
        " states it",
    ),
    BufferRule(
        ("num_aux_hidden_states", NESTED_IDS, IDS),
        3,
        "0.5.15",
        "0.5.23",
        "speculative/eagle_utils.py:407-440 (0.5.15), :237 (0.5.23)",
    ),
)
VOCAB_MAPS = VocabMapRule(
    "",
    "its token k is taken for the target's token k, and nothing tells",
    "0.5.8",
    "0.5.23",
    "models/llama_eagle3.py:242 (0.5.8), :350 (0.5.23); speculative/eagle_worker.py:616, 668 (0.5.8),"
    " eagle_worker_v2.py:757, 897 (0.5.23); models/kimi_k25_eagle3.py:437 (0.5.12 to 0.5.23)",
)
"""A map is read whatever the vocabularies' sizes are, as ``hot_token_id``; EAGLE-3 ignores --speculative-token-map."""

_DEEPSEEK_DRAFT = "Eagle3DeepseekV2ForCausalLM"
_DEEPSEEK_DRAFT_ABSENT = ("0.5.8", "0.5.11")
_NULL_SECTION_FAILS = ("0.5.8", "0.5.14")
_SECTION_IS_READ_BY_THE_DRAFT = ("0.5.12", "0.5.23")


def see_draft(draft: Draft, version: str, variant: Mapping[str, str]) -> DraftSeen:  # noqa: ARG001  an Engine's form
    """The draft as SGLang sees it: the raw config, whatever trainer wrote it."""
    section = draft.config.get(SECTION)
    failure = None
    widths: tuple[WidthRule, ...] = LLAMA_WIDTHS
    if _DEEPSEEK_DRAFT in draft.architectures[:1]:
        widths = DEEPSEEK_WIDTHS
        if in_range(version, *_DEEPSEEK_DRAFT_ABSENT):
            failure = Failure(
                FailureKind.DRAFT,
                at_load=True,
                words=f"the draft class {_DEEPSEEK_DRAFT} is not in this release (from 0.5.12 on)",
            )
    if SECTION in draft.config and section is None and in_range(version, *_NULL_SECTION_FAILS):
        failure = Failure(
            FailureKind.DRAFT,
            at_load=True,
            words="AttributeError in the draft worker: eagle_config is null (eagle_worker.py:191)",
        )
    elif section and not isinstance(section, dict) and in_range(version, *_SECTION_IS_READ_BY_THE_DRAFT):
        failure = Failure(
            FailureKind.DRAFT,
            at_load=True,
            words="AttributeError in llama_eagle3.py: eagle_config is no object and has no get",
        )
    uses_aux = bool(section.get("use_aux_hidden_state", True)) if isinstance(section, dict) else True
    return DraftSeen(
        draft.config,
        in_force(widths, version),
        uses_aux=uses_aux,
        declines_aux=not uses_aux,
        buffer=in_force(BUFFERS, version),
        failure=failure,
    )


_USE_AUX = f"{SECTION}.use_aux_hidden_state"

SPELLINGS = SpellingRule(
    NESTED_IDS,
    (
        {NESTED_IDS: Placeholder.IDS},
        {NESTED_IDS: Placeholder.IDS, _USE_AUX: True},
        {NESTED_IDS: Placeholder.IDS, "num_aux_hidden_states": Placeholder.COUNT},
        {NESTED_IDS: Placeholder.IDS, _USE_AUX: True, "num_aux_hidden_states": Placeholder.COUNT},
        {_USE_AUX: False},
    ),
    first="0.5.8",
    last="0.5.23",
)
