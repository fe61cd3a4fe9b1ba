"""The capture hook inside SGLang's workers: what the target hands to the draft head, and what the head's ``fc`` gets.

Two ways in, none of which changes SGLang (``loading``):

- ``--forward-hooks``, with ``factory`` as the hook factory. ``eagle-parity capture sglang --launch-flags`` prints the
  flag. Releases before 0.5.10 have the flag too, but their forward batches carry no request ids.
- the plugin group ``sglang.srt.plugins``, with ``register`` (SGLang 0.5.11 and newer): the package is installed beside
  SGLang and ``EAGLE_PARITY_SPOOL`` names a folder; no flag.

``modules`` says which modules are hooked and why, ``tap`` records what they are called with, ``forward`` reads a
forward's arguments, ``beside`` keeps boundaries that the auxiliary states don't reach, ``facts`` reads the worker.

It imports torch, safetensors and the standard library, and SGLang where it is called by it.
"""

from __future__ import annotations

from eagle_parity.capture.sglang.loading import factory, register

__all__ = ["factory", "register"]
