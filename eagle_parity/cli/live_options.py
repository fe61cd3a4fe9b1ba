"""Options of ``capture sglang`` and ``capture vllm``, and what their texts mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from eagle_parity.capture.spool.folder import SPOOL_ENV, TOKEN_ENV
from eagle_parity.cli.options import (
    Color,
    ColorOption,
    FailOnOption,
    FirstTokenOption,
    Format,
    FormatOption,
    QuietOption,
)
from eagle_parity.errors import UsageError
from eagle_parity.results import FailOn

if TYPE_CHECKING:
    from eagle_parity.capture.sending import Condition
    from eagle_parity.results import Result
    from eagle_parity.wiring import Boundary

SERVER_PANEL = "Server"
_TOKENS_PANEL = "Tokens"
LAUNCH_PANEL = "Launching"

API_KEY_ENV = "EAGLE_PARITY_API_KEY"
NEW_TOKENS = 16
"""Generated after each sequence: enough verifications to count, few enough to cost nothing."""
AUTO = "auto"
ALL_BOUNDARIES = "all"

ServerOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The running server, such as http://127.0.0.1:30000; vLLM's own port is 8000.",
    ),
]
OutputOption: TypeAlias = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIR", help="The capture, a new or empty folder.")
]
ReplayOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--replay",
        metavar="SHARDS",
        help="Send the token ids of shards or of a capture: same tokens on both sides.",
        rich_help_panel=_TOKENS_PANEL,
    ),
]
PromptsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        help='One prompt a line, or JSON lines or a YAML list with "text", "token_ids" or "messages"; texts and'
        " messages go through the server's own tokenizer and template.",
        rich_help_panel=_TOKENS_PANEL,
    ),
]
SequencesOption: TypeAlias = Annotated[
    int | None, typer.Option("--sequences", min=1, help="At most so many sequences.", rich_help_panel=_TOKENS_PANEL)
]
MaxTokensOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--max-tokens", min=1, help="Cut each sequence to so many tokens.", rich_help_panel=_TOKENS_PANEL),
]
GenerateOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "--generate",
        min=1,
        help="Tokens to generate after each sequence, for the server's counts of accepted drafts.",
        rich_help_panel=_TOKENS_PANEL,
    ),
]
ConditionsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--conditions",
        metavar="LIST",
        help="Record the sequences once more each: batch (together), chunk (split by the scheduler), prefix (behind a"
        " warm prefix). generate records what --generate generates behind them, and the tokens that each rank chose"
        " (vLLM).",
        rich_help_panel=_TOKENS_PANEL,
    ),
]
TemperatureOption: TypeAlias = Annotated[
    float,
    typer.Option(
        "--temperature",
        min=0.0,
        help="Of what is generated; 0 is greedy. Sampling makes the acceptance another one than that of a greedy run,"
        " and on a vLLM server on CPU the ranks sample different tokens.",
        rich_help_panel=_TOKENS_PANEL,
    ),
]
EngineOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="auto takes the server's own version, and with --launch-flags, before there is a server, the newest that"
        " is known. Name it there, as in vllm@0.28.0, and where the version isn't the whole truth, as in"
        " sglang@0.5.12:embedding-capture=patched.",
        rich_help_panel=SERVER_PANEL,
    ),
]
SpoolOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--spool",
        metavar="DIR",
        help="The folder that the hook writes to: where it is seen from here, or with --launch-flags from the server."
        f" By default {SPOOL_ENV}, else eagle-parity-UID in the folder for temporary files; SGLang's --forward-hooks"
        " name it to the capture, vLLM and SGLang's plugin don't.",
        rich_help_panel=SERVER_PANEL,
    ),
]
TokenOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="The content of the spool's file token, where that folder is not within reach; better given in"
        f" {TOKEN_ENV}, which no list of processes shows.",
        rich_help_panel=SERVER_PANEL,
    ),
]
ApiKeyOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--api-key", metavar="KEY", help=f"The server's; {API_KEY_ENV} by default.", rich_help_panel=SERVER_PANEL
    ),
]
OverwriteOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Write into a folder that isn't empty; a former capture in it is replaced, other files stay.",
    ),
]
BoundariesOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--boundaries",
        metavar="all|LIST",
        help="A reference without a draft: with --launch-flags, what makes the engine hand over these boundaries of"
        " --target (all, 0-61, 3,31,59); else, check that the capture has them.",
        rich_help_panel=LAUNCH_PANEL,
    ),
]
TargetOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="T",
        help="For --launch-flags --boundaries: the target, a folder, a config.json or a Hub id.",
        rich_help_panel=LAUNCH_PANEL,
    ),
]
LaunchFlagsOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--launch-flags",
        help="Print what to start the server with, for the release that --engine names, and do nothing else: SGLang's"
        " flags, vLLM's environment, for --boundaries the environment first and the flags on a line of their own.",
        rich_help_panel=LAUNCH_PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What both commands take, in the order of their help; each field is an option of the same name."""

    server: ServerOption = None
    output: OutputOption = None
    replay: ReplayOption = None
    prompts: PromptsOption = None
    first_token: FirstTokenOption = None
    sequences: SequencesOption = None
    max_tokens: MaxTokensOption = None
    generate: GenerateOption = NEW_TOKENS
    temperature: TemperatureOption = 0.0
    conditions: ConditionsOption = None
    engine: EngineOption = AUTO
    spool: SpoolOption = None
    token: TokenOption = None
    api_key: ApiKeyOption = None
    overwrite: OverwriteOption = False
    boundaries: BoundariesOption = None
    target: TargetOption = None
    launch_flags: LaunchFlagsOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOptions:
    """How the result of either is shown."""

    format: FormatOption = Format.TERMINAL
    fail_on: FailOnOption = FailOn.ERROR
    quiet: QuietOption = False
    color: ColorOption = Color.AUTO

    def finish(self, result: Result) -> int:
        """Writes it, and gives the exit status."""
        from eagle_parity.cli.finish import finish

        return int(finish(result, format=self.format, fail_on=self.fail_on, quiet=self.quiet, color=self.color))


def parse_conditions(text: str | None) -> tuple[Condition, ...]:
    """What ``--conditions`` names, in the order in which it is recorded.

    Raises:
        UsageError: there is no such condition.
    """
    from eagle_parity.capture.sending import CONDITIONS

    named = [name.strip() for name in (text or "").split(",") if name.strip()]
    unknown = [name for name in named if name not in CONDITIONS]
    if unknown:
        raise UsageError(f"--conditions {text!r}: no condition {unknown[0]!r}; there are {', '.join(CONDITIONS)}")
    return tuple(condition for condition in CONDITIONS if condition in named)


def version_of(engine: str, name: str) -> str | None:
    """The release that ``--engine`` names; None where it names none.

    Raises:
        UsageError: it is no engine, or another one.
    """
    from eagle_parity.engines import parse_engine

    if engine == AUTO:
        return None
    named = parse_engine(engine)
    if named.engine != name:
        raise UsageError(f"--engine {engine}: this is capture {name}")
    return named.version


class AskedBoundaries(NamedTuple):
    """Some boundaries; None within for all of them."""

    boundaries: tuple[Boundary, ...] | None


def parse_asked(text: str | None) -> AskedBoundaries | None:
    """What ``--boundaries`` asks for; None without it."""
    from eagle_parity.wiring import parse_boundaries

    if text is None:
        return None
    return AskedBoundaries(None if text == ALL_BOUNDARIES else parse_boundaries(text))
