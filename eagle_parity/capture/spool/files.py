"""What a spool's files are called and what they hold.

A part file holds the rows of one forward, n of them, of several requests perhaps:

=================  ===========  =====================================================================
``token_ids``      int64        ``[n]``
``positions``      int64        ``[n]``, of each row within its request
``sampled_ids``    int64        ``[n]``, the token that this rank chose behind each row; kind ``generated``
``request``        int64        ``[n]``, index into ``requests`` of the header
``slot.0`` ...     as computed  ``[n, H]`` each, in the order in which the engine concatenates them
``packed``         as computed  ``[n, K * H]`` instead, where the engine never has them apart
``boundary.0``     as computed  ``[n, H]``, a boundary that was recorded beside the list, which doesn't reach it
``last_state``     as computed  ``[n, H]``, what the language model's head receives
``draft_input``    as computed  ``[n, K * H]``, what the draft's ``fc`` receives; kind ``draft``, no slots
=================  ===========  =====================================================================

There are three kinds: ``aux``, the prompts' rows; ``draft``, of the same rows what the head got; ``generated``, rows of
generated tokens that this rank accepted, with the same states as ``aux``, where a capture asks for them.

The header (safetensors metadata) has ``requests``, a JSON list of request numbers, ``mode``, the engine's word for the
kind of forward, and ``forward``, a number that grows.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SPOOL_VERSION = 1
"""Of the layout; hook and client refuse each other's when it differs."""

TOKEN_FILE = "token"  # noqa: S105  a file's name
PART_NAME = re.compile(r"(?P<rank>[a-z0-9.]{1,40})-(?P<part>[0-9]{6,})-(?P<kind>aux|draft|generated)\.safetensors")
TEMPORARY_NAME = re.compile(r"\.part-[^/]{1,40}")
"""Of a file that isn't whole: a killed worker leaves it."""
RECORD_NAME = re.compile(r"(?P<rank>[a-z0-9.]{1,40})\.json")

COUNTED_KINDS = frozenset({"aux", "generated"})
"""Of parts whose rows count against the limit; those of ``draft`` are the same rows again."""
PER_TOKEN = frozenset({"token_ids", "positions", "sampled_ids"})
"""A part's tensors that are no states."""
BOUNDARY_KEY = "boundary."
"""Of a part's tensors that are no slots: ``boundary.0``."""


def part_name(rank: str, part: int, kind: str) -> str:
    """The name of a rank's part file, by its number and kind."""
    return f"{rank}-{part:06d}-{kind}.safetensors"


def record_name(rank: str) -> str:
    """The name of a rank's record."""
    return f"{rank}.json"


def is_spooled_name(name: object, rank: str) -> bool:
    """Whether a session's folder may have a file of a rank by this name: a plain one of the spool's own making."""
    if not isinstance(name, str):
        return False
    match = PART_NAME.fullmatch(name) or RECORD_NAME.fullmatch(name)
    return match is not None and match["rank"] == rank


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file, 0600, that takes the name when it is whole: a killed server leaves no half file of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
