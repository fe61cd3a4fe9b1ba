"""``eagle-parity capture sglang`` and ``vllm``: hidden states of a running server, every rank."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from eagle_parity.capture.spool import TOKEN_ENV
from eagle_parity.cli.options import (
    Color,
    ColorOption,
    FailOnOption,
    FirstTokenOption,
    Format,
    FormatOption,
    QuietOption,
)
from eagle_parity.cli.streams import say_on_stderr, write_stdout
from eagle_parity.errors import UsageError
from eagle_parity.files import write_atomically
from eagle_parity.reporters.escaping import visible
from eagle_parity.results import ExitStatus, FailOn

if TYPE_CHECKING:
    from eagle_parity.capture.live import LiveCapture
    from eagle_parity.capture.prompts import TokenSource
    from eagle_parity.capture.reference_launch import ReferenceLaunch
    from eagle_parity.capture.sending import Condition
    from eagle_parity.capture.servers.server import Server
    from eagle_parity.findings import Finding
    from eagle_parity.results import Result, Skip
    from eagle_parity.wiring import Boundary

_SERVER = "Server"
_TOKENS = "Tokens"
_LAUNCH = "Launching"

API_KEY_ENV = "EAGLE_PARITY_API_KEY"
NEW_TOKENS = 16
"""Generated after each sequence: enough verifications to count, few enough to cost nothing."""
AUTO = "auto"
ALL_BOUNDARIES = "all"

ServerOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The running server, such as http://127.0.0.1:30000."),
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
        rich_help_panel=_TOKENS,
    ),
]
PromptsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        help='One prompt a line, or JSON lines or a YAML list with "text", "token_ids" or "messages"; texts and'
        " messages go through the server's own tokenizer and template.",
        rich_help_panel=_TOKENS,
    ),
]
SequencesOption: TypeAlias = Annotated[
    int | None, typer.Option("--sequences", min=1, help="At most so many sequences.", rich_help_panel=_TOKENS)
]
MaxTokensOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--max-tokens", min=1, help="Cut each sequence to so many tokens.", rich_help_panel=_TOKENS),
]
GenerateOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "--generate",
        min=1,
        help="Tokens to generate after each sequence, for the server's counts of accepted drafts.",
        rich_help_panel=_TOKENS,
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
        rich_help_panel=_TOKENS,
    ),
]
TemperatureOption: TypeAlias = Annotated[
    float,
    typer.Option(
        "--temperature",
        min=0.0,
        help="Of what is generated; 0 is greedy. Sampling makes the acceptance another one than that of a greedy run,"
        " and on a vLLM server on CPU the ranks sample different tokens.",
        rich_help_panel=_TOKENS,
    ),
]
EngineOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="auto takes the server's own version; name it where that isn't the whole truth,"
        " sglang@0.5.12:embedding-capture=patched.",
        rich_help_panel=_SERVER,
    ),
]
SpoolOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--spool",
        metavar="DIR",
        help="The folder that the hook writes to: where it is seen from here, or with --launch-flags from the server.",
        rich_help_panel=_SERVER,
    ),
]
TokenOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="The content of the spool's file token, where that folder is not within reach; better given in"
        f" {TOKEN_ENV}, which no list of processes shows.",
        rich_help_panel=_SERVER,
    ),
]
ApiKeyOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--api-key", metavar="KEY", help=f"The server's; {API_KEY_ENV} by default.", rich_help_panel=_SERVER),
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
        rich_help_panel=_LAUNCH,
    ),
]
TargetOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="T",
        help="For --launch-flags --boundaries: the target, a folder, a config.json or a Hub id.",
        rich_help_panel=_LAUNCH,
    ),
]
LaunchFlagsOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--launch-flags",
        help="Print what to start the server with, for the release that --engine names, and do nothing else.",
        rich_help_panel=_LAUNCH,
    ),
]


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
            rich_help_panel=_LAUNCH,
        ),
    ] = None,
    from_parts: Annotated[
        str | None,
        typer.Option(
            "--from-parts",
            metavar="DIR",
            help="Finish a capture whose parts could not be reached: a copy of them, and the same --output.",
            rich_help_panel=_SERVER,
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
        return _prepare_sglang(_Launch(engine, spool, boundaries, target, export_hook))
    _no_target(target, "sglang")
    asked = _parse_asked(boundaries)
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
        return _prepare_vllm(_Launch(engine, spool, boundaries, target))
    _no_target(target, "vllm")
    asked = _parse_asked(boundaries)
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


def _parse_conditions(text: str | None) -> tuple[Condition, ...]:
    from eagle_parity.capture.sending import CONDITIONS

    named = [name.strip() for name in (text or "").split(",") if name.strip()]
    unknown = [name for name in named if name not in CONDITIONS]
    if unknown:
        raise UsageError(f"--conditions {text!r}: no condition {unknown[0]!r}; there are {', '.join(CONDITIONS)}")
    return tuple(condition for condition in CONDITIONS if condition in named)


def _record(
    server: Server,
    tokens: _Tokens,
    output: str,
    *,
    engine: str,
    conditions: str | None,
    asked: _Asked | None,
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
            conditions=_parse_conditions(conditions),
            new_tokens=generate,
            temperature=temperature,
            overwrite=overwrite,
            on_sequence=step,
        )
    return conclude_live(
        capture, server=server.url, tokens_from=tokens.path, output=output, asked=asked, fail_on=fail_on
    )


def _finish_from_parts(parts: str, output: str | None, engine: str, asked: _Asked | None, *, fail_on: FailOn) -> Result:
    from eagle_parity.capture.live import capture_from_parts

    if output is None:
        raise UsageError("--from-parts needs --output DIR, the same as before")
    _version_of(engine, "sglang")
    capture = capture_from_parts(parts, output, engine=None if engine == AUTO else engine)
    return conclude_live(
        capture, server=capture.sent.server, tokens_from=parts, output=output, asked=asked, fail_on=fail_on
    )


def _named_engine(engine: str, server: Server) -> str | None:
    _version_of(engine, server.engine)
    return None if engine == AUTO else engine


def _version_of(engine: str, name: str) -> str | None:
    """The release that ``--engine`` names; None where it names none."""
    from eagle_parity.engines import parse_engine

    if engine == AUTO:
        return None
    named = parse_engine(engine)
    if named.engine != name:
        raise UsageError(f"--engine {engine}: this is capture {name}")
    return named.version


class _Asked(NamedTuple):
    """What ``--boundaries`` asks for; None within for all of them."""

    boundaries: tuple[Boundary, ...] | None


def _parse_asked(text: str | None) -> _Asked | None:
    from eagle_parity.wiring import parse_boundaries

    if text is None:
        return None
    return _Asked(None if text == ALL_BOUNDARIES else parse_boundaries(text))


def _no_target(target: str | None, engine: str) -> None:
    if target is not None:
        raise UsageError(f"capture {engine} --target goes with --launch-flags --boundaries: a server has its target")


class _Launch(NamedTuple):
    """What ``--launch-flags`` and ``--export-hook`` print is for."""

    engine: str
    spool: str | None
    boundaries: str | None
    target: str | None
    export_hook: str | None = None

    def reference(self, name: str) -> ReferenceLaunch | None:
        """The launch that records a reference, where that is asked for."""
        from eagle_parity.capture.reference_launch import reference_launch
        from eagle_parity.engines import newest_engines, parse_engine
        from eagle_parity.targets import read_target

        asked = _parse_asked(self.boundaries)
        if asked is None or self.target is None:
            if asked is not None or self.target is not None:
                raise UsageError(
                    "--launch-flags takes --boundaries and --target together: whose layers they are counts"
                )
            return None
        _version_of(self.engine, name)
        engine = next(e for e in newest_engines() if e.engine == name)
        if self.engine != AUTO:
            engine = parse_engine(self.engine)
        return reference_launch(
            engine,
            read_target(self.target),
            asked.boundaries,
            self.spool or _default_folder(),
            exported=self.export_hook is not None,
        )


def _prepare_sglang(launch: _Launch) -> int:
    from eagle_parity.capture import launching

    reference = launch.reference("sglang")
    exported = launch.export_hook is not None
    if launch.export_hook is not None:
        write_atomically(launch.export_hook, launching.exported_sglang_hook().encode())
        write_stdout(
            f"# {launch.export_hook} goes to PYTHONPATH of the server, under the name {launching.EXPORTED_NAME}\n"
        )
    if reference is not None:
        return _print_reference(reference)
    version = _version_of(launch.engine, "sglang")
    flags = launching.sglang_flags(version, launch.spool or _default_folder(), exported=exported)
    write_stdout(launching.as_shell(flags) + "\n")
    return int(ExitStatus.PARITY)


def _prepare_vllm(launch: _Launch) -> int:
    from eagle_parity.capture import launching

    reference = launch.reference("vllm")
    if reference is not None:
        return _print_reference(reference)
    environment = launching.vllm_environment(_version_of(launch.engine, "vllm"), launch.spool or _default_folder())
    write_stdout(launching.as_shell([f"{name}={value}" for name, value in environment.items()]) + "\n")
    return int(ExitStatus.PARITY)


def _print_reference(launch: ReferenceLaunch) -> int:
    """Environment and flags, a line each, and on stderr what they record: a shell takes the first alone."""
    from eagle_parity.capture.launching import as_shell
    from eagle_parity.wiring import format_boundaries

    lines = [[f"{name}={value}" for name, value in launch.environment.items()], launch.flags]
    say_on_stderr(f"# records the boundaries {format_boundaries(launch.records)}, and post_norm as the last state\n")
    if launch.missing:
        say_on_stderr(f"# not {format_boundaries(launch.missing)}: no id gives them in this release\n")
    for note in launch.notes:
        say_on_stderr(f"# {visible(note)}\n")
    write_stdout("".join(as_shell(words) + "\n" for words in lines if words))
    return int(ExitStatus.INCONCLUSIVE if launch.missing else ExitStatus.PARITY)


def _default_folder() -> str:
    from eagle_parity.capture.spool import default_spool

    return str(default_spool())


def conclude_live(
    capture: LiveCapture,
    *,
    server: str,
    tokens_from: str,
    output: str,
    asked: _Asked | None = None,
    fail_on: FailOn,
) -> Result:
    """What a capture of a server says at its end."""
    import msgspec

    from eagle_parity.capture.reference_launch import missing_boundaries
    from eagle_parity.comparison.record import judge_recording
    from eagle_parity.readers import open_hidden_states
    from eagle_parity.results import Input, Skip, WiringSummary, conclude

    manifest, live = capture.manifest, capture.manifest.live
    assert live is not None  # noqa: S101  a capture of a server has it
    outcomes: list[Finding | Skip] = [
        Skip(check=f"capture of {name}", reason=reason) for name, reason in capture.sent.skipped
    ]
    outcomes += judge_recording(open_hidden_states(output, role="live"))
    if live.incomplete:
        # Whoever asked for these sequences has not got them: that is no success.
        told = f"{len(live.incomplete)} of the sequences that were sent are not in the capture"
        outcomes.append(Skip(check="capture-complete", reason=told, blocks_verdict=True))
    lacking = None if asked is None else missing_boundaries(manifest, asked.boundaries)
    if lacking is not None:
        outcomes.append(Skip(check="boundaries", reason=lacking, blocks_verdict=True))
    measurements: dict[str, Any] = {
        "output": output,
        "engine": manifest.producer.engine,
        "sequences": len(manifest.sequences),
        "tokens": manifest.tokens,
        "slots": list(manifest.slots),
        "last_state": manifest.last_state,
        "hidden_size": manifest.target.hidden_size,
        "dtype": manifest.dtype,
        "target_class": live.target_class,
        "draft_class": live.draft_class,
        "layer_set": live.layer_set,
        "tap": live.tap,
        "ranks": [rank.name for rank in live.ranks],
        "draft_input": {
            state: count
            for state in ("equal", "differs", "normed", "absent")
            if (count := sum(sequence.draft_input == state for sequence in manifest.sequences))
        },
        "incomplete": msgspec.to_builtins(live.incomplete),
        "conditions": list(live.conditions),
        "acceptance": None if live.acceptance is None else live.acceptance.told(),
        "seconds": round(capture.seconds, 2),
    }
    return conclude(
        "capture",
        outcomes=outcomes,
        fail_on=fail_on,
        judged=True,  # by itself: that it is complete, and that its parts agree
        inputs=[
            Input(role="server", path=server, format=manifest.producer.engine, hidden_size=manifest.target.hidden_size),
            Input(
                role="tokens",
                path=tokens_from,
                format="token ids",
                sequences=len(manifest.sequences),
                tokens=manifest.tokens,
            ),
        ],
        wiring=WiringSummary(num_layers=manifest.target.num_layers, live=list(manifest.slots)),
        measurements=measurements,
    )
