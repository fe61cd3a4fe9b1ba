"""``eagle-parity scan``: a whole training set."""

from __future__ import annotations

from enum import StrEnum
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
    from eagle_parity.results import Input
    from eagle_parity.scan.executors import Executor
    from eagle_parity.scan.measurements import SetMeasurements
    from eagle_parity.scan.wiring import WiringQuestion
    from eagle_parity.wiring import BoundaryEntry

_WORK = "Work"
_WIRING = "Wiring"


class ExecutorName(StrEnum):
    """Who looks at the files."""

    PROCESSES = "processes"
    RAY = "ray"


def scan(
    shards: Annotated[
        str, typer.Argument(metavar="SHARDS", help="A training set: a folder, or a URL such as s3://bucket/set.")
    ],
    *,
    rows: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Rows of each sequence to look at.", show_default="64"),
    ] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="Look at every row.")] = False,
    summary: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write what was found as a state that can be gone on from and compared with."
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, even if the summary is unfinished.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes.", show_default="one a core", rich_help_panel=_WORK),
    ] = None,
    executor: Annotated[
        ExecutorName,
        typer.Option(help="Processes of this machine, or a Ray cluster (RAY_ADDRESS).", rich_help_panel=_WORK),
    ] = ExecutorName.PROCESSES,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="A capture of all boundaries over some of the set's sequences: measures the wiring.",
            rich_help_panel=_WIRING,
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="DIR", help="The target's folder.", rich_help_panel=_WIRING)
    ] = None,
    trained_boundaries: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="What the slots are said to be, e.g. 3,31,59.", rich_help_panel=_WIRING),
    ] = None,
    reference_boundaries: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="What the reference holds, e.g. 0-30,post_norm.", rich_help_panel=_WIRING),
    ] = None,
    first_token: FirstTokenOption = None,
    format: FormatOption = Format.TERMINAL,  # noqa: A002  the option's name
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    color: ColorOption = Color.AUTO,
) -> int:
    """Look at a whole training set: what is broken in it, and whether its parts are alike.

    Headers, token ids and masks of every file are read, and some rows of every sequence. With --summary an interrupted
    scan goes on where it was.

    Example: eagle-parity scan ./shards --summary ./shards.summary
    """
    from eagle_parity.cli import interrupt
    from eagle_parity.cli.finish import finish
    from eagle_parity.cli.progress import show_files
    from eagle_parity.cli.streams import say_on_stderr
    from eagle_parity.errors import UsageError
    from eagle_parity.readers.containers.stored_tensor import require_torch

    if rows is not None and all_rows:
        raise UsageError("--rows and --all: one of them")
    if reference is None and (reference_boundaries or trained_boundaries):
        raise UsageError("--trained-boundaries and --reference-boundaries are about a --reference, which isn't given")
    if reference is None and target is not None:
        raise UsageError("--target is about a --reference, which isn't given")
    if reference is not None and "://" in shards:
        raise UsageError("--reference takes shards on a disk: copy some of them there")
    require_torch()
    import torch

    torch.set_num_threads(1)
    from eagle_parity.readers.folders import printable
    from eagle_parity.scan.look import DEFAULT_ROWS
    from eagle_parity.scan.run import ScanSettings, find_start
    from eagle_parity.scan.run import scan as scan_set
    from eagle_parity.scan.shards import find_shards

    # Before anything is scanned: a wrong option is told at once, and not after hours.
    question = None
    if reference is not None:
        question = _ask(shards, reference, target, trained_boundaries, reference_boundaries, first_token=first_token)
    listing = find_shards(shards, first_token=first_token).without(summary)
    if output is not None and listing.has(output):
        raise UsageError(f"--output {output}: it is one of the set's files")
    settings = ScanSettings(printable(shards), None if all_rows else rows or DEFAULT_ROWS, first_token, summary)
    start = find_start(listing, settings, fresh=fresh)
    if start.note and not quiet:
        say_on_stderr(f"# {start.note}\n")
    chosen = _executor(executor, workers, len(listing.names))
    with show_files(len(listing.names), quiet=quiet) as on_part:

        def done(files: int, size: int) -> None:
            interrupt.current.raise_again()  # a long scan is begun while modules are imported, which can swallow one
            on_part(files, size)

        found = scan_set(listing, settings, chosen, start, on_part=done)
    import msgspec

    from eagle_parity.checks.of_sets import SET_CHECKS
    from eagle_parity.results import conclude

    wiring = None
    if question is not None:
        measured, wiring = question.measure()
        found = msgspec.structs.replace(found, wiring=measured)
    return finish(
        conclude(
            "scan",
            outcomes=[outcome for check in SET_CHECKS for outcome in check.run(found)],
            judged=found.sequences > 0,
            fail_on=fail_on,
            inputs=[_input(found)],
            wiring=wiring,
            measurements=msgspec.to_builtins(found),
        ),
        format=format,
        output=output,
        fail_on=fail_on,
        quiet=quiet,
        color=color,
    )


def _executor(name: ExecutorName, workers: int | None, files: int) -> Executor:
    from eagle_parity.scan.executors import Processes, ThisProcess
    from eagle_parity.scan.parts import PART_FILES
    from eagle_parity.threads import processors

    if name is ExecutorName.RAY:
        from eagle_parity.scan.ray_cluster import RayCluster

        return RayCluster(workers)
    # A process takes a second or more to begin: a few files are looked at before.
    wanted = workers or (processors() if files > 2 * PART_FILES else 1)
    return ThisProcess() if wanted == 1 else Processes(wanted)


def _ask(
    shards: str,
    reference: str,
    target: str | None,
    trained_boundaries: str | None,
    reference_boundaries: str | None,
    *,
    first_token: int | None,
) -> WiringQuestion:
    from eagle_parity.scan.wiring import ask_wiring
    from eagle_parity.targets import read_target
    from eagle_parity.wiring import parse_boundaries

    def listed(text: str | None, option: str) -> tuple[BoundaryEntry, ...] | None:
        return None if text is None else parse_boundaries(text, option=option)

    return ask_wiring(
        shards,
        reference,
        target=None if target is None else read_target(target),
        trained_boundaries=listed(trained_boundaries, "--trained-boundaries"),
        reference_boundaries=listed(reference_boundaries, "--reference-boundaries"),
        first_token=first_token,
    )


def _input(found: SetMeasurements) -> Input:
    from eagle_parity.results import Input

    main = found.layouts[0] if found.layouts else None
    return Input(
        role="trained",
        path=found.root,
        format="unknown" if main is None else main.format,
        sequences=found.sequences,
        tokens=found.tokens,
        slots=None if main is None else main.slots,
        hidden_size=None if main is None else main.hidden_size,
    )
