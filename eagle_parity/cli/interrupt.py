"""Whether Ctrl-C was pressed, though somebody may have swallowed it."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Interrupt:
    """Notes a SIGINT and raises it as Python does; a context manager.

    A compiled module that is being imported may turn a ``KeyboardInterrupt`` into another error, or into none and be
    half there: what fails then is no bug.

    Attributes:
        came: whether there was one.
    """

    def __init__(self) -> None:
        self.came = False
        self._is_set = False

    def raise_again(self) -> None:
        """For whoever works on after a Ctrl-C that was swallowed.

        Raises:
            KeyboardInterrupt: there was one.
        """
        if self.came:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        global current  # noqa: PLW0603  there is one of a process
        current = self
        # Whoever calls this from a thread, or has a handler of their own, keeps what they have.
        if threading.current_thread() is threading.main_thread():
            self._is_set = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_set:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_set:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> Any:
        self.came = True
        signal.default_int_handler(number, frame)


current = Interrupt()
"""Of the call that runs."""
