"""``eagle-parity report``."""

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


def report(
    *,
    results: Annotated[
        list[str], typer.Argument(metavar="RESULT.json", help="Results written with --format json, or folders.")
    ],
    threshold: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Judge the saved measurements again with another threshold."),
    ] = None,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Merge saved results into one verdict and render it for people and CI.

    A finding that several results share is told once. The verdict is drawn anew at this call's --fail-on.

    Example: eagle-parity report results/ --format markdown --output summary.md
    """
    from eagle_parity.cli.finish import finish
    from eagle_parity.report import judge_again, merge_results, read_results

    saved, errors = read_results(results)
    saved, skips = judge_again(saved, threshold) if threshold else (saved, [])
    merged = merge_results(saved, errors=errors, fail_on=fail_on, extra_skips=skips)
    return finish(merged, format=format, output=output, fail_on=fail_on, quiet=quiet, color=color)
