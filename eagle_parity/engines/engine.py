"""Engine names as users write them, ``sglang@0.5.12:embedding-capture=patched``, and their versions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from eagle_parity.errors import UsageError
from eagle_parity.quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_VERSION = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,4})(?:[.-]?(post|rc|dev)(\d{1,6}))?")

_STAGE = {"dev": -2, "rc": -1, "": 0, "post": 1}
"""A pre-release comes before its release, a post-release after it."""

_MAX_PARTS = 5

VersionKey = tuple[tuple[int, ...], int, int]


def version_key(version: str) -> VersionKey:
    """Orders versions: 0.5.10 after 0.5.9, 0.5.12.post1 after 0.5.12, 0.5.12rc1 before it.

    Raises:
        UsageError: it is no version.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise UsageError(f"{quoted(version)} is no version; expected one such as 0.5.12 or 0.5.12.post1")
    parts = [int(part) for part in match[1].split(".")]
    parts += [0] * (_MAX_PARTS - len(parts))
    return tuple(parts), _STAGE[match[2] or ""], int(match[3] or 0)


def in_range(version: str, first: str, last: str) -> bool:
    """Whether ``first <= version <= last``."""
    return version_key(first) <= version_key(version) <= version_key(last)


def nearest_version(version: str, known: Iterable[str]) -> str:
    """The newest known version that isn't newer than this one; the oldest where all are newer."""
    ordered = sorted(known, key=version_key)
    not_newer = [v for v in ordered if version_key(v) <= version_key(version)]
    return not_newer[-1] if not_newer else ordered[0]


class EngineOption(msgspec.Struct, frozen=True):
    """A launch option or a build on which an engine's reading of a draft depends.

    Attributes:
        name: ``runner``.
        values: what it can be.
        meaning: one line for ``--help`` and the docs.
    """

    name: str
    values: tuple[str, ...]
    meaning: str


class EngineName(msgspec.Struct, frozen=True):
    """An engine in a version, with the options that were named.

    Attributes:
        engine: ``sglang``.
        version: as written.
        options: by name, sorted; only those that were named.
    """

    engine: str
    version: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """``sglang@0.5.12``, as the result document has it."""
        return f"{self.engine}@{self.version}"

    def __str__(self) -> str:
        named = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.label}:{named}" if named else self.label


def parse_engine_name(text: str, options: Mapping[str, tuple[EngineOption, ...]]) -> EngineName:
    """Reads ``engine@version[:option=value,...]``.

    Args:
        text: as given to ``--engine``.
        options: the options of every known engine.

    Raises:
        UsageError: the form, the engine, an option or a value isn't known; the message lists what is.
    """
    name, at, rest = text.partition("@")
    version, _, tail = rest.partition(":")
    engine = name.strip().lower()
    if engine not in options:
        raise UsageError(f"--engine {quoted(text)}: no engine {quoted(name)}; known: {', '.join(options)}")
    if not at or not version:
        raise UsageError(f"--engine {quoted(text)}: no version; expected {engine}@VERSION, e.g. {engine}@0.5.12")
    try:
        version_key(version)
    except UsageError as error:
        raise UsageError(f"--engine {quoted(text)}: {error}") from None
    chosen: dict[str, str] = {}
    for entry in filter(None, tail.split(",")):
        key, _, value = (part.strip() for part in entry.partition("="))
        option = next((o for o in options[engine] if o.name == key), None)
        if option is None:
            known = ", ".join(o.name for o in options[engine]) or "none"
            raise UsageError(f"--engine {quoted(text)}: {engine} has no option {quoted(key)}; known: {known}")
        if value not in option.values:
            known = ", ".join(option.values)
            raise UsageError(f"--engine {quoted(text)}: {key} can't be {quoted(value)}; known: {known}")
        chosen[key] = value
    return EngineName(engine, version.removeprefix("v"), tuple(sorted(chosen.items())))
