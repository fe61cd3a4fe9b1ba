"""What can be wrong with a file or a sequence of a set."""

from __future__ import annotations

UNREADABLE, ROW_COUNT, NON_FINITE, EMPTY_MASK = "unreadable", "row-count", "non-finite", "empty-mask"
