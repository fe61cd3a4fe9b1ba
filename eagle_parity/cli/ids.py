"""``eagle-parity ids``."""

from __future__ import annotations

from typing import Annotated

import typer

from eagle_parity.cli.options import (
    AssumeNearestOption,
    Color,
    ColorOption,
    FailOnOption,
    Format,
    FormatOption,
    OutputOption,
    QuietOption,
)
from eagle_parity.results import FailOn


def ids(
    boundaries: Annotated[str, typer.Argument(metavar="BOUNDARIES", help="The wiring, slot by slot: 3,31,59.")],
    *,
    target: Annotated[
        str, typer.Option("--target", metavar="T", help="The target: a folder, a config.json or a Hub id.")
    ],
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", metavar="E", help="For which engines; without it, the newest known SGLang and vLLM."),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            metavar="DRAFT",
            help="The head to write the list for: a folder or config.json; without it, one of the Llama class.",
        ),
    ] = None,
    assume_nearest: AssumeNearestOption = False,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Print the id list to write for a wiring, and under which key, for each engine, version and target class.

    Boundary k is the output of layer k-1, counted from 0; boundary 0 is the token embedding.

    Example: eagle-parity ids 3,31,59 --target ./kimi-k2.5 --engine sglang@0.5.12 --engine vllm@0.32.0
    """
    from eagle_parity.cli.finish import finish
    from eagle_parity.drafts import read_draft
    from eagle_parity.engines import newest_engines, parse_engine
    from eagle_parity.ids_to_write import ids_to_write
    from eagle_parity.targets import read_target
    from eagle_parity.wiring import parse_boundaries

    wanted = parse_boundaries(boundaries, option="BOUNDARIES")
    names = [parse_engine(text) for text in engine] if engine else list(newest_engines())
    model = read_target(target)
    head = None if draft is None else read_draft(draft)
    result = ids_to_write(wanted, model, names, draft=head, assume_nearest=assume_nearest, fail_on=fail_on)
    return finish(result, format=format, output=output, fail_on=fail_on, quiet=quiet, color=color)
