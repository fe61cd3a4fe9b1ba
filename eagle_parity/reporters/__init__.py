"""The reporters: a result in, text out. One file an output format.

Whatever a file said (a path, a name, an id list) may be hostile: each reporter escapes it for its own format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eagle_parity.results import Result


@dataclass(frozen=True, slots=True)
class Style:
    """How a terminal report is drawn; the other formats ignore it.

    Attributes:
        color: whether to write ANSI colours.
        width: columns.
        quiet: only verdict and findings.
        unicode: whether the reader can show more than ASCII.
    """

    color: bool = False
    width: int = 100
    quiet: bool = False
    unicode: bool = True


def render(result: Result, format: str, style: Style) -> str:  # noqa: A002  the option's name
    """Renders a result.

    Args:
        result: what to render.
        format: ``terminal``, ``json`` or ``markdown``.
        style: for the terminal.
    """
    # Imported here: each format brings its own libraries, and a run needs one.
    if format == "json":
        from eagle_parity.reporters.json import render_json

        return render_json(result)
    if format == "markdown":
        from eagle_parity.reporters.markdown import render_markdown

        return render_markdown(result)
    if format == "terminal":
        from eagle_parity.reporters.terminal import render_terminal

        return render_terminal(result, style)
    raise ValueError(f"no reporter for {format!r}")
