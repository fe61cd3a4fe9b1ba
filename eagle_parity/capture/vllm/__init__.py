"""The capture hook inside vLLM's workers: what the target hands to the draft head, and what the head's ``fc`` gets.

Two entry points of this package, which vLLM finds by itself once the package is installed beside it:

- ``vllm.general_plugins``: ``register`` gives every worker the methods of ``CaptureMethods`` (``methods``). Nothing
  else happens until one of them is called.
- ``vllm.endpoint_plugins`` (0.26.0 and newer): ``CaptureEndpoint`` adds a route to the API server (``endpoint``).

While a capture is on, three methods of live objects are wrapped, all of them plain Python outside compiled regions and
graphs, so it works with and without ``--enforce-eager``; switching off deletes the wrappers. ``live_objects`` finds
them, ``wrapping`` wraps them, ``recorder`` switches, ``recording`` writes what comes by, ``facts`` reads the worker.

Decoder layers are not hooked: under compilation such hooks never fire.

It imports torch, safetensors and the standard library, and vLLM where it is called by it.
"""

from __future__ import annotations

from eagle_parity.capture.vllm.endpoint import CaptureEndpoint
from eagle_parity.capture.vllm.methods import CaptureMethods, register

__all__ = ["CaptureEndpoint", "CaptureMethods", "register"]
