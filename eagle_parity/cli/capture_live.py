"""``eagle-parity capture sglang`` and ``vllm``: hidden states of a running server, every rank."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eagle_parity.cli.live_launch import Launch, prepare_sglang, prepare_vllm
from eagle_parity.cli.live_options import (
    API_KEY_ENV,
    AUTO,
    LAUNCH_PANEL,
    SERVER_PANEL,
    LiveOptions,
    ShownOptions,
    parse_asked,
    parse_conditions,
    version_of,
)
from eagle_parity.cli.live_result import conclude_live
from eagle_parity.cli.options import Format
from eagle_parity.cli.spread import spread
from eagle_parity.cli.streams import say_on_stderr
from eagle_parity.errors import InputError, UsageError
from eagle_parity.files import is_same_place
from eagle_parity.input_files import NOTHING_THERE, why_no_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from eagle_parity.capture.prompts import TokenSource
    from eagle_parity.capture.servers.server import Server
    from eagle_parity.cli.live_options import AskedBoundaries


@spread
def capture_sglang(
    live: LiveOptions,
    *,
    export_hook: Annotated[
        str | None,
        typer.Option(
            "--export-hook",
            metavar="FILE",
            help="Write the hook as one file that needs torch and safetensors alone, for images where nothing may be"
            " installed, and print the flags that go with it.",
            rich_help_panel=LAUNCH_PANEL,
        ),
    ] = None,
    from_parts: Annotated[
        str | None,
        typer.Option(
            "--from-parts",
            metavar="DIR",
            help="Finish a capture whose parts could not be reached: a copy of the folder that it named, and the same"
            " --output.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None,
    shown: ShownOptions,
) -> int:
    """Record what a running SGLang server feeds its draft head, on every rank, without a restart.

    The server needs the hook from its start: --launch-flags prints the flags. It records the requests of this command
    and no others. With --boundaries they start a server without a draft, which records a reference.

    Example: eagle-parity capture sglang --server http://127.0.0.1:30000 --replay ./shards --output ./live
    """
    from eagle_parity.capture.servers.sglang import SglangServer

    if live.launch_flags or export_hook is not None:
        return prepare_sglang(_launch(live, shown, export_hook))
    asked = _asked(live, "sglang")
    if from_parts is not None:
        return _finish_from_parts(from_parts, live, shown, asked)
    return _record(SglangServer, "sglang", live, shown, asked)


@spread
def capture_vllm(live: LiveOptions, *, shown: ShownOptions) -> int:
    """Record what a running vLLM server feeds its draft head, on every rank, without a restart.

    The server needs this package beside vLLM and the environment that --launch-flags prints. It records the requests of
    this command and no others. With --boundaries they start a server without a draft, which records a reference.

    Example: eagle-parity capture vllm --server http://127.0.0.1:8000 --replay ./shards --output ./live
    """
    from eagle_parity.capture.servers.vllm import VllmServer

    if live.launch_flags:
        return prepare_vllm(_launch(live, shown))
    return _record(VllmServer, "vllm", live, shown, _asked(live, "vllm"))


def _launch(live: LiveOptions, shown: ShownOptions, export_hook: str | None = None) -> Launch:
    """What a server is started with is for a shell.

    Raises:
        UsageError: another format is asked for.
    """
    if shown.format is not Format.TERMINAL:
        raise UsageError(f"--format {shown.format.value}: --launch-flags and --export-hook print words for a shell")
    return Launch(live.engine, live.spool, live.boundaries, live.target, export_hook, live.overwrite)


def _asked(live: LiveOptions, engine: str) -> AskedBoundaries | None:
    """The boundaries that the capture is to have."""
    if live.target is not None:
        raise UsageError(f"capture {engine} --target goes with --launch-flags --boundaries: a server has its target")
    return parse_asked(live.boundaries)


def _record(
    connect: Callable[..., Server], engine: str, live: LiveOptions, shown: ShownOptions, asked: AskedBoundaries | None
) -> int:
    from eagle_parity.capture.live import capture_live
    from eagle_parity.cli.progress import show_progress

    if live.server is None or live.output is None:
        missing = "--server URL" if live.server is None else "--output DIR"
        raise UsageError(f"capture {engine} needs {missing}; --launch-flags says what the server is started with")
    if not math.isfinite(live.temperature):
        raise UsageError(f"--temperature {live.temperature}: expected a finite number, 0 for greedy")
    conditions, named_engine = parse_conditions(live.conditions), _named_engine(live.engine, engine)
    _check_tokens(live, engine, live.output)
    api_key = live.api_key or os.environ.get(API_KEY_ENV)
    server = connect(live.server, api_key=api_key, spool=live.spool, token=live.token)
    with show_progress("asking the server", total=live.sequences, quiet=shown.quiet) as step:
        capture = capture_live(
            server,
            _tokens(live, server),
            live.output,
            engine=named_engine,
            conditions=conditions,
            new_tokens=live.generate,
            temperature=live.temperature,
            overwrite=live.overwrite,
            on_sequence=step,
        )
    if capture.removed and not shown.quiet:
        say_on_stderr(f"removed from the spool, abandoned by former captures: {', '.join(capture.removed)}\n")
    result = conclude_live(
        capture,
        server=server.url,
        tokens_from=live.replay or live.prompts or "",
        output=live.output,
        asked=asked,
        fail_on=shown.fail_on,
    )
    return shown.finish(result)


def _check_tokens(live: LiveOptions, engine: str, output: str) -> None:
    """Refuses what can be seen to be wrong without a server: nobody should start one to learn of it."""
    if (live.replay is None) == (live.prompts is None):
        raise UsageError(f"capture {engine} takes its tokens from one of --replay SHARDS and --prompts FILE")
    if live.replay is not None and is_same_place(live.replay, output):
        raise UsageError(f"--replay and --output are both {output!r}: a capture can't be written over what it reads")
    source = live.replay or live.prompts or ""
    if why_no_file(Path(source).expanduser()) == NOTHING_THERE:
        expected = "a prompt file" if live.replay is None else "training shards or a capture"
        raise InputError(source, NOTHING_THERE, expected=expected)


def _tokens(live: LiveOptions, server: Server) -> TokenSource:
    """Where the token ids come from."""
    from eagle_parity.capture.prompts import limit_sequences, prompt_sequences, replay_sequences

    source: TokenSource
    if live.replay is not None:
        source = replay_sequences(live.replay, first_token=live.first_token)
    else:
        source = prompt_sequences(live.prompts or "", server)
    return limit_sequences(source, sequences=live.sequences, max_tokens=live.max_tokens)


def _finish_from_parts(parts: str, live: LiveOptions, shown: ShownOptions, asked: AskedBoundaries | None) -> int:
    from eagle_parity.capture.live import capture_from_parts

    if live.output is None:
        raise UsageError("--from-parts needs --output DIR, the same as before")
    capture = capture_from_parts(parts, live.output, engine=_named_engine(live.engine, "sglang"))
    result = conclude_live(
        capture,
        server=capture.sent.server,
        tokens_from=parts,
        output=live.output,
        asked=asked,
        fail_on=shown.fail_on,
    )
    return shown.finish(result)


def _named_engine(named: str, engine: str) -> str | None:
    """What ``--engine`` names; None where the server says it itself."""
    version_of(named, engine)
    return None if named == AUTO else named
