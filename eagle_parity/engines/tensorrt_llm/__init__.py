"""TensorRT-LLM (its PyTorch backend): paths below ``tensorrt_llm/_torch``, unless they start with ``llmapi``.

The list stands in the launch's own configuration (``speculative_config.eagle3_layers_to_capture``, a set), never in
the draft's config, none of whose id keys is read. An id is the layer whose output is captured, so boundary id + 1; -1
is the state after the final norm.

What was read, and how it is tied to a release: ``models/modeling_speculative.py`` at b35ac1b, whose ``version.py``
says 1.2.0rc2. The other files at the commits that each source names, which no stored ``version.py`` dates;
``speculative/eagle3.py`` is alike in all that is used here at an older commit (001e670), at f933a60, and in a later
state from 2026, so that 1.2.0rc2 lies between states that agree. Sources name functions: lines were not to be had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from eagle_parity.engines.class_rules import AtEmbedding, ClassRule, Outside, Setter, Source
from eagle_parity.engines.draft_rules import (
    DraftSeen,
    FcSkip,
    KeyRule,
    KeyStep,
    Placeholder,
    SpellingRule,
    Taken,
    WidthRule,
)
from eagle_parity.engines.engine import EngineOption
from eagle_parity.engines.failures import Timing
from eagle_parity.engines.rules import Engine, Unread, VariantRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.drafts import Draft
    from eagle_parity.targets import Target

__all__ = ["CLASSES", "LAUNCH_IDS", "TENSORRT_LLM", "VERSION"]

VERSION = "1.2.0rc2"

_SECTION, _NAME = "speculative_config", "eagle3_layers_to_capture"
LAUNCH_IDS = f"{_SECTION}.{_NAME}"
"""Where the launch's configuration has the list."""

_METADATA = "speculative/eagle3.py:Eagle3OneModelSpecMetadata, Eagle3SpecMetadata (f933a60)"

IDS_OPTION = EngineOption(
    "ids",
    (),
    f"{LAUNCH_IDS} of the launch's configuration, such as 1+29+57; the default unless named",
)
ONE_MODEL = EngineOption(
    "one-model",
    ("yes", "no"),
    f"{_SECTION}.eagle3_one_model: the draft runs inside the target's engine, or in one of its own, which differs in"
    " where id -1 goes; yes, which is the engine's default, unless named",
)

WIDTH = WidthRule(
    "llama-eagle3",
    (LAUNCH_IDS,),
    3,
    VERSION,
    VERSION,
    "models/modeling_speculative.py:Eagle3DraftModel.__init__, Eagle3ForCausalLM.apply_eagle3_fc (b35ac1b);"
    " llmapi/llm_args.py:EagleDecodingConfig.num_capture_layers",
    FcSkip.EQUAL_WIDTH,
)

_DEFAULT_NEEDS = 6
"""With five layers or fewer the engine says that there aren't enough of them for its default."""


_ODD_DEFAULTS = {
    1: "for a target of one layer it has another default, which wasn't followed; name the launch's list with ids=",
    6: "for a target of 6 layers its default names layer 2 twice, and nothing is written to the second slot; give the"
    " launch a list, and name it with ids=",
}


def _rule(family: str, architecture: str, source: str, commit: str) -> ClassRule:
    return ClassRule(
        family=family,
        architectures=(architecture,),
        first=VERSION,
        last=VERSION,
        setter=Setter.PLUS_ONE,
        embedding=AtEmbedding.FINAL_NORM_FIRST,
        reaches_last=True,
        outside=Outside.UNWRITTEN,
        default_needs=_DEFAULT_NEEDS,
        source=Source("models/" + source.partition(":")[0], source.partition(":")[2], commit),
        remark="no id asks for the embedding; the default is ids {1, n//2-1, n-4}; with one-model=no id -1 goes last",
    )


CLASSES: tuple[ClassRule, ...] = (
    _rule("llama", "LlamaForCausalLM", "modeling_llama.py:LlamaDecoderLayer.forward", "3a5901c"),
    _rule("qwen3", "Qwen3ForCausalLM", "modeling_qwen3.py:Qwen3DecoderLayer.forward", "010bb95"),
    _rule("qwen3-moe", "Qwen3MoeForCausalLM", "modeling_qwen3_moe.py:Qwen3MoEDecoderLayer.forward", "03441af"),
    _rule("gpt-oss", "GptOssForCausalLM", "modeling_gpt_oss.py:TransformerBlock.forward_normal, forward_tp", "050b6cb"),
)


def see_draft(draft: Draft, version: str, variant: Mapping[str, str]) -> DraftSeen:  # noqa: ARG001  one form for all
    """What the launch states: the draft's own config says nothing about layers to this engine."""
    stated = variant.get(IDS_OPTION.name)
    # The launch's configuration holds a set: order and repetition are lost before anything reads it.
    ids = sorted({int(number) for number in stated.split("+")}) if stated else None
    return DraftSeen({_SECTION: {_NAME: ids}}, WIDTH)


def adapt(rule: ClassRule | None, variant: Mapping[str, str], target: Target) -> ClassRule | Unread | None:
    """Where id -1 goes depends on how the draft runs."""
    if rule is None:
        return None
    if IDS_OPTION.name not in variant and target.num_layers in _ODD_DEFAULTS:
        return Unread(_ODD_DEFAULTS[target.num_layers])
    if variant.get(ONE_MODEL.name) == "no":
        return replace(rule, embedding=AtEmbedding.FINAL_NORM_LAST)
    return rule


TENSORRT_LLM = Engine(
    name="tensorrt-llm",
    title="TensorRT-LLM",
    versions=(VERSION,),
    options=(IDS_OPTION, ONE_MODEL),
    variants=(VariantRule(({},), VERSION, VERSION),),
    runner_option=None,
    key_rules=(
        KeyRule(
            (KeyStep(LAUNCH_IDS, Taken.NOT_NULL),),
            list_required=False,
            first=VERSION,
            last=VERSION,
            source=_METADATA + "; llmapi/llm_args.py:EagleDecodingConfig",
        ),
    ),
    timings=(Timing(embedding=True, nothing=True, shortfall=True, first=VERSION, last=VERSION),),
    classes=CLASSES,
    no_setter=(),
    width_rules=(WIDTH,),
    see_draft=see_draft,
    adapt=adapt,
    spellings=(
        SpellingRule(
            LAUNCH_IDS,
            ({LAUNCH_IDS: Placeholder.IDS},),
            first=VERSION,
            last=VERSION,
            option=IDS_OPTION.name,
            file="the launch's configuration (trtllm-serve's YAML file, or the LLM's arguments)",
        ),
    ),
    # Few classes and one release were read: commands that are given no engine would mostly say that nothing is known.
    unasked=False,
)
