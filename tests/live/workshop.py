"""The targets, drafts, prompts and captures of a run, each made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from live.tiny_models import write_draft, write_prompts, write_shards, write_target
from live.tool import run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LENGTHS = (21, 32, 43, 54, 30, 25, 90, 300)
"""Tokens of the prompts: the last two are longer than the chunks that the servers compute at once, and half of the last
one fills several blocks of vLLM's prefix cache."""
CHUNK = 64
LAST_STATE = 8


class Workshop:
    """What a run has made so far.

    Args:
        root: an empty folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def target(self, family: str, dtype: str) -> Path:
        """See ``write_target``."""
        folder = self.root / f"{family}-{dtype}"
        return folder if folder.is_dir() else write_target(family, dtype, folder)

    def draft(self, name: str, settings: Mapping[str, Any], *, dtype: str) -> Path:
        """See ``write_draft``."""
        folder = self.root / f"draft-{name}-{dtype}"
        return folder if folder.is_dir() else write_draft(folder, settings, dtype=dtype)

    def prompts(self) -> Path:
        """Eight sequences of token ids."""
        path = self.root / "prompts.jsonl"
        return path if path.is_file() else write_prompts(path, LENGTHS)

    def trained(self, family: str, dtype: str, boundaries: Sequence[int]) -> Path:
        """What a trainer would have stored of these boundaries: transformers' own forward."""
        named = ",".join(str(boundary) for boundary in boundaries)
        return self._capture(family, dtype, f"trained-{named}", "--boundaries", named, "--last-state", str(LAST_STATE))

    def reference(self, family: str, dtype: str) -> Path:
        """All boundaries."""
        return self._capture(family, dtype, "reference")

    def shards(self, family: str, dtype: str, boundaries: Sequence[int]) -> Path:
        """The trained states in speculators' layout, which doesn't say what its slots are."""
        capture = self.trained(family, dtype, boundaries)
        folder = capture.with_name(f"{capture.name}-shards")
        return folder if folder.is_dir() else write_shards(capture, folder)

    def _capture(self, family: str, dtype: str, name: str, *options: str) -> Path:
        folder = self.root / f"{family}-{dtype}-{name}"
        if not folder.is_dir():
            words = ["--target", str(self.target(family, dtype)), "--prompts", str(self.prompts())]
            run_tool("capture", "transformers", *words, "--output", str(folder), "--dtype", dtype, *options)
        return folder
