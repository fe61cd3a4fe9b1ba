"""What a forward of SGLang's is called with, and whose rows it computes.

What moved between releases is read in each of its ways (the rank's record has under ``variants`` which it was):

- token ids: a wrapper's language model is called without any (``managers/mm_utils.py``, ``input_ids=None``: Kimi's
  and other multimodal targets), then they are the forward batch's.
- lengths: under data-parallel attention a batch is padded with dummy requests behind its own (0.5.13 and newer,
  ``_pad_inputs_to_size``); ``rids`` isn't.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

KNOWN_RELEASES = "0.5.10 to 0.5.23"
PREFILL_MODES = frozenset({"EXTEND", "MIXED"})
"""``ForwardMode`` of a prompt's rows. What verification and decoding give belongs to drafts that may be rejected."""
_AUX, _FORWARD_BATCH, _HIDDEN, _INPUT_IDS = 4, 3, 1, 0
"""Positions of ``LogitsProcessor.forward``'s arguments (``layers/logits_processor.py``, 0.5.10 to 0.5.23)."""


class UnknownReleaseError(RuntimeError):
    """This release does something else than the releases that the hook was read from."""


class Forward:
    """The arguments of a logits processor's call.

    Args:
        args: as SGLang passes them, by position.
    """

    def __init__(self, args: tuple[Any, ...]) -> None:
        self._args = args
        self.batch: Any = args[_FORWARD_BATCH] if len(args) > _FORWARD_BATCH else None

    @property
    def request_ids(self) -> Sequence[object] | None:
        """Of the batch; None where it has none."""
        return getattr(self.batch, "rids", None)

    @property
    def hidden_states(self) -> torch.Tensor:
        """``[n, H]``, what the language model's head receives."""
        hidden: torch.Tensor = self._args[_HIDDEN]
        return hidden

    def aux(self) -> tuple[dict[str, torch.Tensor], str]:
        """The auxiliary states as a part names them, none where none are handed over; and in which way they came.

        Raises:
            UnknownReleaseError: they come in another way: its parts needn't be slots.
        """
        aux = self._args[_AUX] if len(self._args) > _AUX else None
        if aux is None:
            return {}, "none"
        if hasattr(aux, "shape"):
            return {"packed": aux}, "one packed tensor"
        if isinstance(aux, list | tuple) and all(hasattr(slot, "shape") for slot in aux):
            return {f"slot.{index}": slot for index, slot in enumerate(aux)}, "a list of states"
        raise UnknownReleaseError(
            f"the auxiliary states are a {type(aux).__name__}, neither a tensor nor a list of them; the hook knows"
            f" SGLang {KNOWN_RELEASES}"
        )

    @property
    def mode(self) -> str:
        """SGLang's name of the kind of forward."""
        mode = self.batch.forward_mode
        return str(getattr(mode, "name", mode))

    @property
    def lengths(self) -> Sequence[int] | None:
        """How many rows each request has, where they are a prompt's."""
        lengths: Sequence[int] | None = self._attribute("extend_seq_lens_cpu")
        return lengths

    @property
    def positions(self) -> torch.Tensor:
        """``[n]``, of each row within its request."""
        positions: torch.Tensor = self._attribute("positions")
        return positions

    def token_ids(self) -> tuple[torch.Tensor, str]:
        """The token ids ``[n]``, and where they were found."""
        if self._args[_INPUT_IDS] is not None:
            return self._args[_INPUT_IDS], "argument"
        return self._attribute("input_ids"), "forward_batch.input_ids"

    def _attribute(self, name: str) -> Any:
        if not hasattr(self.batch, name):
            raise UnknownReleaseError(
                f"{type(self.batch).__name__} has no {name}; the hook knows SGLang {KNOWN_RELEASES}"
            )
        return getattr(self.batch, name)


def spans_of(lengths: Sequence[int], requests: int) -> list[slice]:
    """The rows of each request.

    Args:
        lengths: of the requests, and of dummies behind them perhaps.
        requests: how many there are.

    Raises:
        UnknownReleaseError: there are fewer lengths.
    """
    if len(lengths) < requests:
        raise UnknownReleaseError(f"{len(lengths)} lengths of {requests} requests")
    ends = list(itertools.accumulate(int(length) for length in lengths[:requests]))
    return [slice(start, end) for start, end in itertools.pairwise([0, *ends])]
