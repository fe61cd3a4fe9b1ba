"""Options that several commands share, declared once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from eagle_parity.results import FailOn


class Format(StrEnum):
    """How a result is written; ``eagle_parity.reporters`` owns the mapping to code."""

    TERMINAL = "terminal"
    JSON = "json"
    MARKDOWN = "markdown"


class Color(StrEnum):
    """When to colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


_OUTPUT = "Output"

FormatOption: TypeAlias = Annotated[
    Format, typer.Option("--format", "-f", help="How the result is written.", rich_help_panel=_OUTPUT)
]
OutputOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write there instead of stdout.", rich_help_panel=_OUTPUT),
]
FailOnOption: TypeAlias = Annotated[
    FailOn, typer.Option("--fail-on", help="From which severity the exit status is 1.", rich_help_panel=_OUTPUT)
]
QuietOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="No progress, and in the terminal only verdict and findings, or what was asked for.",
        rich_help_panel=_OUTPUT,
    ),
]
ColorOption: TypeAlias = Annotated[
    Color,
    typer.Option("--color", help="When to colour; auto honours NO_COLOR and a pipe.", rich_help_panel=_OUTPUT),
]
FirstTokenOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="ID", min=0, help="The token that each sequence begins with, for shards that don't store it (NeMo)."
    ),
]
AssumeNearestOption: TypeAlias = Annotated[
    bool,
    typer.Option("--assume-nearest", help="Judge an engine version that the tables don't know by the nearest one."),
]
