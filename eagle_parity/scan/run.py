"""A scan as a whole: the list, the parts, what was found so far on disk, and the end."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.errors import InputError
from eagle_parity.scan.look import digest_of
from eagle_parity.scan.measurements import measure_set
from eagle_parity.scan.parts import PartWork, split
from eagle_parity.scan.problem_kinds import UNREADABLE
from eagle_parity.scan.set_state import NO_STAMP, SetState
from eagle_parity.scan.summary import Progress, read_summary, write_summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from eagle_parity.scan.executors import Executor
    from eagle_parity.scan.measurements import SetMeasurements
    from eagle_parity.scan.shards import Listing

SAVE_SECONDS = 10.0
"""So much work is lost at most where a scan is killed; more only where writing it down takes long itself."""
SAVE_SHARE = 0.05
"""Of the time, at most, goes into writing down what was found."""
UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class ScanSettings:
    """What is looked at, and where that is written down.

    Attributes:
        root: the set, as it was given.
        rows: of each sequence that are looked at; None for all.
        first_token: see ``open_hidden_states``.
        summary: the file of the state; None for none. Until it is complete it is called so with ``UNFINISHED`` behind,
            so that a complete one stays until another one is.
    """

    root: str
    rows: int | None = None
    first_token: int | None = None
    summary: str | None = None

    @property
    def unfinished(self) -> Path | None:
        """Where the state is written until it is complete."""
        return None if self.summary is None else Path(self.summary + UNFINISHED)


@dataclass(frozen=True)
class Start:
    """Where a scan begins.

    Attributes:
        state: of the files that are done.
        parts, files: how many these are.
        note: why an earlier summary isn't gone on from, or that it is; empty where there is none.
    """

    state: SetState
    parts: int = 0
    files: int = 0
    note: str = ""


def find_start(listing: Listing, settings: ScanSettings, *, fresh: bool) -> Start:
    """Where to go on, by what a scan of the same list left unfinished.

    Args:
        listing: of the set.
        settings: of this scan.
        fresh: begin anew, whatever is there.

    Raises:
        InputError: a file is there that is no summary, and would be replaced.
    """
    unfinished = settings.unfinished
    if unfinished is None:
        return Start(SetState())
    _summary_at(Path(settings.summary or ""))
    if fresh and unfinished.is_file():
        return Start(SetState())  # damaged or not: the name is ours
    left = _summary_at(unfinished)
    if left is None:
        return Start(SetState())
    state, progress = left
    parts = [part for part in split(listing.names) if part.number < progress.parts]
    files = sum(len(part.names) for part in parts)
    same_list = (progress.root, progress.listed) == (settings.root, digest_of_names(listing))
    same_way = (progress.rows, progress.first_token) == (settings.rows, settings.first_token)
    fits = (progress.files, len(state.stamps), state.counts.files) == (files, files, files)
    if not (same_list and same_way and fits):
        return Start(SetState(), note="the unfinished summary is of another list of files, rows or ids: begun anew")
    changed = sum(
        stamp != _stamp_now(listing, name) for stamp, name in zip(state.stamps, listing.names[:files], strict=True)
    )
    if changed:
        note = f"{changed:,} of {files:,} files of the unfinished summary have changed since: begun anew"
        return Start(SetState(), note=note)
    return Start(state, progress.parts, files, f"going on behind {files:,} files of the unfinished summary")


def scan(
    listing: Listing,
    settings: ScanSettings,
    executor: Executor,
    start: Start,
    *,
    on_part: Callable[[int, int], None] = lambda _files, _bytes: None,
) -> SetMeasurements:
    """Looks at every file that isn't done yet, and writes the summary, every now and then and at the end.

    Args:
        listing: of the set.
        settings: what is looked at.
        executor: who does it.
        start: see ``find_start``.
        on_part: called with the files and bytes that are done.

    Raises:
        InputError: not one file can be read, or the summary can't be written.
    """
    saver = _Saver(listing, settings)
    state, done, parts_done = start.state, start.files, start.parts
    parts = (part for part in split(listing.names) if part.number >= start.parts)
    on_part(done, state.counts.bytes)
    whole = True
    try:
        for part, found in executor.run(PartWork(listing.shards, settings.rows), parts):
            whole = False
            state.merge(found)
            done, parts_done = part.first + len(part.names), part.number + 1
            whole = True
            on_part(done, state.counts.bytes)
            saver.save_if_due(state, parts_done, done)
    except BaseException:
        # A part is in a summary once or not at all; and of nothing new there is nothing to write.
        if whole and parts_done > start.parts:
            saver.save(state, parts_done, done)
        raise
    if done and not state.layouts:
        problem = state.problems.get(UNREADABLE)
        reason = f"; the first: {problem.examples[0][1]}" if problem is not None and problem.examples else ""
        raise InputError(settings.root, f"none of its {done:,} files can be read{reason}", expected="shards")
    saver.finish(state, parts_done, done)
    return measure_set(
        state, listing.names, root=settings.root, rows=settings.rows, closed=list(listing.closed.items())
    )


def _summary_at(path: Path) -> tuple[SetState, Progress] | None:
    """The summary that is there, if one is; a file that is none is never replaced.

    Raises:
        InputError: something else is there.
    """
    if not os.path.lexists(path):
        return None
    if path.exists() and not path.is_file():
        raise InputError(path, "no regular file", expected="a name that is free, or an earlier summary")
    if not path.exists():
        return None  # a link to nothing: what it points to is made
    return read_summary(path)


def digest_of_names(listing: Listing) -> str:
    """Of the list of files, in its order, and of what lies beside them."""
    digest = hashlib.blake2b(digest_size=16)
    for name in listing.names:
        digest.update(name.encode(errors="surrogateescape") + b"\0")
    digest.update(listing.shards.beside(listing.names).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _stamp_now(listing: Listing, name: str) -> bytes:
    try:
        return digest_of(listing.stamp(name))
    except OSError:
        return NO_STAMP


class _Saver:
    """Writes the state down, not too often."""

    def __init__(self, listing: Listing, settings: ScanSettings) -> None:
        self._settings = settings
        self._listed = "" if settings.summary is None else digest_of_names(listing)
        self._next = time.monotonic() + SAVE_SECONDS

    def save_if_due(self, state: SetState, parts: int, files: int) -> None:
        if self._settings.summary is not None and time.monotonic() >= self._next:
            began = time.monotonic()
            self.save(state, parts, files)
            ended = time.monotonic()
            self._next = ended + max(SAVE_SECONDS, (ended - began) / SAVE_SHARE)

    def save(self, state: SetState, parts: int, files: int) -> None:
        """As unfinished."""
        if self._settings.unfinished is not None:
            write_summary(self._settings.unfinished, state, self._progress(parts, files, complete=False))

    def finish(self, state: SetState, parts: int, files: int) -> None:
        """As the complete one."""
        if self._settings.summary is not None and self._settings.unfinished is not None:
            write_summary(self._settings.summary, state, self._progress(parts, files, complete=True))
            self._settings.unfinished.unlink(missing_ok=True)

    def _progress(self, parts: int, files: int, *, complete: bool) -> Progress:
        return Progress(
            root=self._settings.root,
            rows=self._settings.rows,
            first_token=self._settings.first_token,
            parts=parts,
            files=files,
            listed=self._listed,
            complete=complete,
        )
