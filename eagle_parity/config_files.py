"""Finding and reading a config: a folder, a config.json, bare JSON of another name, or a Hub id."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity.errors import InputError
from eagle_parity.input_files import A_FOLDER, NOTHING_THERE, read_bounded, why_no_file
from eagle_parity.quoting import MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CONFIG_BYTES = 8 * 1024 * 1024
"""Configs are kilobytes; whatever is larger is something else, and isn't parsed."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(@[\w./-]{1,100})?")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config that was read.

    Attributes:
        source: as it was given.
        path: the file.
        folder: the folder that holds weights beside it, if it has any.
        config: the JSON object.
    """

    source: str
    path: Path
    folder: Path | None
    config: Mapping[str, Any]


def read_config(source: str, *, what: str) -> ConfigFile:
    """Reads a config.

    Args:
        source: a folder with a config.json, a JSON file, or a Hub id ``owner/name[@revision]`` (needs the hub extra).
        what: what is expected, for the error: ``an EAGLE-3 draft's config.json``.

    Raises:
        InputError: nothing is there, or it isn't a JSON object.
    """
    if not source:
        raise InputError("''", "an empty path", expected=what)
    path = Path(source).expanduser()
    missing = why_no_file(path)
    if missing == A_FOLDER:
        path = path / "config.json"
        if why_no_file(path) is not None:
            raise InputError(source, "no config.json in this folder", expected=what)
    elif missing is not None:
        if missing != NOTHING_THERE or not _HUB_ID.fullmatch(source):
            raise InputError(source, missing, expected=what)
        path = _download(source, what=what)
    return ConfigFile(source=source, path=path, folder=path.parent, config=read_json_object(path, what=what))


def read_json_object(path: Path, *, what: str) -> Mapping[str, Any]:
    """Reads a JSON object, bounded in size and depth.

    Raises:
        InputError: too large, not JSON, not an object.
    """
    try:
        value = json.loads(read_bounded(path, MAX_CONFIG_BYTES, expected=f"{what}, which is JSON of a few kilobytes"))
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"not JSON ({str(error)[:80]})", expected=what) from error
    if not isinstance(value, dict):
        raise InputError(path, f"JSON, but {type(value).__name__}", expected=f"{what}, which is a JSON object")
    return value


def integer(config: Mapping[str, Any], *keys: str) -> int | None:
    """The first of some keys that holds an integer; booleans are none, and neither is what JSON can't hold exactly."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER:
            return value
    return None


def strings(value: object) -> tuple[str, ...]:
    """A list of strings, whatever stands there."""
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def _download(source: str, *, what: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise InputError(
            source,
            "no such file or folder",
            expected=what,
            remedy="a Hub id needs  pip install 'eagle-parity[hub]'",
        ) from None
    name, _, revision = source.partition("@")
    try:
        return Path(hf_hub_download(name, "config.json", revision=revision or None))
    except Exception as error:
        raise InputError(source, f"not on the Hub ({str(error).splitlines()[0][:120]})", expected=what) from error
