"""Engine names as users write them: ``sglang@0.5.12:embedding-capture=patched``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from eagle_parity.errors import UsageError
from eagle_parity.quoting import quoted
from eagle_parity.versions import known_version, spell_version
from eagle_parity.wiring import MAX_BOUNDARIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DIGITS = 9
"""More than any layer's number has; a longer one is no list of layers."""


class EngineOption(msgspec.Struct, frozen=True):
    """A launch option or a build on which an engine's reading of a draft depends.

    Attributes:
        name: ``runner``.
        values: what it can be; none where it is a list of numbers, written ``1+29+57``.
        meaning: one line for ``--help`` and the docs.
    """

    name: str
    values: tuple[str, ...]
    meaning: str

    def takes(self, value: str) -> bool:
        """Whether this can be its value."""
        return value in self.values if self.values else _NUMBERS.fullmatch(value) is not None

    @property
    def known(self) -> str:
        """What it can be, in words."""
        return ", ".join(self.values) or "a list such as 1+29+57"


_NUMBERS = re.compile(rf"-?\d{{1,{_DIGITS}}}(?:\+-?\d{{1,{_DIGITS}}}){{0,{MAX_BOUNDARIES - 1}}}")


PIPELINE_PARALLEL = EngineOption(
    "pipeline-parallel", ("yes", "no"), "whether the target runs in pipeline stages; not assumed unless it is named"
)
"""An option of every engine that splits layers over stages: the states of earlier ones are handed on, or lost."""


class EngineName(msgspec.Struct, frozen=True):
    """An engine in a version, with the options that were named.

    Attributes:
        engine: ``sglang``.
        version: the known version that was meant, in the tables' spelling; else as written, without its build.
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


def parse_engine_name(
    text: str, options: Mapping[str, tuple[EngineOption, ...]], versions: Mapping[str, Iterable[str]]
) -> EngineName:
    """Reads ``engine@version[:option=value,...]``.

    Args:
        text: as given to ``--engine``.
        options: the options of every known engine.
        versions: the versions of every known engine.

    Raises:
        UsageError: the form, the engine, an option or a value isn't known; the message lists what is.
    """
    name, at, rest = text.partition("@")
    version, _, tail = rest.partition(":")
    engine = name.strip().lower()
    if engine not in options:
        raise UsageError(f"--engine {quoted(text)}: no engine {quoted(name)}; known: {', '.join(options)}")
    if not at or not version:
        raise UsageError(
            f"--engine {quoted(text)}: no version; expected {engine}@VERSION; `eagle-parity engines` lists the versions"
        )
    try:
        spelt = known_version(version, versions[engine]) or spell_version(version)
    except UsageError as error:
        raise UsageError(f"--engine {quoted(text)}: {error}") from None
    chosen: dict[str, str] = {}
    for entry in filter(None, tail.split(",")):
        key, _, value = (part.strip() for part in entry.partition("="))
        option = next((o for o in options[engine] if o.name == key), None)
        if option is None:
            known = ", ".join(o.name for o in options[engine]) or "none"
            raise UsageError(f"--engine {quoted(text)}: {engine} has no option {quoted(key)}; known: {known}")
        if not option.takes(value):
            raise UsageError(f"--engine {quoted(text)}: {key} can't be {quoted(value)}; known: {option.known}")
        chosen[key] = value
    return EngineName(engine, spelt, tuple(sorted(chosen.items())))
