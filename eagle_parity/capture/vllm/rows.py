"""Which rows of a forward are prompt rows of which request, and which are rows of generated tokens and drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from eagle_parity.capture.spool.request_ids import Mark


class States(NamedTuple):
    """What a forward computed: the auxiliary states, the last one, and the runner's name."""

    aux: Sequence[torch.Tensor]
    last_state: torch.Tensor
    mode: str


class Rows:
    """Which rows of a forward are prompt rows of which request, and which are rows of generated tokens and drafts."""

    def __init__(
        self,
        marks: Sequence[Mark | None],
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        spans: Sequence[slice],
        generated: Sequence[slice],
    ) -> None:
        self.marks = marks
        self.token_ids = token_ids
        self.positions = positions
        self.spans = spans
        self.generated = generated

    def with_own_ids(self) -> Rows:
        """The same with ids and positions in memory of their own: the draft may write over the engine's."""
        return Rows(self.marks, self.token_ids.clone(), self.positions.clone(), self.spans, self.generated)

    def tensors(self, states: States) -> dict[str, torch.Tensor]:
        """As a part holds them, of the whole batch."""
        slots = {f"slot.{index}": state for index, state in enumerate(states.aux)}
        return {
            "token_ids": self.token_ids,
            "positions": self.positions,
            **slots,
            "last_state": states.last_state,
        }


def prompt_rows(
    marks: Sequence[Mark | None],
    token_ids: torch.Tensor,
    positions: torch.Tensor,
    starts: Sequence[int],
    prompts: Sequence[int],
) -> Rows:
    """The prompt rows of a batch: what comes behind them are generated and drafted tokens, and padding."""
    if positions.ndim > 1:
        positions = positions[0]  # three rows of positions for images; one for text, thrice
    spans, generated = [], []
    for index, mark in enumerate(marks):
        start, stop = starts[index], starts[index + 1]
        if mark is not None and stop > start:
            count = max(0, min(stop - start, prompts[index] - int(positions[start])))
            generated.append(slice(start + count, stop))
            stop = start + count
        else:
            generated.append(slice(stop, stop))
        spans.append(slice(start, stop))
    return Rows(marks, token_ids, positions, spans, generated)
