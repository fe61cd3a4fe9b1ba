"""What the hooks say in the server's own log: the one place where a server's operator sees that they are there."""

from __future__ import annotations

import contextlib
import logging
import traceback

logger = logging.getLogger("eagle_parity.capture")

MAX_LOGGED = 64
"""Different lines of one speaker: a hook that fails anew at every forward fills no log."""


def log_exception(line: str) -> None:
    """Says what failed, with the traceback of the exception that is being handled; never raises."""
    with contextlib.suppress(Exception):  # a filter or a handler of the server's own
        logger.error("eagle-parity: %s\n%s", line, traceback.format_exc())


class LogOnce:
    """Says each line once, and no more than ``MAX_LOGGED`` of them; never raises."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, line: str) -> None:
        """Says it, unless it was said."""
        if line in self._said or len(self._said) >= MAX_LOGGED:
            return
        self._said.add(line)
        with contextlib.suppress(Exception):  # a filter or a handler of the server's own
            logger.warning("eagle-parity: %s", line)


def text_of(error: BaseException | str, length: int) -> str:
    """An error as it is told: its class and what it says, if it can say it."""
    if isinstance(error, str):
        return error[:length]
    try:
        return f"{type(error).__name__}: {error}"[:length]
    except Exception:  # noqa: BLE001  any class of any library
        return type(error).__name__[:length]
