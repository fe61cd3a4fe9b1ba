"""``eagle-parity inspect``."""

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


def inspect(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Shards, captures, drafts or targets: files or folders.")
    ],
    *,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Say what a shard, capture or checkpoint is, and what it can't say about itself.

    Only headers are read: it takes no torch, and a directory of a million files takes seconds.

    Example: eagle-parity inspect ./shards ./draft
    """
    from eagle_parity.cli.finish import finish
    from eagle_parity.cli.progress import show_progress
    from eagle_parity.errors import InputError
    from eagle_parity.findings import UNREADABLE_SHARD, Finding
    from eagle_parity.inspection import Inspection, inspect_path
    from eagle_parity.results import conclude

    inspections: list[Inspection] = []
    failures: list[InputError] = []
    with show_progress("reading headers", quiet=quiet) as step:
        for path in paths:
            try:
                inspections.append(inspect_path(path, step=step))
            except InputError as error:
                failures.append(error)
    if not inspections:
        raise failures[0]
    findings: list[Finding] = [finding for inspection in inspections for finding in inspection.findings]
    findings += [
        UNREADABLE_SHARD.finding(str(error), evidence={"path": error.subject}, remedy=error.remedy)
        for error in failures
    ]
    result = conclude(
        "inspect",
        outcomes=findings,
        judged=True,
        fail_on=fail_on,
        inputs=[inspection.input for inspection in inspections],
        measurements={"paths": [inspection.description for inspection in inspections]},
    )
    return finish(result, format=format, output=output, fail_on=fail_on, quiet=quiet, color=color)
