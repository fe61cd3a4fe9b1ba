"""Hidden states that never were a file: what the comparison takes, made from tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity.hidden_states import HiddenStates, LastStateRule, Layout, StateSequence, Unreadable
from eagle_parity.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from builders import Written

    from eagle_parity.wiring import BoundaryEntry


@dataclass(frozen=True)
class TensorRows:
    """A state ``[T, H]``."""

    tensor: torch.Tensor

    @property
    def tokens(self) -> int:
        return self.tensor.shape[0]

    @property
    def hidden_size(self) -> int:
        return self.tensor.shape[1]

    @property
    def dtype(self) -> str:
        return str(self.tensor.dtype).removeprefix("torch.")

    def read(self, start: int, stop: int) -> torch.Tensor:
        assert 0 <= start <= stop <= self.tokens
        return self.tensor[start:stop]


def in_memory(
    sequences: Sequence[Written],
    *,
    names: Sequence[str] | None = None,
    declared: Sequence[BoundaryEntry] | None = None,
    last_state: BoundaryEntry = None,
    undecided: bool = False,
    num_layers: int | None = None,
    without_ids: bool = False,
) -> HiddenStates:
    """The sequences as a side.

    Args:
        sequences: token ids, slots, and the last state where there is one.
        names: of the sequences; ``data_<i>.pt`` without.
        declared: what the files say that their slots are.
        last_state: what they say that the last state is.
        undecided: whether the files leave open what the final slot is.
        num_layers: of the target, where the files say that.
        without_ids: whether the files lack token ids.
    """
    names = [f"data_{i}.pt" for i in range(len(sequences))] if names is None else list(names)
    first = sequences[0]
    rule = LastStateRule.ABSENT if first.last_state is None else LastStateRule.STORED
    facts: dict[str, Any] = {} if num_layers is None else {"num_layers": num_layers}
    layout = Layout(
        format="memory",
        description="tensors",
        slots=len(first.slots),
        hidden_size=first.slots[0].shape[1],
        dtype=TensorRows(first.slots[0]).dtype,
        last_state=LastStateRule.UNDECIDED if undecided else rule,
        last_state_boundary=last_state,
        declared=None if declared is None else Wiring(tuple(declared), last_state),
        declared_by=None if declared is None else "the test",
        facts=facts,
    )
    opened = {
        name: StateSequence(
            name=name,
            token_ids=None if without_ids else sequence.token_ids,
            slots=tuple(TensorRows(slot) for slot in sequence.slots),
            last_state=None if sequence.last_state is None else TensorRows(sequence.last_state),
            loss_mask=sequence.loss_mask,
        )
        for name, sequence in zip(names, sequences, strict=True)
    }
    return HiddenStates(
        path=Path("memory"),
        layout=layout,
        names=names,
        opener=lambda name: opened.get(name) or Unreadable(name, "not here"),
    )
