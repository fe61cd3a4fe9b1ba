"""Tiny targets, made in seconds, and EAGLE-3 drafts with any ids under any key.

A target's layers can't be mistaken for one another: the embedding has a standard deviation of 1, each layer adds about
as much as is there, and no norm is 1. Neighbouring boundaries are a third apart, where bf16 drifts by a hundredth.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

NUM_LAYERS = 8
HIDDEN = 128
HEAD_DIM = 32
"""vLLM's CPU attention has no kernel for smaller ones."""
VOCAB = 320
BOS, EOS = 256, 257
"""Behind the 256 bytes of the tokenizer."""
DRAFT_VOCAB = 256
"""Smaller than the target's: with as many, vLLM 0.32.0 makes no place for ``d2t`` and refuses it at load."""

_COMMON: Mapping[str, Any] = {
    "num_hidden_layers": NUM_LAYERS,
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": EOS,
    "rms_norm_eps": 1e-5,
}
_FAMILIES: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {"head_dim": HEAD_DIM}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": HEAD_DIM}),
    "deepseek": (
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            "num_key_value_heads": 4,
            "q_lora_rank": 64,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16,
            "v_head_dim": 32,
            "head_dim": 16,
            # Every layer is dense: SGLang has its experts' CPU kernels in sgl_kernel alone.
            "first_k_dense_replace": NUM_LAYERS,
            "moe_layer_freq": 1,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "moe_intermediate_size": 64,
            # SGLang's CPU path of DeepSeek knows no other.
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 2.0,
                "original_max_position_embeddings": 512,
                "beta_fast": 32,
                "beta_slow": 1,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        },
    ),
}

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def write_target(family: str, dtype: str, folder: Path) -> Path:
    """A target with its tokenizer and chat template.

    Args:
        family: ``llama``, ``qwen3`` or ``deepseek``.
        dtype: of its weights, ``bfloat16`` or ``float32``.
        folder: where it goes; returned.
    """
    import torch
    import transformers

    config_class, model_class, settings = _FAMILIES[family]
    config = getattr(transformers, config_class)(**{**_COMMON, **settings})
    with torch.random.fork_rng():
        torch.manual_seed(20260501)
        model = getattr(transformers, model_class)(config).to(torch.float32)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "norm" in name:
                    weight.copy_(1 + 0.3 * torch.randn_like(weight))
                elif "embed" in name:
                    weight.normal_()
                elif weight.ndim > 1:
                    weight.normal_(std=weight.shape[-1] ** -0.5)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    _write_tokenizer(folder)
    return folder


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    bytes_first = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab={**bytes_first, "<s>": BOS, "</s>": EOS}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer_class: Any = PreTrainedTokenizerFast
    fast = tokenizer_class(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=CHAT_TEMPLATE)
    fast.save_pretrained(folder)


def write_draft(folder: Path, settings: Mapping[str, Any], *, slots: int = 3, dtype: str = "bfloat16") -> Path:
    """A random EAGLE-3 head in SpecForge's names; what it drafts is of no interest, what it is fed is.

    Args:
        folder: where it goes; returned.
        settings: what its config has beside the sizes: the ids, under whichever key.
        slots: its ``fc`` takes.
        dtype: of its weights.
    """
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(20260502)

    def matrix(*shape: int) -> torch.Tensor:
        values = torch.randn(*shape, generator=generator) / shape[-1] ** 0.5
        converted: torch.Tensor = values.to(getattr(torch, dtype))
        return converted

    ones = torch.ones(HIDDEN, dtype=getattr(torch, dtype))
    heads, key_value_heads = 4 * HEAD_DIM, 2 * HEAD_DIM
    weights = {
        "fc.weight": matrix(HIDDEN, slots * HIDDEN),
        "norm.weight": ones.clone(),
        "lm_head.weight": matrix(DRAFT_VOCAB, HIDDEN),
        "midlayer.hidden_norm.weight": ones.clone(),
        "midlayer.input_layernorm.weight": ones.clone(),
        "midlayer.post_attention_layernorm.weight": ones.clone(),
        "midlayer.self_attn.q_proj.weight": matrix(heads, 2 * HIDDEN),
        "midlayer.self_attn.k_proj.weight": matrix(key_value_heads, 2 * HIDDEN),
        "midlayer.self_attn.v_proj.weight": matrix(key_value_heads, 2 * HIDDEN),
        "midlayer.self_attn.o_proj.weight": matrix(HIDDEN, heads),
        "midlayer.mlp.gate_proj.weight": matrix(2 * HIDDEN, HIDDEN),
        "midlayer.mlp.up_proj.weight": matrix(2 * HIDDEN, HIDDEN),
        "midlayer.mlp.down_proj.weight": matrix(HIDDEN, 2 * HIDDEN),
        "d2t": torch.zeros(DRAFT_VOCAB, dtype=torch.int64),
        "t2d": torch.arange(VOCAB) < DRAFT_VOCAB,
    }
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "draft_vocab_size": DRAFT_VOCAB,
        "torch_dtype": dtype,
        **{name: value for name, value in _COMMON.items() if name != "num_hidden_layers"},
        **settings,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    return folder


def write_prompts(path: Path, lengths: Sequence[int]) -> Path:
    """Random token ids, one sequence a line, as ``--prompts`` takes them."""
    generator = random.Random(20260503)  # noqa: S311  prompts are no secrets
    lines = (
        json.dumps({"token_ids": [BOS, *(generator.randrange(256) for _ in range(length - 1))]}) for length in lengths
    )
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def write_shards(capture: Path, folder: Path) -> Path:
    """The capture's states as speculators writes them: ``token_ids`` [T], ``hidden_states`` [T, slots + 1, H]."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    states = folder / "hidden_states"
    states.mkdir(parents=True)
    for number, path in enumerate(sorted(capture.glob("sequence_*.safetensors"))):
        with safe_open(path, framework="pt") as file:
            slots = sorted(name for name in file.keys() if name.startswith("slot."))  # noqa: SIM118  no mapping
            stacked = torch.stack([file.get_tensor(name) for name in [*slots, "last_state"]], dim=1)
            save_file(
                {"token_ids": file.get_tensor("token_ids"), "hidden_states": stacked.contiguous()},
                states / f"hs_{number}.safetensors",
            )
    return folder
