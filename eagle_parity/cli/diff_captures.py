"""``diff-captures``: live hidden states against the trained ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eagle_parity.cli.options import (
    Color,
    ColorOption,
    FailOnOption,
    FirstTokenOption,
    Format,
    FormatOption,
    OutputOption,
    QuietOption,
)
from eagle_parity.results import FailOn

if TYPE_CHECKING:
    from eagle_parity.hidden_states import HiddenStates

_SIDES = "Sides"


def diff_captures(
    trained: Annotated[str, typer.Argument(metavar="TRAINED", help="Training shards: a folder or a file.")],
    live: Annotated[str, typer.Argument(metavar="LIVE", help="What the head is fed: a capture, or other shards.")],
    reference: Annotated[
        str | None,
        typer.Option(metavar="REF", help="A capture of all boundaries over the same tokens: names every layer."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The target's folder: its embedding rows and final norm are candidates too."),
    ] = None,
    noise: Annotated[
        str | None, typer.Option(metavar="LIVE2", help="A second capture of the live side: measures the noise floor.")
    ] = None,
    trained_boundaries: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="What the trained slots are, e.g. 3,31,59.", rich_help_panel=_SIDES),
    ] = None,
    live_boundaries: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="What the live slots are said to be.", rich_help_panel=_SIDES),
    ] = None,
    reference_boundaries: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="What the reference holds, e.g. 0-30,post_norm.", rich_help_panel=_SIDES),
    ] = None,
    first_token: FirstTokenOption = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Judge by another threshold, e.g. parity_distance=0.1."),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Where to compute: cpu, or a GPU as torch names it, which copies every block to it."
        ),
    ] = "cpu",
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Compare what the head is fed with what it was trained on, slot by slot, over the same tokens.

    Every slot of both sides is identified among the boundaries of a reference, or without one among the trained slots,
    the last state and the embedding; what differs is explained.

    Example: eagle-parity diff-captures ./shards ./live --reference ./all-boundaries --target ./target
    """
    from eagle_parity.cli.finish import finish
    from eagle_parity.cli.progress import show_progress
    from eagle_parity.comparison.thresholds import Thresholds
    from eagle_parity.readers import open_hidden_states
    from eagle_parity.readers.containers.stored_tensor import require_torch
    from eagle_parity.targets import read_target
    from eagle_parity.wiring import parse_boundaries

    thresholds = Thresholds().replace(threshold or [])
    lists = {
        option: None if text is None else parse_boundaries(text, option=option)
        for option, text in (
            ("--trained-boundaries", trained_boundaries),
            ("--live-boundaries", live_boundaries),
            ("--reference-boundaries", reference_boundaries),
        )
    }
    require_torch()
    import torch

    # Blocks of rows are small: sharing them among threads costs more than it gains, 20 times so on a busy machine.
    torch.set_num_threads(1)
    from eagle_parity.comparison.diff import DiffInputs, diff_captures
    from eagle_parity.numerics.choice import check_device

    check_device(device)

    def opened(path: str, role: str) -> HiddenStates:
        return open_hidden_states(path, role=role, first_token=first_token)

    inputs = DiffInputs(
        trained=opened(trained, "trained"),
        live=opened(live, "live"),
        reference=None if reference is None else opened(reference, "reference"),
        noise=None if noise is None else opened(noise, "noise"),
        target=None if target is None else read_target(target),
        trained_boundaries=lists["--trained-boundaries"],
        live_boundaries=lists["--live-boundaries"],
        reference_boundaries=lists["--reference-boundaries"],
        thresholds=thresholds,
    )
    with show_progress("pairing sequences", total=len(inputs.trained.names), quiet=quiet) as step:
        result = diff_captures(inputs, fail_on=fail_on, progress=step, device=device)
    return finish(result, format=format, output=output, fail_on=fail_on, quiet=quiet, color=color)
