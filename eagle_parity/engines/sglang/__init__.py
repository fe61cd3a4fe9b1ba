"""SGLang 0.5.8 to 0.5.23: read in every release of that range, paths below ``sglang/srt``.

The id list comes from ``eagle_config.eagle_aux_hidden_state_layer_ids`` alone; anything wrong with it means the default
without a log line. What a list means then depends on the target class and the release: one module a family of classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, LaunchDefect
from eagle_parity.engines.engine import PIPELINE_PARALLEL, EngineOption
from eagle_parity.engines.rules import Engine, Instead, VariantRule
from eagle_parity.engines.sglang.apertus import APERTUS_CLASSES
from eagle_parity.engines.sglang.bailing import BAILING_CLASSES
from eagle_parity.engines.sglang.deepseek import DEEPSEEK_CLASSES
from eagle_parity.engines.sglang.defects import EMBEDDING_ALIAS, PIPELINE_LAST_STAGE
from eagle_parity.engines.sglang.drafts import (
    BUFFERS,
    DEEPSEEK_WIDTHS,
    FIRST_FORWARD,
    KEYS,
    LLAMA_WIDTHS,
    SPELLINGS,
    VOCAB_MAPS,
    see_draft,
)
from eagle_parity.engines.sglang.exaone import EXAONE_CLASSES
from eagle_parity.engines.sglang.gemma import GEMMA_CLASSES
from eagle_parity.engines.sglang.glm import GLM_CLASSES
from eagle_parity.engines.sglang.gpt_oss import GPT_OSS_CLASSES
from eagle_parity.engines.sglang.launch import EXTRACTIONS
from eagle_parity.engines.sglang.llama import LLAMA_CLASSES
from eagle_parity.engines.sglang.longcat import LONGCAT_CLASSES
from eagle_parity.engines.sglang.minimax import MINIMAX_CLASSES
from eagle_parity.engines.sglang.qwen import QWEN_CLASSES
from eagle_parity.engines.sglang.qwen_vision import QWEN_VISION_CLASSES
from eagle_parity.engines.sglang.refused import NO_SETTER, TRANSFORMERS
from eagle_parity.engines.sglang.unruled import MINDSPORE, NO_RULE
from eagle_parity.engines.sglang.versions import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.targets import Target

__all__ = [
    "BUFFERS",
    "CLASSES",
    "DEEPSEEK_WIDTHS",
    "KEYS",
    "LLAMA_WIDTHS",
    "NO_RULE",
    "NO_SETTER",
    "SGLANG",
    "VERSIONS",
]

EMBEDDING_CAPTURE = EngineOption(
    "embedding-capture",
    ("stock", "patched"),
    "patched: a build whose layer loop delivers the embedding at index 0 where the stock release does not (Llama before"
    " 0.5.22, DeepSeek and Kimi before 0.5.14)",
)

IMPL = EngineOption(
    "impl",
    ("sglang", "transformers", "mindspore"),
    "--model-impl; transformers and mindspore put a class of their own in the place of the target's, and are only"
    " assumed when named (mindspore runs on Ascend alone)",
)
_OTHER_CLASSES = {"transformers": TRANSFORMERS, "mindspore": MINDSPORE}
"""Which class such a launch loads: model_loader/utils.py:106-112 (0.5.8), :228-231 (0.5.23)."""

CLASSES: tuple[ClassRule, ...] = (
    *LLAMA_CLASSES,
    *QWEN_CLASSES,
    *QWEN_VISION_CLASSES,
    *DEEPSEEK_CLASSES,
    *GLM_CLASSES,
    *GPT_OSS_CLASSES,
    *GEMMA_CLASSES,
    *MINIMAX_CLASSES,
    *BAILING_CLASSES,
    *APERTUS_CLASSES,
    *EXAONE_CLASSES,
    *LONGCAT_CLASSES,
)
"""Every class with a setter, read in every release."""


def adapt(rule: ClassRule | None, variant: Mapping[str, str], target: Target) -> ClassRule | Instead | None:  # noqa: ARG001  an Engine's form
    """A patched build delivers the embedding, cloned, wherever a stock one does not."""
    other = _OTHER_CLASSES.get(variant.get(IMPL.name, ""))
    if other is not None:
        return Instead(other)
    if rule is None or variant.get(EMBEDDING_CAPTURE.name) != "patched":
        return rule
    defects = tuple(d for d in rule.defects if d is not EMBEDDING_ALIAS)
    return replace(rule, embedding=AtEmbedding.DELIVERS, defects=defects)


SGLANG = Engine(
    name="sglang",
    title="SGLang",
    versions=VERSIONS,
    options=(EMBEDDING_CAPTURE, IMPL, PIPELINE_PARALLEL),
    variants=(VariantRule(({},), "0.5.8", "0.5.23"),),
    runner_option=None,
    key_rules=(KEYS,),
    timings=(FIRST_FORWARD,),
    classes=CLASSES,
    no_setter=NO_SETTER,
    no_rule=NO_RULE,
    width_rules=(*LLAMA_WIDTHS, *DEEPSEEK_WIDTHS),
    buffer_rules=BUFFERS,
    vocab_maps=(VOCAB_MAPS,),
    extractions=EXTRACTIONS,
    launch_defects=(LaunchDefect(PIPELINE_LAST_STAGE, "0.5.8", "0.5.23"),),
    see_draft=see_draft,
    adapt=adapt,
    spellings=(SPELLINGS,),
)
