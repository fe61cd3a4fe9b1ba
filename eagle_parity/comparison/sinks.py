"""Which tokens of a pair of sequences are sinks.

A sink stands out from the median of its sequence's first rows. While a long sequence is compared block by block, what
stands out is set aside, and looked at once at the end: only then is it known which rows are the greatest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eagle_parity.numerics.rows import row_norms
from eagle_parity.numerics.sinks import find_sinks

if TYPE_CHECKING:
    from eagle_parity.comparison.alignment import AlignedPair


def pair_sinks(pair: AlignedPair) -> torch.Tensor:
    """The sink tokens of a pair, bool ``[length]``: a sink in any slot of either side is one in all."""
    return find_sinks(torch.cat([_norms(pair, low, high) for low, high in pair.blocks()], dim=1))


def _norms(pair: AlignedPair, low: int, high: int) -> torch.Tensor:
    return torch.stack([row_norms(state.read(low, high)) for state in (*pair.trained, *pair.live)])
