"""A running target's layer set is read as boundaries by its class's rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eagle_parity.engines.live_layers import live_boundaries, options_of

if TYPE_CHECKING:
    from eagle_parity.wiring import BoundaryEntry

LAYERS = 8


@pytest.mark.parametrize(
    ("engine", "architecture", "layer_set", "options", "boundaries"),
    [
        # Recorded from real servers with two ranks.
        ("sglang@0.5.23", "LlamaForCausalLM", {"list": [0, 3, 6]}, {}, (0, 3, 6)),
        ("vllm@0.32.0", "LlamaForCausalLM", {"list": [1, 4, 7]}, {"runner": "v1", "impl": "native"}, (1, 4, 7)),
        # A list is what the setter made of the ids: nothing is added any more, whatever the class adds to ids.
        ("sglang@0.5.12", "DeepseekV3ForCausalLM", {"list": [3, 5, 7]}, {}, (3, 5, 7)),
        ("sglang@0.5.23", "DeepseekV3ForCausalLM", {"list": [2, 5, 7]}, {}, (2, 5, 7)),
        ("sglang@0.5.23", "LlamaForCausalLM", {"list": [6, 2, 4]}, {}, (2, 4, 6)),
        # Index N: no layer comes to it but in the classes that reach their last output.
        ("sglang@0.5.23", "LlamaForCausalLM", {"list": [2, 4, 8]}, {}, (2, 4)),
        ("sglang@0.5.23", "GptOssForCausalLM", {"list": [2, 4, 8]}, {}, (2, 4, 8)),
        ("sglang@0.5.23", "MiniMaxM3SparseForCausalLM", {"list": [2, 4, 8], "flags": [2, 4]}, {}, (2, 4, 8)),
        # Flags count where there are some: the setter of qwen3_moe.py lets -1 wrap to the last layer.
        ("sglang@0.5.23", "Qwen3MoeForCausalLM", {"list": [-1, 3, 5], "flags": [3, 5, 7]}, {}, (3, 5, 7)),
        # A loop that asks for flags that the setter doesn't write captures nothing.
        ("sglang@0.5.21", "Qwen3_5ForConditionalGeneration", {"list": [2, 4, 5]}, {}, ()),
        # Gemma 3's branch without its residual is no boundary; its embedding is.
        ("sglang@0.5.23", "Gemma3ForCausalLM", {"list": [0, 4, 5]}, {}, (0, None, None)),
        ("sglang@0.5.16", "Gemma3ForCausalLM", {"list": [0, 4, 5]}, {}, (0, 4, 5)),
        # The transformers backend keeps its list's order, native classes don't.
        ("vllm@0.32.0", "LlamaForCausalLM", {"list": [7, 1, 4]}, {"impl": "transformers"}, (7, 1, 4)),
        ("vllm@0.28.0", "LlamaForCausalLM", {"list": [7, 1, 4]}, {}, (1, 4, 7)),
        ("vllm@0.32.0", "LlamaForCausalLM", {"list": [0, 4, 8]}, {}, (0, 4, 8)),
        # A build is left out of a version.
        ("vllm@0.32.0+cpu", "LlamaForCausalLM", {"list": [2, 4, 5]}, {}, (2, 4, 5)),
    ],
)
def test_layer_sets_as_boundaries(
    engine: str,
    architecture: str,
    layer_set: dict[str, list[int]],
    options: dict[str, str],
    boundaries: tuple[BoundaryEntry, ...],
) -> None:
    name, _, version = engine.partition("@")
    assert live_boundaries(name, version, [architecture], layer_set, LAYERS, options) == boundaries


@pytest.mark.parametrize(
    ("engine", "architecture", "layer_set"),
    [
        ("sglang@0.5.23", "LlamaForCausalLM", None),
        ("sglang@0.5.23", "LlamaForCausalLM", {}),
        ("sglang@0.9.0", "LlamaForCausalLM", {"list": [2]}),
        ("sglang@0.5.23.dev7", "LlamaForCausalLM", {"list": [2]}),
        ("sglang@main", "LlamaForCausalLM", {"list": [2]}),
        ("sglang@0.5.23", "NobodysForCausalLM", {"list": [2]}),
        ("transformers@5.19.0", "LlamaForCausalLM", {"list": [2]}),
        # Boundaries are not defined where there are several streams.
        ("vllm@0.32.0", "DeepseekV4ForCausalLM", {"list": [2]}),
    ],
)
def test_no_rule_is_no_wiring(engine: str, architecture: str, layer_set: dict[str, list[int]] | None) -> None:
    name, _, version = engine.partition("@")
    assert live_boundaries(name, version, [architecture], layer_set, LAYERS, {}) is None


def test_the_language_model_of_a_wrapper_comes_from_the_targets_config() -> None:
    given: dict[str, Any] = {
        "engine": "vllm",
        "version": "0.32.0",
        "architectures": ["LlavaForConditionalGeneration"],
        "layer_set": {"list": [1, 4, 7]},
        "num_layers": LAYERS,
        "options": {},
    }
    assert live_boundaries(**given) is None
    config = {"text_config": {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS}}
    assert live_boundaries(**given, target_config=config) == (1, 4, 7)


def test_settings_of_a_worker_are_options_of_the_engine() -> None:
    settings = {"runner": "v1", "implementation": "transformers", "enforce_eager": True}
    assert options_of("vllm", settings) == {"runner": "v1", "impl": "transformers"}
    assert options_of("sglang", settings) == {}
