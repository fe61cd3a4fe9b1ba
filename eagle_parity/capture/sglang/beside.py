"""The first and the last boundary, which few classes' lists of auxiliary states reach.

They are recorded beside the list where ``beside`` asks for them: the first layer's *input*, which is complete on every
rank, and the residual that the final norm returns with its output, which is complete where that is
(``norm(hidden_states, residual)``, every class with a residual of its own from 0.5.10 to 0.5.23).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.spool.files import BOUNDARY_KEY
from eagle_parity.capture.spool.request_ids import has_ours

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import nn


class Beside:
    """The first and the last boundary, where they are recorded beside the list of auxiliary states.

    Args:
        wanted: boundary 0, boundary N, both or none.
    """

    def __init__(self, wanted: Sequence[int]) -> None:
        self.wanted = frozenset(int(boundary) for boundary in wanted)
        self.states: dict[str, torch.Tensor] = {}
        self._watched = False
        self._ended = False

    @property
    def told(self) -> str:
        """For the tap of the record."""
        places = {0: "boundary 0 from the first layer's input"}
        return "".join(f", {places.get(b, f'boundary {b} from the final norm')}" for b in sorted(self.wanted))

    def watch(self, inner: Any) -> None:
        """Hooks the first layer's input, once. Until a forward is through, the layers are not known."""
        if self._watched or 0 not in self.wanted:
            return
        self._watched = True
        parameters = inspect.signature(inner.layers[0].forward)

        def before_first_layer(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._ended:
                return
            try:
                given = parameters.bind_partial(*args, **kwargs).arguments
                if has_ours(getattr(given.get("forward_batch"), "rids", None)):
                    # The layer's norms write into this very tensor.
                    self.states[f"{BOUNDARY_KEY}0"] = given["hidden_states"].detach().clone()
            except Exception:  # noqa: BLE001  nothing may reach the engine; what is missing is told with the forward
                self.states.pop(f"{BOUNDARY_KEY}0", None)

        inner.layers[0].register_forward_pre_hook(before_first_layer, with_kwargs=True)

    def let_go(self) -> None:
        """Of what this forward gave."""
        self.states = {}

    def end(self) -> None:
        """Keeps nothing from now on."""
        self._ended = True
        self.let_go()

    def on_final_norm(self, output: object) -> None:
        """Keeps the residual, unless the norm was given none: then nothing says that its input was the whole stream."""
        last = max(self.wanted, default=0)
        if last and not self._ended and isinstance(output, tuple) and len(output) == 2:  # noqa: PLR2004  normed state, residual
            self.states[f"{BOUNDARY_KEY}{last}"] = output[1]

    def take(self, inner: Any) -> dict[str, torch.Tensor] | str:
        """What this forward gave, by the tensors' names; or why not all of it is there."""
        states, self.states = self.states, {}
        if not self.wanted:
            return {}
        if not self.wanted <= {0, len(inner.layers)}:
            return f"the target has {len(inner.layers)} layers, and {sorted(self.wanted)} are to be recorded beside"
        missing = sorted(b for b in self.wanted if f"{BOUNDARY_KEY}{b}" not in states)
        if missing:
            return (
                f"boundary {missing[0]} was not seen in this forward: it was the first one of this server, so capture"
                " once more, or this class passes it on in another way, so leave it out of --boundaries"
            )
        return states
