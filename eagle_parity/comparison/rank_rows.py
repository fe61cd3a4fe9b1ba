"""States of several ranks as one: summed, side by side, or one behind the other, as they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from eagle_parity.hidden_states import Rows


@dataclass(frozen=True, slots=True)
class _Combined:
    """What the combinations have in common."""

    parts: tuple[Rows, ...]

    @property
    def tokens(self) -> int:
        """T."""
        return min(part.tokens for part in self.parts)

    @property
    def hidden_size(self) -> int:
        """H."""
        return self.parts[0].hidden_size

    @property
    def dtype(self) -> str:
        """Of the parts."""
        return self.parts[0].dtype


@dataclass(frozen=True, slots=True)
class SummedRows(_Combined):
    """The sum of several states of one shape."""

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Rows of the combination, ``[stop - start, H]``, in float32."""
        total_TD = self.parts[0].read(start, stop).float()
        for part in self.parts[1:]:
            total_TD = total_TD + part.read(start, stop).float()
        return total_TD


@dataclass(frozen=True, slots=True)
class JoinedColumns(_Combined):
    """States side by side."""

    @property
    def hidden_size(self) -> int:
        """H."""
        return sum(part.hidden_size for part in self.parts)

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Rows of the combination, ``[stop - start, H]``."""
        return torch.cat([part.read(start, stop) for part in self.parts], dim=1)


@dataclass(frozen=True, slots=True)
class JoinedRows(_Combined):
    """States one behind the other, cut to the sequence's tokens: the last rank's share may be padded."""

    length: int

    @property
    def tokens(self) -> int:
        """T."""
        return min(self.length, sum(part.tokens for part in self.parts))

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Rows of the combination, ``[stop - start, H]``."""
        read = []
        begins = 0
        for part in self.parts:
            low, high = max(start - begins, 0), min(stop - begins, part.tokens)
            if low < high:
                read.append(part.read(low, high))
            begins += part.tokens
        return torch.cat(read) if read else self.parts[0].read(0, 0)
