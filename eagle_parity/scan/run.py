"""A scan as a whole: the list, the parts, what was found so far on disk, and the end."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
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
    from pathlib import Path

    from eagle_parity.scan.executors import Executor
    from eagle_parity.scan.measurements import SetMeasurements
    from eagle_parity.scan.shards import Listing

SAVE_SECONDS = 10.0
"""So much work is lost at most where a scan is killed; more only where writing it down takes long itself."""
SAVE_SHARE = 0.05
"""Of the time, at most, goes into writing down what was found."""


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


def find_start(listing: Listing, root: str, summary: str | Path | None, *, rows: int | None, fresh: bool) -> Start:
    """Where to go on, by an earlier summary that a scan of the same list left unfinished.

    Args:
        listing: of the set.
        root: as it was given.
        summary: where the scan writes its own.
        rows: of each sequence that are looked at.
        fresh: begin anew, whatever is there.

    Raises:
        InputError: the file is there and is no summary.
    """
    import os

    if summary is None or not os.path.lexists(summary):
        return Start(SetState())
    state, progress = read_summary(summary)
    if fresh or progress.complete:
        return Start(SetState())
    done = [part for part in split(listing.names) if part.number < progress.parts]
    is_same = (progress.root, progress.rows, progress.listed) == (root, rows, digest_of_names(listing))
    files = sum(len(part.names) for part in done)
    if not is_same or (progress.files, len(state.stamps), state.counts.files) != (files, files, files):
        return Start(SetState(), note="the unfinished summary is of another list of files or rows: begun anew")
    changed = sum(
        state.stamps[number] != _stamp_now(listing, listing.names[number]) for number in range(progress.files)
    )
    if changed:
        note = f"{changed:,} of {progress.files:,} files of the unfinished summary have changed since: begun anew"
        return Start(SetState(), note=note)
    note = f"going on behind {progress.files:,} files of the unfinished summary"
    return Start(state, progress.parts, progress.files, note)


def scan(
    listing: Listing,
    root: str,
    executor: Executor,
    start: Start,
    *,
    rows: int | None,
    summary: str | Path | None = None,
    on_part: Callable[[int, int], None] = lambda _files, _bytes: None,
) -> SetMeasurements:
    """Looks at every file that isn't done yet, and writes the summary.

    Args:
        listing: of the set.
        root: as it was given.
        executor: who does it.
        start: see ``find_start``.
        rows: of each sequence that are looked at; None for all.
        summary: where the state is written, every now and then and at the end; None for nowhere.
        on_part: called with the files and bytes that are done.

    Raises:
        InputError: not one file can be read, or the summary can't be written.
    """
    saver = _Saver(listing, root, rows, summary)
    state, done, parts_done = start.state, start.files, start.parts
    parts = (part for part in split(listing.names) if part.number >= start.parts)
    on_part(done, state.counts.bytes)
    whole = True
    try:
        for part, found in executor.run(PartWork(listing.shards, rows), parts):
            whole = False
            state.merge(found)
            done, parts_done = part.first + len(part.names), part.number + 1
            whole = True
            on_part(done, state.counts.bytes)
            saver.save_if_due(state, parts_done, done)
    except BaseException:
        if whole:  # else what was saved last stands: a part is in a summary once, or not at all
            saver.save(state, parts_done, done)
        raise
    if done and not state.layouts:
        _, reason = state.problems[UNREADABLE].examples[0]
        raise InputError(root, f"none of its {done:,} files can be read; the first: {reason}", expected="shards")
    saver.save(state, parts_done, done)
    return measure_set(
        state,
        listing.names,
        root=root,
        rows=rows,
        complete=True,
        closed=list(listing.closed.items()),
    )


def digest_of_names(listing: Listing) -> str:
    """Of the list of files, in its order."""
    digest = hashlib.blake2b(digest_size=16)
    for name in listing.names:
        digest.update(name.encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()


def _stamp_now(listing: Listing, name: str) -> bytes:
    try:
        return digest_of(listing.stamp(name))
    except OSError:
        return NO_STAMP


class _Saver:
    """Writes the state down, not too often."""

    def __init__(self, listing: Listing, root: str, rows: int | None, summary: str | Path | None) -> None:
        self._root = root
        self._rows = rows
        self._summary = summary
        self._files = len(listing.names)
        self._listed = "" if summary is None else digest_of_names(listing)
        self._next = time.monotonic() + SAVE_SECONDS

    def save_if_due(self, state: SetState, parts: int, files: int) -> None:
        if self._summary is not None and time.monotonic() >= self._next:
            began = time.monotonic()
            self.save(state, parts, files)
            ended = time.monotonic()
            self._next = ended + max(SAVE_SECONDS, (ended - began) / SAVE_SHARE)

    def save(self, state: SetState, parts: int, files: int) -> None:
        if self._summary is None:
            return
        progress = Progress(
            root=self._root,
            rows=self._rows,
            parts=parts,
            files=files,
            listed=self._listed,
            complete=files == self._files,
        )
        write_summary(self._summary, state, progress)
