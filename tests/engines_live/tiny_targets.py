"""Tiny random targets of each class that is run, and what every boundary of them is by transformers.

The output projection of attention is zero in all of them, so that attention can be left out where an engine has no CPU
kernel for it, or leaves its result uninitialised outside a server. Each layer's MLP makes its boundary unlike its
neighbours.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import transformers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

NUM_LAYERS = 8
HIDDEN = 128
VOCAB = 256
TOKENS = 12
"""Of one prompt; boundaries are compared over all of them."""

_COMMON: Mapping[str, Any] = {
    "num_hidden_layers": NUM_LAYERS,
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_EXPERTS: Mapping[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_YARN: Mapping[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 2.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
"""SGLang's CPU path of DeepSeek knows no other."""
_LATENT: Mapping[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_group": 1,
    "topk_group": 1,
    "moe_layer_freq": 1,
    "first_k_dense_replace": NUM_LAYERS,
}

_DENSE = list(range(NUM_LAYERS - 1))
"""All but the last layer: that many expert layers an engine wants to see at least, and the loop is the same."""

CLASSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "LlamaForCausalLM": ("LlamaConfig", {}),
    "Qwen2ForCausalLM": ("Qwen2Config", {}),
    "Qwen3ForCausalLM": ("Qwen3Config", {}),
    "Qwen2MoeForCausalLM": (
        "Qwen2MoeConfig",
        {**_EXPERTS, "mlp_only_layers": _DENSE, "shared_expert_intermediate_size": 64},
    ),
    "Qwen3MoeForCausalLM": ("Qwen3MoeConfig", {**_EXPERTS, "mlp_only_layers": _DENSE}),
    "DeepseekV2ForCausalLM": ("DeepseekV2Config", {**_LATENT, "rope_parameters": _YARN, "topk_method": "greedy"}),
    "DeepseekV3ForCausalLM": ("DeepseekV3Config", {**_LATENT, "rope_parameters": _YARN}),
    "Glm4MoeLiteForCausalLM": (
        "Glm4MoeLiteConfig",
        {
            **_LATENT,
            "mlp_layer_types": ["dense"] * len(_DENSE) + ["sparse"],
            "first_k_dense_replace": len(_DENSE),
        },
    ),
    "GptOssForCausalLM": (
        "GptOssConfig",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 64,
            "swiglu_limit": 7.0,
            "layer_types": ["sliding_attention", "full_attention"] * (NUM_LAYERS // 2),
        },
    ),
    "MistralForCausalLM": ("MistralConfig", {}),
    "Phi3ForCausalLM": ("Phi3Config", {}),
    "ApertusForCausalLM": ("ApertusConfig", {}),
    "Glm4MoeForCausalLM": (
        "Glm4MoeConfig",
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": len(_DENSE),
        },
    ),
    "MiniMaxM2ForCausalLM": (
        "MiniMaxM2Config",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "scoring_func": "sigmoid",
            "rotary_dim": 32,
            "use_routing_bias": True,
        },
    ),
    "SmolLM3ForCausalLM": ("SmolLM3Config", {}),
    "Gemma3ForCausalLM": (
        "Gemma3TextConfig",
        {
            "layer_types": ["full_attention"] * NUM_LAYERS,
            # As in the checkpoints from 4B on: SGLang 0.5.12 wants a factor.
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "GraniteForCausalLM": ("GraniteConfig", {"embedding_multiplier": 3.0, "residual_multiplier": 0.5}),
}


def write_target(architecture: str, folder: Path) -> None:
    """Writes a tiny target's config and fp32 weights, the same in every run of one torch release."""
    config_class, settings = CLASSES[architecture]
    config = getattr(transformers, config_class)(**{**_COMMON, **settings})
    torch.manual_seed(20260401)
    model = getattr(transformers, architecture)(config).to(torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "o_proj.bias")):
                weight.zero_()
            elif "norm" in name:
                # Not 1, so that a state before a norm is unlike the one after it.
                weight.copy_(1 + 0.3 * torch.randn_like(weight))
            elif "embed" in name:
                weight.normal_()
            elif weight.ndim >= 2:
                weight.normal_(std=weight.shape[-1] ** -0.5)
    model.save_pretrained(folder)


def prompt() -> torch.Tensor:
    """Token ids, ``[TOKENS]`` int64."""
    return torch.randint(3, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(7))


