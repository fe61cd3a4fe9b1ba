"""``eagle-parity engines``."""

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


def engines(
    *,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Print the rule tables: how each engine, version and target class reads ids, and each trainer means them.

    Every rule has its range of versions and its source.

    Example: eagle-parity engines --format markdown
    """
    from eagle_parity.cli.finish import finish
    from eagle_parity.engines.tables import engine_tables
    from eagle_parity.results import Result, Verdict
    from eagle_parity.trainers.tables import trainer_rows

    tables = {**engine_tables(), "trainers": trainer_rows()}
    result = Result(command="engines", verdict=Verdict.PASS, fail_on=fail_on, measurements=tables)
    return finish(result, format=format, output=output, fail_on=fail_on, quiet=quiet, color=color)
