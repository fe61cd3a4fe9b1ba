"""What each command shows of its ``measurements``: adding a command is one file and one line.

A command that isn't listed is shown by shape alone (``values.blocks``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result

SECTIONS: Mapping[str, str] = {
    "diff-captures": "diff",
    "inspect": "inspect",
    "checks": "checks",
    "explain": "explain",
    "engines": "engines",
    "ids": "ids",
    "capture": "capture",
    "scan": "scan",
}
"""The module of each command that has a section: imported when it is shown, as a run shows one."""

INFORMING: Mapping[str, str] = {
    "ids": "The id list to write.",
    "inspect": "What it is, and what it can't say.",
    "checks": "What is checked, and what can be found.",
    "explain": "What a finding means.",
    "engines": "How each engine reads an id list.",
    "capture": "Recorded.",
}
"""Commands that judge nothing, with the sentence that stands where the others have their verdict."""

PASSING: Mapping[str, str] = {"scan": "Nothing is wrong with what was looked at"}
"""What a pass is called where no parity was judged."""


def section_of(command: str) -> Callable[[Result], list[Block]] | None:
    """What draws a command's measurements; None where they are shown by shape."""
    name = SECTIONS.get(command)
    if name is None:
        return None
    section: Callable[[Result], list[Block]] = import_module(f"{__name__}.{name}").section
    return section
