"""What each command shows of its ``measurements``: adding a command is one file and one line.

A command that isn't listed is shown by shape alone (``values.blocks``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.reporters.sections import checks, diff, engines, explain, ids, inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eagle_parity.reporters.document import Block
    from eagle_parity.results import Result

SECTIONS: Mapping[str, Callable[[Result], list[Block]]] = {
    "diff-captures": diff.section,
    "inspect": inspect.section,
    "checks": checks.section,
    "explain": explain.section,
    "engines": engines.section,
    "ids": ids.section,
}

INFORMING: Mapping[str, str] = {
    "ids": "The id list to write.",
    "inspect": "What it is, and what it can't say.",
    "checks": "What is checked, and what can be found.",
    "explain": "What a finding means.",
    "engines": "How each engine reads an id list.",
    "capture": "Recorded.",
}
"""Commands that judge nothing, with the sentence that stands where the others have their verdict."""
