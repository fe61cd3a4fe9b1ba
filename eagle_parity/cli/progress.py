"""Progress on stderr, for commands that take longer than a blink."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def show_progress(waiting: str, *, total: int | None = None, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A progress line on stderr; nothing where stderr is no terminal or ``quiet`` is set.

    Args:
        waiting: what is going on before the first step: ``loading the target``.
        total: the number of steps; None where it isn't known.
        quiet: show nothing.

    Yields:
        A function to call with a step's name when it starts.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(waiting, total=total)
        started = 0

        def step(name: str) -> None:
            nonlocal started
            # A name comes from a file: no markup, no control characters.
            shown = escape("".join(c if c.isprintable() else "?" for c in name[-60:]))
            progress.update(task, description=shown, completed=started)
            started += 1

        yield step


@contextmanager
def show_files(total: int, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A progress line on stderr with rate and time left; nothing where that is no terminal or ``quiet`` is set.

    Args:
        total: the number of files.
        quiet: show nothing.

    Yields:
        A function to call with the files and bytes that are done.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _files, _bytes: None
        return
    import time
    from datetime import timedelta

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("scanning"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files, {task.fields[rate]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("scanning", total=total, rate="")
        began = time.monotonic()
        first: tuple[int, int] | None = None

        def done(files: int, size: int) -> None:
            nonlocal first
            if first is None:  # of a scan that goes on, what was done before says nothing of its rate
                first = files, size
            seconds = max(time.monotonic() - began, 1e-3)
            rate, size_rate = (files - first[0]) / seconds, (size - first[1]) / seconds
            left = timedelta(seconds=round((total - files) / rate)) if rate else "?"
            told = f"{rate:,.0f} a second, of {size_rate / 1e6:,.0f} MB; {left} left"
            progress.update(task, completed=files, rate=told)

        yield done
