"""What a run of the benchmarks is made with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SHARDS_A_GIB = 43
"""Shards of 2,048 tokens in 4 states of 1,536 dimensions, bfloat16: 25.2 MB each."""


@dataclass(frozen=True)
class Settings:
    """Attributes.

    Attributes:
        cache: where generated data and the peers' environment are kept.
        gib: of data a side, for ``pairs`` and ``peers``.
        rounds: of what takes seconds; what takes minutes is run less often, and says so.
        full: everything, hours if need be.
    """

    cache: Path
    gib: float = 1.0
    rounds: int = 3
    full: bool = False

    @property
    def shards(self) -> int:
        """How many there are a side, for ``gib``."""
        return max(1, round(self.gib * SHARDS_A_GIB))
