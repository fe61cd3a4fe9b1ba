"""How every command ends: the result is rendered, written, and turned into the exit status."""

from __future__ import annotations

import io
import os
import shutil
import sys
from typing import TYPE_CHECKING

from eagle_parity.cli.options import Color, Format
from eagle_parity.cli.streams import write_stdout
from eagle_parity.files import write_atomically
from eagle_parity.reporters import Style, render
from eagle_parity.results import ExitStatus, FailOn, exit_status

if TYPE_CHECKING:
    from eagle_parity.results import Result

DEFAULT_WIDTH = 100
"""Where no terminal tells its width: wide enough for the tables, narrow enough for a CI log."""


def finish(
    result: Result,
    *,
    format: Format = Format.TERMINAL,  # noqa: A002  the option's name
    output: str | None = None,
    fail_on: FailOn = FailOn.ERROR,
    quiet: bool = False,
    color: Color = Color.AUTO,
) -> ExitStatus:
    """Writes the result to stdout or to ``output`` and returns the exit status."""
    to_terminal = output is None and sys.stdout.isatty()
    style = Style(
        color=color is Color.ALWAYS or (color is Color.AUTO and to_terminal and not os.environ.get("NO_COLOR")),
        width=shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns,
        quiet=quiet,
        unicode=output is not None or "utf" in (sys.stdout.encoding or "").lower(),
    )
    text = render(result, format.value, style)
    if output is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a Latin-1 stdout must not turn a result into a crash
        write_stdout(text)
    else:
        write_atomically(output, text.encode())
    return exit_status(result, fail_on)
