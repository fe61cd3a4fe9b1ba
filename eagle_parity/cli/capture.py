"""``eagle-parity capture``: hidden states recorded from a forward, one subcommand an engine."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

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
from eagle_parity.files import is_same_place
from eagle_parity.results import FailOn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.capture.prompts import TokenSource
    from eagle_parity.capture.transformers import TransformersCapture
    from eagle_parity.results import Result
    from eagle_parity.wiring import Boundary

ALL_BOUNDARIES = "all"

_RECORDING = "Recording"


class ComputeDtype(StrEnum):
    """In which dtype the forward computes; the files hold the same."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class AttentionOption(StrEnum):
    """The attention implementations of transformers that every machine has."""

    SDPA = "sdpa"
    EAGER = "eager"


def capture_transformers(
    *,
    target: Annotated[
        str, typer.Option("--target", metavar="DIR", help="The target's folder: config.json and weights.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The capture, a new or empty folder.")],
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay", metavar="SHARDS", help="Take the token ids from shards or a capture: same tokens on both sides."
        ),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help='One prompt a line, or JSON lines or a YAML list with "text", "token_ids" or "messages".',
        ),
    ] = None,
    first_token: FirstTokenOption = None,
    boundaries: Annotated[
        str,
        typer.Option(
            "--boundaries",
            metavar="LIST",
            help="The slots in order, such as 0,3,16 or 0-30; all is every boundary, and post_norm as the last state.",
            rich_help_panel=_RECORDING,
        ),
    ] = ALL_BOUNDARIES,
    last_state: Annotated[
        str | None,
        typer.Option(
            "--last-state",
            metavar="BOUNDARY",
            help="What to keep beside the slots: post_norm or a number.",
            rich_help_panel=_RECORDING,
        ),
    ] = None,
    sequences: Annotated[
        int | None,
        typer.Option("--sequences", min=1, help="At most so many sequences.", rich_help_panel=_RECORDING),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, help="Cut each sequence to so many tokens.", rich_help_panel=_RECORDING),
    ] = None,
    dtype: Annotated[
        ComputeDtype,
        typer.Option("--dtype", help="auto is the checkpoint's own.", rich_help_panel=_RECORDING),
    ] = ComputeDtype.AUTO,
    device: Annotated[
        str,
        typer.Option(
            "--device", help="auto is the GPU if there is one; cpu, cuda, cuda:1.", rich_help_panel=_RECORDING
        ),
    ] = "auto",
    attention: Annotated[
        AttentionOption,
        typer.Option("--attention", help="eager is for targets without sdpa.", rich_help_panel=_RECORDING),
    ] = AttentionOption.SDPA,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Write into a folder that isn't empty; a former capture in it is replaced, other files stay.",
            rich_help_panel=_RECORDING,
        ),
    ] = False,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Record a reference: the hidden states of a local target, with transformers.

    The states are exactly what each layer receives: boundary 0 is the embedding, boundary N the output of the last
    layer before the final norm. Nothing is downloaded and no code of the target's folder is run.

    Example: eagle-parity capture transformers --target ./target --replay ./shards --output ./reference
    """
    from eagle_parity.capture import transformers
    from eagle_parity.capture.prompts import TargetEncoder, limit_sequences, prompt_sequences, replay_sequences
    from eagle_parity.cli.finish import finish
    from eagle_parity.cli.progress import show_progress

    source: TokenSource
    if replay is not None and prompts is None:
        if is_same_place(replay, output):
            raise UsageError(
                f"--replay and --output are both {output!r}: a capture can't be written over what it reads"
            )
        source = replay_sequences(replay, first_token=first_token)
    elif prompts is not None and replay is None:
        source = prompt_sequences(prompts, TargetEncoder(target))
    else:
        raise UsageError("capture transformers takes its tokens from one of --replay SHARDS and --prompts FILE")
    with show_progress("loading the target", total=sequences, quiet=quiet) as step:
        capture = transformers.capture_transformers(
            target,
            limit_sequences(source, sequences=sequences, max_tokens=max_tokens),
            output,
            boundaries=_parse_slots(boundaries),
            last_state=_parse_last_state(last_state),
            dtype=dtype.value,
            device=device,
            attention=attention.value,
            overwrite=overwrite,
            on_sequence=step,
        )
    result = _conclude(
        capture, target=target, tokens_from=cast("str", replay or prompts), output=output, fail_on=fail_on
    )
    return int(finish(result, format=format, fail_on=fail_on, quiet=quiet, color=color))


def _parse_slots(text: str) -> Sequence[Boundary] | None:
    from eagle_parity.wiring import parse_boundaries

    return None if text == ALL_BOUNDARIES else parse_boundaries(text)


def _parse_last_state(text: str | None) -> Boundary | None:
    from eagle_parity.wiring import parse_boundaries

    if text is None:
        return None
    parsed = parse_boundaries(text, option="--last-state")
    if len(parsed) != 1:
        raise UsageError(f"--last-state {text!r}: {len(parsed)} boundaries, but there is one last state")
    return parsed[0]


def _conclude(capture: TransformersCapture, *, target: str, tokens_from: str, output: str, fail_on: FailOn) -> Result:
    from eagle_parity.results import Input, Skip, WiringSummary, conclude
    from eagle_parity.targets import TARGET_FORMAT

    manifest = capture.manifest
    measurements: dict[str, Any] = {
        "output": output,
        "sequences": len(manifest.sequences),
        "tokens": manifest.tokens,
        "boundaries": list(manifest.slots),
        "last_state": manifest.last_state,
        "hidden_size": manifest.target.hidden_size,
        "dtype": manifest.dtype,
        "engine": manifest.producer.engine,
        "attention": manifest.producer.options["attention"],
        "device": manifest.producer.options["device"],
        "seconds": round(capture.seconds, 2),
    }
    return conclude(
        "capture",
        outcomes=[Skip(check=f"capture of {skip.name}", reason=skip.reason) for skip in capture.skipped],
        fail_on=fail_on,
        judged=True,  # a recording judges nothing: that it is complete is all that it can be asked
        inputs=[
            Input(role="target", path=target, format=TARGET_FORMAT, hidden_size=manifest.target.hidden_size),
            Input(
                role="tokens",
                path=tokens_from,
                format="token ids",
                sequences=len(manifest.sequences),
                tokens=manifest.tokens,
            ),
        ],
        wiring=WiringSummary(num_layers=manifest.target.num_layers),
        measurements=measurements,
    )
