"""The files of a pair of sequences, each opened once for all its states and blocks."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from eagle_parity.hidden_states import OpenableFile


class OpenFiles:
    """Descriptors by file, closed at the end."""

    def __init__(self) -> None:
        self._descriptors: dict[OpenableFile, int] = {}
        self._open = ExitStack()

    def descriptor(self, file: OpenableFile) -> int:
        """Of a file, which is opened when it is asked for first.

        Raises:
            InputError: it is gone, or has become shorter.
        """
        found = self._descriptors.get(file)
        if found is None:
            found = self._descriptors[file] = file.open()
            self._open.callback(os.close, found)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()
