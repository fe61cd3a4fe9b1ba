"""SGLang 0.5.8 to 0.5.23: read in every release of that range, paths below ``sglang/srt``.

The id list comes from ``eagle_config.eagle_aux_hidden_state_layer_ids`` alone; anything wrong with it means the default
without a log line. What a list means then depends on the target class and the release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from eagle_parity.drafts import IDS, NESTED_IDS, SECTION
from eagle_parity.engines.engine import EngineOption
from eagle_parity.engines.rules import (
    AtEmbedding,
    BufferRule,
    ClassRule,
    Defect,
    DefectWhen,
    DraftSeen,
    Engine,
    Failure,
    FailureKind,
    FcSkip,
    KeyRule,
    KeyStep,
    Malformed,
    NoSetter,
    Outside,
    Placeholder,
    Setter,
    Shortfall,
    Source,
    Taken,
    Timing,
    WidthRule,
    in_force,
)
from eagle_parity.versions import in_range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.drafts import Draft
    from eagle_parity.targets import Target

VERSIONS = (
    "0.5.8",
    "0.5.8.post1",
    "0.5.9",
    "0.5.10",
    "0.5.10.post1",
    "0.5.11",
    "0.5.12",
    "0.5.12.post1",
    "0.5.13",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15",
    "0.5.15.post1",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
)
"""The releases whose wheels were read. Rules name their last release themselves, so that one more here has none."""

EMBEDDING_CAPTURE = EngineOption(
    "embedding-capture",
    ("stock", "patched"),
    "patched: a build whose layer loop delivers the embedding at index 0 where the stock release does not (Llama before"
    " 0.5.22, DeepSeek and Kimi before 0.5.14)",
)

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
    remark="the server's own warm-up request counts as the first one; with CUDA graphs, from 0.5.11 on, an error of the"
    " target's forward shows while they are captured",
)

VERIFY_GRAPHS = Defect(
    "verify-graphs-use-default-layers",
    "With CUDA graphs on, target-verify graphs are captured with the default layers before the draft's ids are set:"
    " prefill feeds the right states, every later round the default ones",
    "upgrade SGLang to 0.5.11 or newer, or run with --disable-cuda-graph",
    DefectWhen.NOT_THE_DEFAULT,
    "model_executor/cuda_graph_runner.py:648 before model_runner.py:668 (0.5.10.post1); fixed in 0.5.11 by PR #22836",
)
UNCLEARED_FLAGS = Defect(
    "layer-flags-never-cleared",
    "The flags of the default layers stay set when the draft's ids are set after them, so that eager passes capture the"
    " union of both and fc meets too many states (from reading the code)",
    "upgrade SGLang to 0.5.11 or newer",
    DefectWhen.NOT_THE_DEFAULT,
    "models/qwen2_moe.py:928 (0.5.10.post1)",
)
PARTIAL_SUMS_DEEPSEEK = Defect(
    "partial-sums",
    "With tensor parallelism and fused all-reduce (switched on by itself for this class on SM90 and SM100), states are"
    " captured before the all-reduce: each rank feeds its own partial sum",
    "upgrade SGLang to 0.5.14 or newer, or switch the all-reduce fusion off",
    DefectWhen.ALWAYS,
    "models/deepseek_v2.py:2275 (0.5.12); fixed in 0.5.14 by PR #28343",
)
PARTIAL_SUMS_LATER = Defect(
    "partial-sums",
    "With tensor parallelism and fused all-reduce (switched on by itself for this class on SM90 and SM100), states are"
    " captured before the all-reduce: each rank feeds its own partial sum",
    "upgrade SGLang to 0.5.21 or newer, or switch the all-reduce fusion off",
    DefectWhen.ALWAYS,
    "models/gpt_oss.py:741, models/glm4_moe_lite.py:836 (0.5.20) read hidden_states + residual of a layer that left its"
    " all-reduce to the next one; fixed in 0.5.21",
)
EMBEDDING_ALIAS = Defect(
    "embedding-alias",
    "The embedding's slot is the very tensor that the fused norms overwrite in place: on CUDA it should end as the last"
    " layer's output (from reading the code)",
    "upgrade SGLang to 0.5.21 or newer",
    DefectWhen.EMBEDDING,
    "models/qwen2.py:358 (0.5.10.post1), layers/layernorm.py:266 (0.5.12); fixed in 0.5.21 by a copy",
)
EXPERT_GATHER = Defect(
    "expert-parallel-gather",
    "With DeepEP or Mooncake, states of layers behind the dense ones are gathered before they are handed over: across"
    " all tensor-parallel ranks until 0.5.9, across those of the attention from 0.5.10 on (from reading the code)",
    "upgrade SGLang to 0.5.14 or newer, or compare a capture of every rank",
    DefectWhen.ALWAYS,
    "models/deepseek_v2.py:2702 (0.5.8), :2053 (0.5.10), :2447 (0.5.13); gone in 0.5.14",
)
FC_SKIPPED = Defect(
    "fc-skipped",
    "States that are together as wide as the draft's embedding go past fc into the head's layer without a word; where"
    " draft-extend CUDA graphs of another width are in use, their buffer isn't filled and keeps what it held (from"
    " reading the code)",
    "serve as many layers as the head was trained on; a head that was trained on so few can't be served here",
    DefectWhen.ALWAYS,
    "models/llama_eagle3.py:162 (0.5.8), :218 (0.5.12), :238 (0.5.23); speculative/"
    "eagle_draft_extend_cuda_graph_runner.py:471-477 (0.5.12)",
)

_LLAMA = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Phi3ForCausalLM",
    "InternLM3ForCausalLM",
    "Ministral3ForCausalLM",
    "TeleFLMForCausalLM",
    "IQuestCoderForCausalLM",
)
_DEEPSEEK = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "MistralLarge3ForCausalLM",
)
_GLM_DSA = ("GlmMoeDsaForCausalLM",)
_DEEPSEEK_V4 = ("DeepseekV4ForCausalLM",)
_KIMI = ("KimiK25ForConditionalGeneration",)
_GLM_LITE = ("Glm4MoeLiteForCausalLM",)


def _plus_one(  # one row of the table for a class that adds one and never reaches the last layer
    family: str,
    architectures: tuple[str, ...],
    versions: tuple[str, str],
    embedding: AtEmbedding,
    source: Source,
    *defects: Defect,
) -> ClassRule:
    return ClassRule(
        family=family,
        architectures=architectures,
        first=versions[0],
        last=versions[1],
        setter=Setter.PLUS_ONE,
        embedding=embedding,
        reaches_last=False,
        source=source,
        defects=defects,
    )


def _flags(
    family: str, architectures: tuple[str, ...], versions: tuple[str, str], source: Source, *defects: Defect
) -> ClassRule:
    rule = _plus_one(family, architectures, versions, AtEmbedding.DELIVERS, source, *defects)
    return replace(rule, outside=Outside.FLAGS_BY_INDEX)


def _deepseek(  # Kimi's wrapper hands everything to the DeepSeek class
    versions: tuple[str, str],
    setter: Setter,
    embedding: AtEmbedding,
    lines: tuple[str, str],
    *defects: Defect,
    shortfall: Shortfall = Shortfall.DRAFT_FC,
    kimi_from: str | None = None,
    glm_dsa_from: str | None = None,
) -> tuple[ClassRule, ...]:
    malformed = Malformed.TYPE_ERROR if setter is Setter.PLUS_ONE else Malformed.NEVER_MATCHES
    rule = ClassRule(
        family="deepseek",
        architectures=_DEEPSEEK,
        first=versions[0],
        last=versions[1],
        setter=setter,
        embedding=embedding,
        reaches_last=False,
        source=Source("models/deepseek_v2.py", lines[0], versions[1]),
        shortfall=shortfall,
        malformed=malformed,
        defects=defects,
    )
    kimi = replace(
        rule,
        family="kimi",
        architectures=_KIMI,
        first=kimi_from or versions[0],
        source=Source("models/kimi_k25.py", lines[1], versions[1]),
    )
    glm_dsa = replace(rule, architectures=_GLM_DSA, first=glm_dsa_from or versions[0])
    return rule, glm_dsa, kimi


CLASSES: tuple[ClassRule, ...] = (
    _plus_one(
        "llama",
        _LLAMA,
        ("0.5.8", "0.5.10.post1"),
        AtEmbedding.TYPE_ERROR,
        Source("models/llama.py", "783, 387", "0.5.10.post1"),
        VERIFY_GRAPHS,
    ),
    _plus_one(
        "llama",
        _LLAMA,
        ("0.5.11", "0.5.21"),
        AtEmbedding.TYPE_ERROR,
        Source("models/llama.py", "889, 440", "0.5.21"),
    ),
    _plus_one(
        "llama", _LLAMA, ("0.5.22", "0.5.23"), AtEmbedding.DELIVERS, Source("models/llama.py", "929, 492", "0.5.23")
    ),
    _plus_one(
        "llama4",
        ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        ("0.5.8", "0.5.10.post1"),
        AtEmbedding.TYPE_ERROR,
        Source("models/llama4.py", "522, setter in llama.py:783", "0.5.10.post1"),
        VERIFY_GRAPHS,
    ),
    _plus_one(
        "llama4",
        ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        ("0.5.11", "0.5.20"),
        AtEmbedding.TYPE_ERROR,
        Source("models/llama4.py", "536, setter in llama.py:890", "0.5.20"),
    ),
    _plus_one(
        "llama4",
        ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        ("0.5.21", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/llama4.py", "530, setter in llama.py:929", "0.5.23"),
    ),
    _plus_one(
        "qwen2",
        ("Qwen2ForCausalLM", "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM"),
        ("0.5.8", "0.5.10.post1"),
        AtEmbedding.ALIAS,
        Source("models/qwen2.py", "638, 358; qwen3.py:674; qwen2_5_vl.py:876", "0.5.10.post1"),
        VERIFY_GRAPHS,
        EMBEDDING_ALIAS,
    ),
    _plus_one(
        "qwen2",
        ("Qwen2ForCausalLM", "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM"),
        ("0.5.11", "0.5.20"),
        AtEmbedding.ALIAS,
        Source("models/qwen2.py", "752, 417; qwen3.py:688; qwen2_5_vl.py:1000", "0.5.20"),
        EMBEDDING_ALIAS,
    ),
    _plus_one(
        "qwen2",
        ("Qwen2ForCausalLM", "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM"),
        ("0.5.21", "0.5.23"),
        AtEmbedding.DELIVERS,
        Source("models/qwen2.py", "781, 462; qwen3.py:778, 530; qwen2_5_vl.py:990", "0.5.23"),
    ),
    _flags(
        "qwen-moe",
        ("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"),
        ("0.5.8", "0.5.10.post1"),
        Source("models/qwen2_moe.py", "928, 688; qwen3_moe.py:1065", "0.5.10.post1"),
        VERIFY_GRAPHS,
        UNCLEARED_FLAGS,
    ),
    _flags(
        "qwen-moe",
        ("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"),
        ("0.5.11", "0.5.23"),
        Source("models/qwen2_moe.py", "1418, 1201; qwen3_moe.py:1128", "0.5.23"),
    ),
    _flags(
        "qwen-moe",
        ("MellumForCausalLM",),
        ("0.5.16", "0.5.23"),
        Source("models/qwen3_moe.py", "1128; qwen2_moe.py:1201", "0.5.23"),
    ),
    _flags(
        "qwen3-next",
        ("Qwen3NextForCausalLM",),
        ("0.5.9", "0.5.10.post1"),
        Source("models/qwen3_next.py", "1113, 846", "0.5.10.post1"),
        VERIFY_GRAPHS,
        UNCLEARED_FLAGS,
    ),
    _flags(
        "qwen3-next",
        ("Qwen3NextForCausalLM",),
        ("0.5.11", "0.5.23"),
        Source("models/qwen3_next.py", "1286, 992", "0.5.23"),
    ),
    *_deepseek(
        ("0.5.8", "0.5.10.post1"),
        Setter.PLUS_ONE,
        AtEmbedding.TYPE_ERROR,
        ("2295, 2052", "841, capture in deepseek_v2.py:2052"),
        VERIFY_GRAPHS,
        PARTIAL_SUMS_DEEPSEEK,
        EXPERT_GATHER,
        kimi_from="0.5.10",
        glm_dsa_from="0.5.9",
    ),
    *_deepseek(
        ("0.5.11", "0.5.12.post1"),
        Setter.PLUS_ONE,
        AtEmbedding.TYPE_ERROR,
        ("2529, 2275", "799, capture in deepseek_v2.py:2275"),
        PARTIAL_SUMS_DEEPSEEK,
        EXPERT_GATHER,
    ),
    *_deepseek(
        ("0.5.13", "0.5.13.post1"),
        Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        AtEmbedding.TYPE_ERROR,
        ("2740, 2446", "834, capture in deepseek_v2.py:2446"),
        PARTIAL_SUMS_DEEPSEEK,
        EXPERT_GATHER,
    ),
    *_deepseek(
        ("0.5.14", "0.5.16"),
        Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        AtEmbedding.DELIVERS,
        ("2915, 2613", "921, capture in deepseek_v2.py:2613"),
    ),
    *_deepseek(
        ("0.5.17", "0.5.19"),
        Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        AtEmbedding.DELIVERS,
        ("3209, 2899", "926, capture in deepseek_v2.py:2899"),
        shortfall=Shortfall.PACKER_ASSERT,
    ),
    *_deepseek(
        ("0.5.20", "0.5.23"),
        Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        AtEmbedding.DELIVERS,
        ("3458, 3194", "928, capture in deepseek_v2.py:3194"),
        shortfall=Shortfall.PACKER_ERROR,
    ),
    _plus_one(
        "glm4-moe-lite",
        _GLM_LITE,
        ("0.5.8", "0.5.10.post1"),
        AtEmbedding.TYPE_ERROR,
        Source("models/deepseek_v2.py", "2295, 2052, inherited by glm4_moe_lite.py", "0.5.10.post1"),
        VERIFY_GRAPHS,
        PARTIAL_SUMS_LATER,
        EXPERT_GATHER,
    ),
    _plus_one(
        "glm4-moe-lite",
        _GLM_LITE,
        ("0.5.11", "0.5.12.post1"),
        AtEmbedding.TYPE_ERROR,
        Source("models/deepseek_v2.py", "2529, 2275, inherited by glm4_moe_lite.py", "0.5.12.post1"),
        PARTIAL_SUMS_LATER,
        EXPERT_GATHER,
    ),
    ClassRule(
        family="glm4-moe-lite",
        architectures=_GLM_LITE,
        first="0.5.13",
        last="0.5.20",
        setter=Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        embedding=AtEmbedding.TYPE_ERROR,
        reaches_last=False,
        source=Source("models/glm4_moe_lite.py", "1001, 836", "0.5.20"),
        malformed=Malformed.NEVER_MATCHES,
        defects=(PARTIAL_SUMS_LATER,),
    ),
    ClassRule(
        family="glm4-moe-lite",
        architectures=_GLM_LITE,
        first="0.5.21",
        last="0.5.23",
        setter=Setter.PLUS_ONE_IF_FIRST_IS_ONE,
        embedding=AtEmbedding.DELIVERS,
        reaches_last=False,
        source=Source("models/glm4_moe_lite.py", "805, 657", "0.5.23"),
        malformed=Malformed.NEVER_MATCHES,
    ),
    _plus_one(
        "gpt-oss",
        ("GptOssForCausalLM",),
        ("0.5.8", "0.5.10.post1"),
        AtEmbedding.TYPE_ERROR,
        Source("models/gpt_oss.py", "1186, 627", "0.5.10.post1"),
        VERIFY_GRAPHS,
        PARTIAL_SUMS_LATER,
    ),
    _plus_one(
        "gpt-oss",
        ("GptOssForCausalLM",),
        ("0.5.11", "0.5.16"),
        AtEmbedding.TYPE_ERROR,
        Source("models/gpt_oss.py", "1284, 692", "0.5.16"),
        PARTIAL_SUMS_LATER,
    ),
    ClassRule(
        family="gpt-oss",
        architectures=("GptOssForCausalLM",),
        first="0.5.17",
        last="0.5.20",
        setter=Setter.AS_IS_IF_LAST_LAYER,
        embedding=AtEmbedding.ALIAS,
        reaches_last=True,
        source=Source("models/gpt_oss.py", "1349, 741-751", "0.5.20"),
        defects=(PARTIAL_SUMS_LATER, EMBEDDING_ALIAS),
    ),
    ClassRule(
        family="gpt-oss",
        architectures=("GptOssForCausalLM",),
        first="0.5.21",
        last="0.5.23",
        setter=Setter.AS_IS_IF_LAST_LAYER,
        embedding=AtEmbedding.DELIVERS,
        reaches_last=True,
        source=Source("models/gpt_oss.py", "1337, 719-732", "0.5.23"),
    ),
)

_NO_CLASS = "the class does not exist in this release"
_NO_ATTRIBUTE = "AttributeError at load: the class has no set_eagle3_layers_to_capture"
_NOT_IMPLEMENTED = "ValueError at load: the model does not implement set_eagle3_layers_to_capture"
_WITHOUT_SETTER = ("Mistral3ForConditionalGeneration", "NemotronHForCausalLM", "KimiLinearForCausalLM")
_REFUSED_AT = "model_executor/model_runner_components/attention_backend_setup.py:55-60 (0.5.23)"

NO_SETTER: tuple[NoSetter, ...] = (
    NoSetter(_KIMI, "0.5.8", "0.5.8.post1", _NO_CLASS, "models/ (0.5.8) has no kimi_k25.py"),
    NoSetter(_KIMI, "0.5.9", "0.5.9", _NO_ATTRIBUTE, "models/kimi_k25.py (0.5.9)"),
    NoSetter(_GLM_DSA, "0.5.8", "0.5.8.post1", _NO_CLASS, "models/glm4_moe.py (0.5.8)"),
    NoSetter(("Qwen3NextForCausalLM",), "0.5.8", "0.5.8.post1", _NO_ATTRIBUTE, "models/qwen3_next.py (0.5.8)"),
    NoSetter(
        _WITHOUT_SETTER,
        "0.5.8",
        "0.5.22",
        _NO_ATTRIBUTE,
        "models/mistral.py, models/nemotron_h.py, models/kimi_linear.py (0.5.22)",
    ),
    NoSetter(_WITHOUT_SETTER, "0.5.23", "0.5.23", _NOT_IMPLEMENTED, _REFUSED_AT),
    NoSetter(_DEEPSEEK_V4, "0.5.8", "0.5.11", _NO_CLASS, "models/ (0.5.11) has no deepseek_v4.py"),
    NoSetter(_DEEPSEEK_V4, "0.5.12", "0.5.22", _NO_ATTRIBUTE, "models/deepseek_v4.py (0.5.22)"),
    NoSetter(_DEEPSEEK_V4, "0.5.23", "0.5.23", _NOT_IMPLEMENTED, _REFUSED_AT),
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


def adapt(rule: ClassRule | None, variant: Mapping[str, str], target: Target) -> ClassRule | None:  # noqa: ARG001  an Engine's form
    """A patched build delivers the embedding, cloned, wherever a stock one does not."""
    if rule is None or variant.get(EMBEDDING_CAPTURE.name) != "patched":
        return rule
    defects = tuple(d for d in rule.defects if d is not EMBEDDING_ALIAS)
    return replace(rule, embedding=AtEmbedding.DELIVERS, defects=defects)


_USE_AUX = f"{SECTION}.use_aux_hidden_state"

SGLANG = Engine(
    name="sglang",
    title="SGLang",
    versions=VERSIONS,
    options=(EMBEDDING_CAPTURE,),
    variants=({},),
    runner_option=None,
    key_rules={"": KEYS},
    timings={"": FIRST_FORWARD},
    classes=CLASSES,
    no_setter=NO_SETTER,
    width_rules=(*LLAMA_WIDTHS, *DEEPSEEK_WIDTHS),
    buffer_rules=BUFFERS,
    see_draft=see_draft,
    adapt=adapt,
    spellings=(
        {NESTED_IDS: Placeholder.IDS},
        {NESTED_IDS: Placeholder.IDS, _USE_AUX: True},
        {NESTED_IDS: Placeholder.IDS, "num_aux_hidden_states": Placeholder.COUNT},
        {NESTED_IDS: Placeholder.IDS, _USE_AUX: True, "num_aux_hidden_states": Placeholder.COUNT},
        {_USE_AUX: False},
    ),
)
