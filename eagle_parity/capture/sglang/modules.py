"""Which of SGLang's modules are hooked.

Why these, from SGLang's own code (every release from 0.5.10 to 0.5.23):

- ``logits_processor``: every class with a setter for EAGLE-3, or the language model inside it, hands it ``(input_ids,
  hidden_states, lm_head, forward_batch, aux_hidden_states)`` by position; the auxiliary states are complete there,
  after every deferred all-reduce, as a list or as one tensor (``layers/aux_hidden_states.py``). What a decoder layer
  returns is a partial sum of one rank (``layers/layer_boundary``, 0.5.21 and newer): none is hooked.
- ``model``: holds ``layers_to_capture`` or the layers' flags, which is what the engine really captures. Gemma 4 has
  it as ``language_model`` (``models/gemma4_mm.py``).
- ``model.fc`` of the draft: its argument is the concatenation itself. Which module that is the draft's ``model`` says;
  it holds ``layers``, or ``midlayer`` (``models/llama_eagle3.py`` in 0.5.10 and 0.5.11, ``models/kimi_k25_eagle3.py``).
"""

from __future__ import annotations

TARGET_MODULES = (
    "logits_processor",
    "model",
    "model.fc",
    "language_model",
    "language_model.logits_processor",
    "language_model.model",
)
"""Names, as ``--forward-hooks`` matches them; ``language_model.`` is where Kimi's and other wrappers keep them."""

FINAL_NORMS = ("model.norm", "language_model.model.norm")
"""Hooked as well where boundaries are recorded beside the list."""