_RETURNS: Mapping[str, Callable[[torch.Tensor], Any]] = {
    "GptOssForCausalLM": lambda state: (state, None),
}
"""What transformers' MLP returns of its output, where that isn't the output alone."""


def mlp_of(layer: Any) -> Any:
    """A layer's MLP, on either side."""
    names = ("mlp", "block_sparse_moe")
    return next(getattr(layer, name) for name in names if hasattr(layer, name))


def linear_mlp(index: int) -> Callable[..., torch.Tensor]:
    """An MLP of layer ``index`` that any side can have: a fixed matrix."""
    seeded = torch.Generator().manual_seed(index)
    matrix = torch.randn(HIDDEN, HIDDEN, generator=seeded) * HIDDEN**-0.5

    def forward(hidden_states: torch.Tensor, *_args: Any, **_kwargs: Any) -> torch.Tensor:
        return hidden_states @ matrix

    return forward


def boundaries_by_transformers(architecture: str, folder: Path, *, replace_mlp: bool) -> dict[str, torch.Tensor]:
    """Every boundary of a target: "0" to "8" and "post_norm", each ``[TOKENS, HIDDEN]`` fp32.

    Boundary k is what goes into layer k, and N what goes into the final norm.

    Args:
        architecture: the class.
        folder: its checkpoint.
        replace_mlp: whether the MLPs are ``linear_mlp``.
    """
    model = getattr(transformers, architecture).from_pretrained(folder, dtype=torch.float32).eval()
    found: dict[str, torch.Tensor] = {}
    for index, layer in enumerate(model.model.layers):
        if replace_mlp:
            returns = _RETURNS.get(architecture, lambda state: state)
            mlp_of(layer).forward = _then(linear_mlp(index), returns)
        layer.register_forward_pre_hook(
            lambda _, args, kwargs, key=str(index): found.update({key: _state(args, kwargs)}), with_kwargs=True
        )
    model.model.norm.register_forward_pre_hook(
        lambda _, args, kwargs: found.update({str(NUM_LAYERS): _state(args, kwargs)}), with_kwargs=True
    )
    model.model.norm.register_forward_hook(lambda _, __, output: found.update({"post_norm": output[0].clone()}))
    with torch.no_grad():
        model(input_ids=prompt()[None], use_cache=False)
    return found


def leave_out_attention(layer: Any, *, returns: Callable[[torch.Tensor], Any] = lambda state: state) -> None:
    """Makes a loaded layer's attention give the zero that its output projection would make of anything.

    Args:
        layer: of an engine's target.
        returns: makes of that zero what the class's attention returns.
    """

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = [kwargs.get("hidden_states"), *args]
        state = next(each for each in given if isinstance(each, torch.Tensor) and each.is_floating_point())
        return returns(torch.zeros_like(state))

    (layer.self_attn if hasattr(layer, "self_attn") else layer.attn).forward = forward


def _then(first: Callable[..., torch.Tensor], second: Callable[[torch.Tensor], Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: second(first(*args, **kwargs))


def _state(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    state = args[0] if args else kwargs["hidden_states"]
    return state[0].clone()


EXACT = 1e-4
"""A state is a boundary where their relative error is below this: fp32 on both sides gives 1e-6, a neighbour 0.1."""


def name_of(state: torch.Tensor, boundaries: Mapping[str, torch.Tensor]) -> int | str | None:
    """Which boundary a state is; None where it is none.

    Raises:
        ValueError: it is several, so that the tiny target tells nothing.
    """
    state = state.detach().float()
    near = [key for key, boundary in boundaries.items() if relative_error(state, boundary) < EXACT]
    if len(near) > 1:
        raise ValueError(f"one state is several boundaries: {', '.join(near)}")
    if not near:
        return None
    return int(near[0]) if near[0].isdigit() else near[0]


def relative_error(state: torch.Tensor, boundary: torch.Tensor) -> float:
    """Of the whole tensor; infinite where the shapes differ."""
    if state.shape != boundary.shape:
        return float("inf")
    return float((state - boundary).norm() / boundary.norm())


def least_separation(boundaries: Mapping[str, torch.Tensor]) -> float:
    """The smallest relative error between two boundaries."""
    keys = list(boundaries)
    return min(relative_error(boundaries[a], boundaries[b]) for a in keys for b in keys if a != b)


def config_facts(folder: Path) -> dict[str, Any]:
    """The target's config as the rules read it."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return {
        key: config[key] for key in ("architectures", "model_type", "num_hidden_layers", "hidden_size", "vocab_size")
    }
