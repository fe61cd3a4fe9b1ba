"""``eagle-parity explain``."""

from __future__ import annotations

from typing import Annotated

import typer

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


def explain(
    finding: Annotated[str, typer.Argument(metavar="CODE", help="A finding's code or name.")],
    *,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Say what a finding means, why it matters and what to do.

    Example: eagle-parity explain EP201

    Example: eagle-parity explain spurious-embedding
    """
    from eagle_parity.catalogue import explanation, find_kind
    from eagle_parity.cli.finish import finish
    from eagle_parity.results import conclude

    result = conclude(
        "explain", outcomes=(), judged=True, fail_on=fail_on, measurements=explanation(find_kind(finding))
    )
    return finish(result, format=format, output=output, fail_on=fail_on, quiet=quiet, color=color)
