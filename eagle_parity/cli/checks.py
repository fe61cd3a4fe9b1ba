"""``eagle-parity checks``."""

from __future__ import annotations

from eagle_parity.cli.options import Color, ColorOption, Format, FormatOption, OutputOption


def checks(
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    color: ColorOption = Color.AUTO,
) -> int:
    """List every finding there is, with its severity, and every check with what it needs.

    Example: eagle-parity checks --format json
    """
    from eagle_parity.catalogue import catalogue
    from eagle_parity.cli.finish import finish
    from eagle_parity.results import conclude

    result = conclude("checks", outcomes=(), judged=True, measurements=catalogue())
    return finish(result, format=format, output=output, color=color)
