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


class Stamp(NamedTuple):
    """What changes when a file is written again, or another one gets its name.

    Not its inode: some file systems in user space number a file anew when they are asked again.
    """

    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """By what the system says of a file."""
        return cls(status.st_size, status.st_mtime_ns)


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
        self._files: dict[Path, tuple[OpenFile, Stamp]] = {}
        self._close = ExitStack()

    def open(self, path: Path, size: int, stamp: Stamp | None = None) -> OpenFile:
        """A file, which is opened when it is asked for first.

        Args:
            path: its name.
            size: its bytes when its header was read.
            stamp: what it was then, if that is known.

        Raises:
            InputError: it is gone, is no regular file, has become shorter or is another one.
        """
        if path not in self._files:
            try:
                # Opening a pipe waits for whoever writes to it.
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                self._close.callback(os.close, descriptor)
                status = os.fstat(descriptor)
            except OSError as error:
                raise _unreadable(path, error) from error
            if not stat.S_ISREG(status.st_mode):
                raise InputError(path, "is no regular file any more")
            self._files[path] = OpenFile(path, descriptor), Stamp.of(status)
        file, found = self._files[path]
        if found.size < size:
            raise shorter(path)
        if stamp is not None and found != stamp:
            remedy = "run the command again when its writer is done"
            raise InputError(path, "was written again since its header was read", remedy=remedy)
        return file

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
