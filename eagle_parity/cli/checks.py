"""``eagle-parity checks``."""

from __future__ import annotations

from eagle_parity.cli.options import (
    Color,
    ColorOption,
    FailOnOption,
    Format,
    FormatOption,
    OutputOption,
    QuietOption,
)
from eagle_parity.results import FailOn


def checks(
    *,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """List every finding there is, with its severity, and every check with what it needs.

    Example: eagle-parity checks --format json
    """
    from eagle_parity.catalogue import catalogue
    from eagle_parity.cli.finish import finish
    from eagle_parity.results import conclude

    result = conclude("checks", outcomes=(), judged=True, fail_on=fail_on, measurements=catalogue())
    return finish(result, format=format, output=output, fail_on=fail_on, quiet=quiet, color=color)
