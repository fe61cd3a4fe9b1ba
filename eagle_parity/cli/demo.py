"""``demo``: the founding story on recorded data."""

from __future__ import annotations

from typing import Annotated

import typer

from eagle_parity.cli.options import Color, ColorOption


def demo(
    *,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="DIR", help="Keep the results there; without it they are thrown away."),
    ] = None,
    color: ColorOption = Color.AUTO,
) -> int:
    """Show on recorded data how a spurious embedding is found, before and after the server starts.

    Runs check-config, diff-captures, report and ids as you would, and prints each command. Ends with 0 when the fault
    was found.

    Example: eagle-parity demo
    """
    import contextlib
    import tempfile
    from pathlib import Path

    from eagle_parity.cli.app import call
    from eagle_parity.demo.story import tell
    from eagle_parity.errors import InputError

    try:
        temporary = None if output else tempfile.TemporaryDirectory(prefix="eagle-parity-demo-")
        kept = Path(output or "") if temporary is None else Path(temporary.name)
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        found = f"can't be made ({error.strerror or error})"
        raise InputError(output or "a temporary folder", found, expected="a folder for results") from error
    with temporary or contextlib.nullcontext():
        return tell(kept, call, color=color.value)
