"""Which stage of a run failed first, and with what."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LONGEST = 160
"""Of a message; what an engine prints after that is about its configuration."""


class Stages:
    """The first error of a run: stage, type, and the start of the message's first line."""

    def __init__(self) -> None:
        self.error: dict[str, str] | None = None

    @contextmanager
    def at(self, stage: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever the engine raises is what is recorded
            # A recording is the same wherever its environment stands.
            lines = str(error).replace(f"{sys.prefix}/", "").strip().splitlines() or [""]
            self.error = {"stage": stage, "type": type(error).__name__, "message": lines[0][:_LONGEST]}


def refuses(cases: Sequence[dict[str, Any]]) -> bool:
    """Whether a class has no setter: it fails at the default already, and would with every list."""
    return all(case["ids"] is None and case["error"] and case["error"]["stage"] == "set" for case in cases)
