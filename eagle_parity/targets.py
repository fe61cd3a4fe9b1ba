"""The target: the model whose hidden states are captured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eagle_parity.config_files import ConfigFile, integer, read_config, strings
from eagle_parity.errors import InputError, UsageError
from eagle_parity.quoting import plain
from eagle_parity.wiring import MAX_BOUNDARIES, BoundaryEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


TARGET_FORMAT = "config"
"""What a target is in ``inputs``: only its config is read, whatever lies beside it."""

_STREAM_KEYS = ("hc_mult", "hc_count")
"""How many residual streams there are: DeepSeek V4's name, and Qwen4-Exp's."""

_SWITCH = "mhc"
"""GLM-5-Next's switch: its config class states a count even where hyper-connections are off."""

_ALWAYS_HYPER_CONNECTED = (
    "DeepseekV41ForCausalLM",
    "DeepseekV4ForCausalLM",
    "DeepseekV4ForConditionalGeneration",
    "HYV4ForCausalLM",
    "Qwen4ExpForCausalLM",
    "Qwen4ExpForConditionalGeneration",
)
_STREAMS_UNSTATED = 4
"""What the config classes of these take where a file states no count."""

_ATTENTION_RESIDUAL = "attn_res_block_size"
"""Kimi K3: how many layers a block has whose sum later layers attend to."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a target's config.json says.

    Attributes:
        path: as it was given.
        folder: where its weights are, if a folder was given or found.
        architectures: the top-level ``architectures``; engines choose the target class by the first they know.
        text_architectures: those of a nested ``text_config``.
        model_type: the top-level one, or "".
        num_layers: N, decoder layers.
        hidden_size: H.
        vocab_size: None where the config has none.
        config: the text part of the config, as read.
    """

    path: str
    folder: Path | None
    architectures: tuple[str, ...]
    text_architectures: tuple[str, ...]
    model_type: str
    num_layers: int
    hidden_size: int
    vocab_size: int | None
    config: Mapping[str, Any]

    @property
    def architecture(self) -> str | None:
        """The first architecture, in one short line; None where the config names none."""
        return plain(self.architectures[0]) if self.architectures else None

    @property
    def residual_streams(self) -> int:
        """More than one where the target has hyper-connections."""
        if _SWITCH in self.config and not self.config[_SWITCH]:
            return 1
        stated = integer(self.config, *_STREAM_KEYS)
        if stated is None:
            always = any(name in _ALWAYS_HYPER_CONNECTED for name in self.architectures)
            return _STREAMS_UNSTATED if always else 1
        return max(stated, 1)

    @property
    def no_boundaries(self) -> str | None:
        """Why the target has no boundaries, as a clause; None where it has: there is one stream that layers add to."""
        if self.residual_streams > 1:
            return f"the target has {self.residual_streams} residual streams (hyper-connections)"
        block = integer(self.config, _ATTENTION_RESIDUAL)
        if block is not None and block > 0:
            return (
                f"the target's layers attend to the sums of earlier blocks of {block} layers (attention residuals) and"
                " don't add to one residual stream"
            )
        return None


def refuse_beyond(boundaries: Iterable[BoundaryEntry], target: Target, *, option: str) -> None:
    """Refuses what is no boundary of a target.

    Raises:
        UsageError: a boundary is beyond the target's layers; the message names the option.
    """
    beyond = next((b for b in boundaries if isinstance(b, int) and b > target.num_layers), None)
    if beyond is not None:
        raise UsageError(
            f"{option}: {beyond} is no boundary of a target with {target.num_layers} layers"
            f" (0 to {target.num_layers}, or post_norm)"
        )


def read_target(source: str) -> Target:
    """Reads a target from a folder, a config.json, a bare JSON file of any name, or a Hub id.

    Raises:
        InputError: there is no config, or it is not a target's: no layers, no hidden size.
    """
    return target_from_config(read_config(source, what="a target model's config.json"))


def target_from_config(file: ConfigFile) -> Target:
    """A target from a config that has been read.

    Multimodal configs keep the decoder under ``text_config`` (or ``llm_config``, ``language_config``); the top level
    still names the class that an engine loads.
    """
    config = file.config
    text: Mapping[str, Any] = config
    for key in ("text_config", "llm_config", "language_config"):
        nested = config.get(key)
        if isinstance(nested, dict):
            text = nested
            break
    num_layers = integer(text, "num_hidden_layers", "n_layer", "num_layers")
    hidden_size = integer(text, "hidden_size", "n_embd", "d_model")
    if not num_layers or num_layers < 1 or not hidden_size or hidden_size < 1:
        raise InputError(
            file.path,
            "no num_hidden_layers or no hidden_size in it",
            expected="a target model's config.json",
            remedy="pass the target's folder or config.json with --target",
        )
    if num_layers >= MAX_BOUNDARIES:
        raise InputError(file.path, f"num_hidden_layers {num_layers:,}", expected="a target model's config.json")
    vocab_size = integer(text, "vocab_size")
    if vocab_size is None:
        vocab_size = integer(config, "vocab_size")
    return Target(
        path=file.source,
        folder=file.folder,
        architectures=strings(config.get("architectures")),
        text_architectures=strings(text.get("architectures")) if text is not config else (),
        model_type=str(config.get("model_type") or ""),
        num_layers=num_layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        config=text,
    )
