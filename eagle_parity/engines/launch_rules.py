"""How an engine is started so that it hands over hidden states: the words for that."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from eagle_parity.engines.class_rules import readable_ids

if TYPE_CHECKING:
    from collections.abc import Container


class Way(StrEnum):
    """What gives a target without a draft its list."""

    OPTION = "an option of the launch"
    PLUGIN = "a plugin, through the target class's own setter"
    METHOD = "a speculative method"


class ExtractionRule(msgspec.Struct, frozen=True):
    """What makes a target without a draft hand over states, in a range of versions.

    Attributes:
        way: what gives it the list.
        layers_only: whether it takes the ids 0 to N-1 alone; else any that a setter reads.
        first, last: versions, inclusive.
        source: where it was read.
    """

    way: Way
    layers_only: bool
    first: str
    last: str
    source: str

    def accepted(self, num_layers: int) -> Container[int]:
        """The ids that may stand in the list."""
        return range(num_layers) if self.layers_only else readable_ids(num_layers)
