"""The command line: one thin file a subcommand, over a library that does the work.

``COMMANDS`` lists them in the order of ``--help``: adding one is one file and one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS: dict[str, Callable[..., object]] = {}
