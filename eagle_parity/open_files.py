"""Files that stay open while parts of them are read, by Python or by a compiled loop that takes their descriptor."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from eagle_parity.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self


class OpenFile(NamedTuple):
    """An open file.

    Attributes:
        path: as it was opened; another file may have that name by now.
        descriptor: of the open one.
    """

    path: Path
    descriptor: int

    def read_into(self, memory: memoryview, start: int) -> None:
        """Fills the memory with the bytes from there.

        Raises:
            InputError: the file has become shorter, or can't be read.
        """
        done = 0
        try:
            while done < len(memory) and (got := os.preadv(self.descriptor, [memory[done:]], start + done)):
                done += got
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if done < len(memory):
            raise shorter(self.path)


class OpenFiles:
    """Several of them, each opened once, and closed together."""

    def __init__(self) -> None:
        self._files: dict[Path, OpenFile] = {}
        self._close = ExitStack()

    def open(self, path: Path, size: int) -> OpenFile:
        """A file, which is opened when it is asked for first.

        Args:
            path: its name.
            size: its bytes when its header was read.

        Raises:
            InputError: it is gone, is no regular file, or has become shorter.
        """
        found = self._files.get(path)
        if found is None:
            try:
                # Opening a pipe waits for whoever writes to it.
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                self._close.callback(os.close, descriptor)
                status = os.fstat(descriptor)
            except OSError as error:
                raise _unreadable(path, error) from error
            if not stat.S_ISREG(status.st_mode):
                raise InputError(path, "is no regular file any more")
            if status.st_size < size:
                raise shorter(path)
            found = self._files[path] = OpenFile(path, descriptor)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close.close()


def shorter(subject: object) -> InputError:
    """What is said of a file that somebody has cut meanwhile."""
    return InputError(subject, "has become shorter while it was read", remedy="wait until its writer is done")


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(path, f"can't be read any more ({error.strerror or error})")
