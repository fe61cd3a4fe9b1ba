"""Option values from a YAML file, so that a CI job states them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from eagle_parity.config_files import MAX_CONFIG_BYTES
from eagle_parity.errors import InputError

_EXPECTED = "YAML such as  check-config: {target: ./target, engine: [sglang@0.5.23]}"


def read_defaults(source: str) -> dict[str, dict[str, Any]]:
    """Values by subcommand and option, with ``-`` or ``_`` in option names.

    Raises:
        InputError: no such file, not YAML, or not a mapping of mappings.
    """
    path = Path(source)
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise InputError(source, "too large", expected=_EXPECTED)
        values = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise InputError(source, error.strerror or str(error), expected=_EXPECTED) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(source, f"not YAML ({' '.join(str(error).split())[:120]})", expected=_EXPECTED) from error
    if not isinstance(values, dict) or not all(isinstance(v, dict) for v in values.values()):
        raise InputError(source, "not a mapping of subcommands to options", expected=_EXPECTED)
    return {str(command): _by_parameter(options) for command, options in values.items()}


def _by_parameter(options: dict[Any, Any], depth: int = 0) -> dict[str, Any]:
    # One level more for commands with subcommands: capture: {transformers: {max-tokens: 40}}.
    return {
        str(option).replace("-", "_"): _by_parameter(value, 1) if isinstance(value, dict) and depth == 0 else value
        for option, value in options.items()
    }
