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
from eagle_parity.engines.vllm.drafts import DEEPSEEK_WIDTH, LLAMA_WIDTH, QWEN3_WIDTH, see_draft
from eagle_parity.engines.vllm.keys import KEYS, SPELLINGS, TIMINGS
from eagle_parity.engines.vllm.native_classes import NATIVE_CLASSES
from eagle_parity.engines.vllm.options import IMPL, PLATFORM, RUNNER
from eagle_parity.engines.vllm.refused import NO_SETTER
from eagle_parity.engines.vllm.transformers_backend import BACKEND, BACKEND_CLASSES
from eagle_parity.engines.vllm.versions import FIRST, LAST, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.targets import Target

__all__ = ["CLASSES", "KEYS", "NO_SETTER", "VERSIONS", "VLLM"]

CLASSES: tuple[ClassRule, ...] = (*NATIVE_CLASSES, *DEEPSEEK_CLASSES, *BACKEND_CLASSES)

_MULTIMODAL = "ForConditionalGeneration"
_WRAPPERS = (
    "LightOnOCRForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "NemotronH_Nano_Omni_Reasoning_V3",
    "NemotronH_Nano_VL_V2",
    "NemotronH_Omni_Reasoning_V3",
    "NemotronH_Super_Omni_Reasoning_V3",
    "PixtralForConditionalGeneration",
)
"""Classes around a language model that its own config chooses."""

_STREAMS_OF_THEIR_OWN = ("KimiK3ForConditionalGeneration", "KimiLinearForCausalLM")
_RELAY_STAGES = (
    "KimiK3ForConditionalGeneration",
    "LlamaForCausalLM",
    "MiniMaxM3SparseForCausalLM",
    "MiniMaxM3SparseForConditionalGeneration",
    "Qwen2ForCausalLM",
    "SarvamMLAForCausalLM",
)
"""Classes that hand the states of earlier pipeline stages on, from 0.31 on."""


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
    if architecture in _WRAPPERS:
        return Unread("the target's language model is chosen by its own config, which the tables don't follow")
    if architecture in _STREAMS_OF_THEIR_OWN:
        return Unread("the class captures from its attention-residual stream, for which boundaries are not defined")
    if impl == "native" and rule is not None and rule.family == BACKEND.family:
        return None
    if rule is SPARSE_CUDA:
        return {"rocm": SPARSE_ROCM, "cpu": SPARSE_CPU}.get(variant.get(PLATFORM.name, ""), rule)
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
    width_rules=(LLAMA_WIDTH, QWEN3_WIDTH, DEEPSEEK_WIDTH),
    launch_defects=(
        LaunchDefect(PIPELINE_LOST, "0.25.0", "0.28.0"),
        LaunchDefect(PIPELINE_LOST, "0.31.0", "0.32.0", except_for=_RELAY_STAGES),
    ),
    see_draft=see_draft,
    adapt=adapt,
    spellings=(SPELLINGS,),
)
