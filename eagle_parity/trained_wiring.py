"""The wiring that a head was trained on, and how that is known."""

from __future__ import annotations

import msgspec

from eagle_parity.wiring import Wiring


class TrainedWiring(msgspec.Struct, frozen=True):
    """The wiring that a head was trained on, and how that is known.

    Attributes:
        wiring: slots and last state.
        source: in words, for messages and evidence.
        ids: the ids behind it, where there were any.
        key: where they stood; None for a trainer's default or a statement in boundaries.
        derived_from: the key of the draft's config by which it is found, whether or not a list stands there; None where
            the draft's config has no say in it.
    """

    wiring: Wiring
    source: str
    ids: tuple[int, ...] | None = None
    key: str | None = None
    derived_from: str | None = None
