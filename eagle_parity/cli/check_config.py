"""``eagle-parity check-config``."""

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

_TRAINED = "Trained wiring"


def check_config(
    draft: Annotated[
        str, typer.Argument(metavar="DRAFT", help="The draft: a folder, a config.json of any name, or a Hub id.")
    ],
    *,
    target: Annotated[
        str, typer.Option("--target", metavar="T", help="The target: a folder, a config.json or a Hub id.")
    ],
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            metavar="E",
            help="What serves it: sglang@0.5.12, vllm@0.32.0:runner=v2. Repeatable; `eagle-parity engines` lists them.",
        ),
    ] = None,
    trained_with: Annotated[
        str | None,
        typer.Option(
            "--trained-with",
            metavar="TRAINER",
            help="The trainer and its version or commit, with options: specforge@0.2.0, speculators@0.4.0,"
            " modelopt@a2fbac7:dump=vllm,ids=1+29+57.",
            rich_help_panel=_TRAINED,
        ),
    ] = None,
    trained_boundaries: Annotated[
        str | None,
        typer.Option(
            "--trained-boundaries",
            metavar="LIST",
            help="The boundaries themselves: 3,31,59. One more entry than slots names the last state.",
            rich_help_panel=_TRAINED,
        ),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            "--shards",
            metavar="DIR",
            help="Training shards that state their layers; only headers are read.",
            rich_help_panel=_TRAINED,
        ),
    ] = None,
    assume_nearest: AssumeNearestOption = False,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Check a draft's config: does an engine feed the head the layers that it was trained on?

    Needs configs only, no torch and no running server. Without a trained wiring everything else is checked, and what
    couldn't be compared is said.

    Example: eagle-parity check-config ./draft --target ./target --engine sglang@0.5.23 --trained-with specforge@0.2.0
    """
    from eagle_parity import config_check
    from eagle_parity.cli.finish import finish
    from eagle_parity.drafts import read_draft
    from eagle_parity.engines import parse_engine
    from eagle_parity.errors import NotTrainedSoError
    from eagle_parity.targets import read_target
    from eagle_parity.wiring import parse_boundaries

    names = [parse_engine(text) for text in engine or ()]
    boundaries = (
        None if trained_boundaries is None else parse_boundaries(trained_boundaries, option="--trained-boundaries")
    )
    read = read_draft(draft)
    model = read_target(target)
    stated, not_trained_so = None, None
    try:
        stated = config_check.stated_wiring(read, model, trainer=trained_with, boundaries=boundaries)
    except NotTrainedSoError as error:
        not_trained_so = str(error)  # everything else is still checked
    result = config_check.check_config(
        read,
        model,
        engines=names,
        stated=stated,
        not_trained_so=not_trained_so,
        shards=None if shards is None else (shards, config_check.read_shards(shards)),
        assume_nearest=assume_nearest,
        fail_on=fail_on,
    )
    return finish(result, format=format, output=output, fail_on=fail_on, quiet=quiet, color=color)
