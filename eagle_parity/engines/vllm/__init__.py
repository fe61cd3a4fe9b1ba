"""vLLM, in the releases that ``versions`` lists: paths below ``vllm``.

An id is a boundary, nothing is added. Two model runners look for the list in different places: V1 at top level, then in
``eagle_config``; V2, the default wherever Triton works, at top level and then under other names. Native target classes
concatenate in ascending order, the transformers backend as listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.engines.class_rules import ClassRule, LaunchDefect
from eagle_parity.engines.engine import PIPELINE_PARALLEL
from eagle_parity.engines.rules import Engine, Unread, VariantRule
from eagle_parity.engines.vllm.deepseek import DEEPSEEK_CLASSES, SPARSE_CPU, SPARSE_CUDA, SPARSE_ROCM
from eagle_parity.engines.vllm.defects import PIPELINE_LOST
from eagle_parity.engines.vllm.drafts import DEEPSEEK_WIDTH, LLAMA_WIDTH, QWEN3_WIDTH, VOCAB_MAPS, see_draft
from eagle_parity.engines.vllm.keys import KEYS, SPELLINGS, TIMINGS
from eagle_parity.engines.vllm.kimi import KIMI, KIMI_CLASSES, kimi_platforms
from eagle_parity.engines.vllm.launch import EXTRACTIONS
from eagle_parity.engines.vllm.native_classes import NATIVE_CLASSES
from eagle_parity.engines.vllm.options import CPU, CUDA, IMPL, PLATFORM, ROCM, RUNNER
from eagle_parity.engines.vllm.refused import NO_SETTER
from eagle_parity.engines.vllm.transformers_backend import BACKEND, BACKEND_CLASSES
from eagle_parity.engines.vllm.unruled import NO_RULE
from eagle_parity.engines.vllm.versions import FIRST, LAST, VERSIONS
from eagle_parity.engines.vllm.wrappers import TEXT_CLASSES, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.targets import Target

__all__ = ["CLASSES", "KEYS", "NO_RULE", "NO_SETTER", "VERSIONS", "VLLM", "WRAPPERS"]

CLASSES: tuple[ClassRule, ...] = (*NATIVE_CLASSES, *DEEPSEEK_CLASSES, *KIMI_CLASSES, *BACKEND_CLASSES)

_MULTIMODAL = "ForConditionalGeneration"
_RELAY_STAGES = (
    "IQuestCoderForCausalLM",
    "InternLM3ForCausalLM",
    "KimiK3ForConditionalGeneration",
    "KimiLinearForCausalLM",
    "LLaMAForCausalLM",
    "Llama4ForCausalLM",
    "Llama4ForConditionalGeneration",
    "LlamaForCausalLM",
    "Ministral3ForCausalLM",
    "MistralForCausalLM",
    "OpenCUAForConditionalGeneration",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3ForCausalLM",
    "TeleChat2ForCausalLM",
    "TeleChat3ForCausalLM",
    "TeleFLMForCausalLM",
)
"""Classes that hand the states of earlier pipeline stages on, from 0.31 on: their decoder's forward collects them."""

_RELAY_STAGES_TOO = {
    "0.31.0": ("CwmForCausalLM",),
    "0.32.0": (
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
        "Qwen3ASRForConditionalGeneration",
        "Qwen3ASRRealtimeGeneration",
        "SarvamMLAForCausalLM",
    ),
}
"""Those that do in one of these releases alone."""


def adapt(rule: ClassRule | None, variant: Mapping[str, str], target: Target) -> ClassRule | Unread | None:
    """``--model-impl transformers`` serves any class by the backend's rule; ``native`` only what is native.

    The backend's multimodal form hooks a submodel with a registry of its own, which wasn't followed.
    """
    architecture = target.architectures[0]
    impl = variant.get(IMPL.name)
    if impl == "transformers":
        if target.text_architectures or architecture.endswith(_MULTIMODAL):
            return Unread("what the multimodal form of the transformers backend captures wasn't read")
        return BACKEND
    if impl == "native" and rule is not None and rule.family == BACKEND.family:
        return None
    platform = variant.get(PLATFORM.name, CUDA)
    if rule is not None and rule.family == KIMI and platform not in kimi_platforms(architecture):
        return None
    if rule is SPARSE_CUDA:
        return {ROCM: SPARSE_ROCM, CPU: SPARSE_CPU}.get(platform, rule)
    return rule


VLLM = Engine(
    name="vllm",
    title="vLLM",
    versions=VERSIONS,
    options=(RUNNER, IMPL, PLATFORM, PIPELINE_PARALLEL),
    variants=(VariantRule(({RUNNER.name: "v1"}, {RUNNER.name: "v2"}), FIRST, LAST),),
    runner_option=RUNNER.name,
    key_rules=KEYS,
    timings=TIMINGS,
    classes=CLASSES,
    no_setter=NO_SETTER,
    no_rule=NO_RULE,
    wrappers=WRAPPERS,
    text_classes=TEXT_CLASSES,
    width_rules=(LLAMA_WIDTH, QWEN3_WIDTH, DEEPSEEK_WIDTH),
    vocab_maps=VOCAB_MAPS,
    extractions=EXTRACTIONS,
    launch_defects=(
        LaunchDefect(PIPELINE_LOST, "0.25.0", "0.28.0"),
        *(
            LaunchDefect(PIPELINE_LOST, version, version, except_for=(*_RELAY_STAGES, *others))
            for version, others in _RELAY_STAGES_TOO.items()
        ),
    ),
    see_draft=see_draft,
    adapt=adapt,
    spellings=(SPELLINGS,),
)
