"""``eagle-parity capture sglang`` and ``vllm``: hidden states of a running server, every rank."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from eagle_parity.cli.live_launch import Launch, prepare_sglang, prepare_vllm
from eagle_parity.cli.live_options import (
    API_KEY_ENV,
    AUTO,
    LAUNCH_PANEL,
    NEW_TOKENS,
    SERVER_PANEL,
    ApiKeyOption,
    BoundariesOption,
    ConditionsOption,
    EngineOption,
    GenerateOption,
    LaunchFlagsOption,
    MaxTokensOption,
    OutputOption,
    OverwriteOption,
    PromptsOption,
    ReplayOption,
    SequencesOption,
    ServerOption,
    SpoolOption,
    TargetOption,
    TemperatureOption,
    TokenOption,
    parse_asked,
    parse_conditions,
    version_of,
)
from eagle_parity.cli.live_result import conclude_live
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
    from eagle_parity.capture.prompts import TokenSource
    from eagle_parity.capture.servers.server import Server
    from eagle_parity.cli.live_options import AskedBoundaries
    from eagle_parity.results import Result


def capture_sglang(
    *,
    server: ServerOption = None,
    output: OutputOption = None,
    replay: ReplayOption = None,
    prompts: PromptsOption = None,
    first_token: FirstTokenOption = None,
    sequences: SequencesOption = None,
    max_tokens: MaxTokensOption = None,
    generate: GenerateOption = NEW_TOKENS,
    temperature: TemperatureOption = 0.0,
    conditions: ConditionsOption = None,
    engine: EngineOption = AUTO,
    spool: SpoolOption = None,
    token: TokenOption = None,
    api_key: ApiKeyOption = None,
    overwrite: OverwriteOption = False,
    boundaries: BoundariesOption = None,
    target: TargetOption = None,
    launch_flags: LaunchFlagsOption = False,
    export_hook: Annotated[
        str | None,
        typer.Option(
            "--export-hook",
            metavar="FILE",
            help="Write the hook as one file without dependencies, for images where nothing may be installed.",
            rich_help_panel=LAUNCH_PANEL,
        ),
    ] = None,
    from_parts: Annotated[
        str | None,
        typer.Option(
            "--from-parts",
            metavar="DIR",
            help="Finish a capture whose parts could not be reached: a copy of them, and the same --output.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Record what a running SGLang server feeds its draft head, on every rank, without a restart.

    The server needs the hook from its start: --launch-flags prints the flags. It records the requests of this command
    and no others. With --boundaries they start a server without a draft, which records a reference.

    Example: eagle-parity capture sglang --server http://127.0.0.1:30000 --replay ./shards --output ./live
    """
    from eagle_parity.capture.servers.sglang import SglangServer
    from eagle_parity.cli.finish import finish

    if launch_flags or export_hook is not None:
        return prepare_sglang(Launch(engine, spool, boundaries, target, export_hook))
    _refuse_target(target, "sglang")
    asked = parse_asked(boundaries)
    if from_parts is not None:
        result = _finish_from_parts(from_parts, output, engine, asked, fail_on=fail_on)
        return int(finish(result, format=format, fail_on=fail_on, quiet=quiet, color=color))
    url, folder = _required(server, output, "sglang")
    connection = SglangServer(url, api_key=api_key or os.environ.get(API_KEY_ENV), spool=spool, token=token)
    tokens = _Tokens(replay, prompts, first_token, sequences, max_tokens)
    result = _record(
        connection,
        tokens,
        folder,
        engine=engine,
        conditions=conditions,
        asked=asked,
        generate=generate,
        temperature=temperature,
        overwrite=overwrite,
        fail_on=fail_on,
        quiet=quiet,
    )
    return int(finish(result, format=format, fail_on=fail_on, quiet=quiet, color=color))


