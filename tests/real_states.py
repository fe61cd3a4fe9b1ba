"""Every boundary of a real model over a few real texts, computed once a session, and ways to spoil them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from builders import Written
from states_in_memory import in_memory
from torch import nn

from eagle_parity.capture.transformers import ReferenceForward
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.wiring import Boundary

LAYERS = 30
TRAINED = (3, 16, 28)
"""What the head of the founding story's small twin was trained on."""

TEXTS = (
    """Explain to a new colleague why the deployment failed last night and what we will change in the pipeline, in the
alerts and in the way we talk to each other when the pager rings at three in the morning.""",
    """def merge(left, right):
    result = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            result.append(left[i])
            i += 1
        else:
            result.append(right[j])
            j += 1
    return result + left[i:] + right[j:]
""",
    """The ferry to the island leaves twice a day, at half past seven and at noon. In winter it does not run when the
wind comes from the north, so take the earlier one and bring bread, batteries and a book.""",
    """A train leaves Oslo at 08:15 and covers 460 km in six hours and thirty minutes. A second one leaves Bergen at
09:05 and is 12 km/h faster. Where do they meet, and at what time? Show each step of the calculation.""",
)

States = dict[str, list[dict["Boundary", torch.Tensor]]]


@dataclass(frozen=True)
class RealStates:
    """Boundaries 0 to 30 and post_norm of every text: ``states[kind][text][boundary]`` is float ``[T, 576]``.

    ``float32`` is the reference, ``bfloat16`` a forward in it, ``int8`` a float32 one with each row of each Linear's
    weight rounded to 127 levels either way.
    """

    target: Path
    token_ids: list[torch.Tensor]
    states: States

    @cached_property
    def reference(self) -> HiddenStates:
        boundaries = [*range(LAYERS + 1)]
        sequences = [
            Written(ids, [states[b] for b in boundaries], last_state=states[POST_NORM])
            for ids, states in zip(self.token_ids, self.states["float32"], strict=True)
        ]
        return in_memory(sequences, declared=boundaries, last_state=POST_NORM, num_layers=LAYERS)

    def side(
        self,
        wiring: Sequence[Boundary] = TRAINED,
        *,
        kind: str = "float32",
        last_state: Boundary | None = None,
        spoil: Callable[[list[torch.Tensor], int], Sequence[torch.Tensor]] | None = None,
        declared: Sequence[Boundary] | None = None,
        texts: Sequence[int] | None = None,
        rows: int | None = None,
    ) -> HiddenStates:
        """One side: some boundaries of one forward, spoilt as a test wants them."""
        sequences = []
        for text in range(len(self.token_ids)) if texts is None else texts:
            states = self.states[kind][text]
            slots: list[torch.Tensor] = [states[b][:rows].clone() for b in wiring]
            sequences.append(
                Written(
                    self.token_ids[text][:rows],
                    slots if spoil is None else list(spoil(slots, text)),
                    last_state=None if last_state is None else states[last_state][:rows],
                )
            )
        return in_memory(sequences, declared=declared, last_state=last_state)


def record(target: Path) -> RealStates:
    """Runs the three forwards."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(target)
    token_ids = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)["input_ids"]
        for text in TEXTS
    ]
    wanted = [*range(LAYERS + 1), POST_NORM]
    states: States = {}
    for kind in ("float32", "bfloat16", "int8"):
        forward = ReferenceForward(target, dtype="bfloat16" if kind == "bfloat16" else "float32", device="cpu")
        if kind == "int8":
            _round_weights(forward.model)
        states[kind] = [dict(forward.states(ids, wanted)) for ids in token_ids]
    return RealStates(target, [torch.tensor(ids) for ids in token_ids], states)


def _round_weights(model: nn.Module) -> None:
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and "lm_head" not in name:  # the head's weight is the embedding's
                scale = module.weight.abs().amax(1, keepdim=True) / 127
                module.weight.copy_((module.weight / scale).round() * scale)
