"""A rank's sequence with its states read, for tests that look at both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.capture.assembly import Incomplete, LocatedRank

if TYPE_CHECKING:
    import torch

    from eagle_parity.capture.assembly import DraftInputState


class ReadRank:
    """What was located, or the failure of the test that there is nothing."""

    def __init__(self, located: LocatedRank | Incomplete) -> None:
        assert isinstance(located, LocatedRank), located
        states = located.read()
        self.located = located
        self.token_ids, self.sampled_ids = located.token_ids, located.sampled_ids
        self.modes, self.forwards = located.modes, located.forwards
        self.slots, self.states, self.beside = states.slots, states.states, states.beside
        self.last_state: torch.Tensor | None = states.last_state

    def draft_input_state(self, *, normed: bool = False) -> DraftInputState:
        return self.located.draft_input_state(self.slots, normed=normed)