def capture_vllm(
    *,
    server: ServerOption = None,
    output: OutputOption = None,
    replay: ReplayOption = None,
    prompts: PromptsOption = None,
    first_token: FirstTokenOption = None,
    sequences: SequencesOption = None,
    max_tokens: MaxTokensOption = None,
    generate: GenerateOption = NEW_TOKENS,
    temperature: TemperatureOption = 0.0,
    conditions: ConditionsOption = None,
    engine: EngineOption = AUTO,
    spool: SpoolOption = None,
    token: TokenOption = None,
    api_key: ApiKeyOption = None,
    overwrite: OverwriteOption = False,
    boundaries: BoundariesOption = None,
    target: TargetOption = None,
    launch_flags: LaunchFlagsOption = False,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Record what a running vLLM server feeds its draft head, on every rank, without a restart.

    The server needs this package beside vLLM and the environment that --launch-flags prints. It records the requests of
    this command and no others. With --boundaries they start a server without a draft, which records a reference.

    Example: eagle-parity capture vllm --server http://127.0.0.1:8000 --replay ./shards --output ./live
    """
    from eagle_parity.capture.servers.vllm import VllmServer
    from eagle_parity.cli.finish import finish

    if launch_flags:
        return prepare_vllm(Launch(engine, spool, boundaries, target))
    _refuse_target(target, "vllm")
    asked = parse_asked(boundaries)
    url, folder = _required(server, output, "vllm")
    connection = VllmServer(url, api_key=api_key or os.environ.get(API_KEY_ENV), spool=spool, token=token)
    tokens = _Tokens(replay, prompts, first_token, sequences, max_tokens)
    result = _record(
        connection,
        tokens,
        folder,
        engine=engine,
        conditions=conditions,
        asked=asked,
        generate=generate,
        temperature=temperature,
        overwrite=overwrite,
        fail_on=fail_on,
        quiet=quiet,
    )
    return int(finish(result, format=format, fail_on=fail_on, quiet=quiet, color=color))


class _Tokens(NamedTuple):
    """Where the token ids come from, as the options say it."""

    replay: str | None
    prompts: str | None
    first_token: int | None
    sequences: int | None
    max_tokens: int | None

    @property
    def path(self) -> str:
        return self.replay or self.prompts or ""

    def source(self, server: Server, output: str) -> TokenSource:
        from eagle_parity.capture.prompts import limit_sequences, prompt_sequences, replay_sequences

        source: TokenSource
        if self.replay is not None and self.prompts is None:
            if Path(self.replay).resolve() == Path(output).resolve():
                raise UsageError(
                    f"--replay and --output are both {output!r}: a capture can't be written over what it reads"
                )
            source = replay_sequences(self.replay, first_token=self.first_token)
        elif self.prompts is not None and self.replay is None:
            source = prompt_sequences(self.prompts, server)
        else:
            raise UsageError(f"capture {server.engine} takes its tokens from one of --replay SHARDS and --prompts FILE")
        return limit_sequences(source, sequences=self.sequences, max_tokens=self.max_tokens)


def _required(server: str | None, output: str | None, engine: str) -> tuple[str, str]:
    if server is None or output is None:
        missing = "--server URL" if server is None else "--output DIR"
        raise UsageError(f"capture {engine} needs {missing}; --launch-flags says what the server is started with")
    return server, output


def _record(
    server: Server,
    tokens: _Tokens,
    output: str,
    *,
    engine: str,
    conditions: str | None,
    asked: AskedBoundaries | None,
    generate: int,
    temperature: float,
    overwrite: bool,
    fail_on: FailOn,
    quiet: bool,
) -> Result:
    from eagle_parity.capture.live import capture_live
    from eagle_parity.cli.progress import show_progress

    if not math.isfinite(temperature):
        raise UsageError(f"--temperature {temperature}: expected a finite number, 0 for greedy")
    with show_progress("asking the server", total=tokens.sequences, quiet=quiet) as step:
        capture = capture_live(
            server,
            tokens.source(server, output),
            output,
            engine=_named_engine(engine, server),
            conditions=parse_conditions(conditions),
            new_tokens=generate,
            temperature=temperature,
            overwrite=overwrite,
            on_sequence=step,
        )
    return conclude_live(
        capture, server=server.url, tokens_from=tokens.path, output=output, asked=asked, fail_on=fail_on
    )


def _finish_from_parts(
    parts: str, output: str | None, engine: str, asked: AskedBoundaries | None, *, fail_on: FailOn
) -> Result:
    from eagle_parity.capture.live import capture_from_parts

    if output is None:
        raise UsageError("--from-parts needs --output DIR, the same as before")
    version_of(engine, "sglang")
    capture = capture_from_parts(parts, output, engine=None if engine == AUTO else engine)
    return conclude_live(
        capture, server=capture.sent.server, tokens_from=parts, output=output, asked=asked, fail_on=fail_on
    )


def _named_engine(engine: str, server: Server) -> str | None:
    version_of(engine, server.engine)
    return None if engine == AUTO else engine


def _refuse_target(target: str | None, engine: str) -> None:
    if target is not None:
        raise UsageError(f"capture {engine} --target goes with --launch-flags --boundaries: a server has its target")
