"""What can be wrong with a file or a sequence of a set."""

from __future__ import annotations

UNREADABLE, ROW_COUNT, NON_FINITE, EMPTY_MASK = "unreadable", "row-count", "non-finite", "empty-mask"
DEAD = "dead"
"""A slot or the last state is zero throughout a sequence."""
NO_MASK = "no-mask"
"""A mask is kept beside the file, and this one's can't be had: nothing is wrong, and nothing was looked at."""
