"""Standard streams that are closed or full: what can still be said is said, and nothing crashes over them."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from pathlib import Path
from typing import TextIO, cast

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""A full disk, an exhausted quota, a file that may not grow, a broken disk or terminal."""


class StdoutError(OSError):
    """Stdout can't be written to: the disk is full, or it is closed. A pipe that nobody reads is no such case."""


class ClosedStream(io.TextIOBase):
    """Stands for a stdout that was closed before the program began: fails when it is written to, and not before."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.written = False

    def writable(self) -> bool:
        """It is for writing, and fails only then."""
        return True

    def write(self, text: str, /) -> int:
        """Fails, unless there is nothing to write.

        Raises:
            OSError: always.
        """
        if not text:
            return 0
        self.written = True
        raise OSError(errno.EBADF, "it is closed")

    def flush(self) -> None:
        """Fails as ``write`` did: what was written then is lost.

        Raises:
            OSError: something has been written.
        """
        if self.written:
            raise OSError(errno.EBADF, "it is closed")


def mend_streams() -> None:
    """Gives the program the streams that it was started without.

    Python has None where a stream is closed. Its file descriptor would go to the next file that is opened, and what a
    library writes to the stream would go into that file: so it is taken first.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(descriptor)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
    if sys.stdout is None:
        sys.stdout = cast("TextIO", ClosedStream())
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  for as long as the process lives


def write_stdout(text: str) -> None:
    """Writes to stdout, all the way out.

    Raises:
        BrokenPipeError: nobody reads it any more.
        StdoutError: it can't be written to.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutError(error.errno, error.strerror or str(error)) from error


def is_of_stdout(error: Exception) -> bool:
    """Whether an error that got past everything else says that stdout can't be written to.

    Results go through ``write_stdout``; help texts are written by the libraries of the command line.
    """
    if isinstance(error, StdoutError):
        return True
    if not isinstance(error, OSError) or error.filename is not None:
        return False
    if error.errno in _FULL:
        return True
    try:
        sys.stdout.flush()  # what couldn't be written is still held, unless it was more than fits
    except (OSError, ValueError):  # ValueError: closed by somebody in this process
        return True
    return False


def say_on_stderr(text: str) -> None:
    """Writes to stderr if that is possible."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Lets what a stream still holds go nowhere, so that the interpreter's last flush doesn't fail."""
    if isinstance(stream, ClosedStream):
        stream.written = False
        return
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
