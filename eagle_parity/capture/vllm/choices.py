"""What verification made of a forward's rows: V1 and V2 runners keep it in ways of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eagle_parity.capture.vllm.releases import unknown_release

if TYPE_CHECKING:
    import torch

NOT_CHOSEN = -1
"""Stands where no token does."""


class Choice(NamedTuple):
    """What verification made of a request's rows: how many at the end it rejected, and the token behind the others."""

    rejected: int
    last: int


def v1_choices(sampled_token_ids: Any, metadata: Any) -> tuple[list[Choice], str]:
    """Of each request: V1 has the tokens that it sampled, which are the accepted drafts and one more.

    Args:
        sampled_token_ids: ``[requests, drafts + 1]`` with -1 behind the sampled ones (``PLACEHOLDER_TOKEN_ID`` of
            ``v1/sample/rejection_sampler.py``), or a list of lists without them.
        metadata: with the drafts of each request; None where none has any.

    Returns:
        One a request, and the way in which they came.

    Raises:
        CaptureError: the tokens come in another way.
    """
    is_list = isinstance(sampled_token_ids, list)
    if not is_list and not hasattr(sampled_token_ids, "tolist"):
        raise unknown_release(f"sampled_token_ids is a {type(sampled_token_ids).__name__}, neither lists nor a tensor")
    lists = sampled_token_ids if is_list else sampled_token_ids.tolist()
    drafts = [0] * len(lists) if metadata is None else [int(count) for count in metadata.num_draft_tokens]
    choices = []
    for drafted, listed in zip(drafts, lists, strict=True):
        sampled = [token for token in listed if token >= 0]
        choices.append(Choice(drafted + 1 - len(sampled), sampled[-1] if sampled else NOT_CHOSEN))
    return choices, "sampled_token_ids, lists" if is_list else "sampled_token_ids, a tensor"


def v2_choices(num_rejected: torch.Tensor, last_sampled: torch.Tensor, batch: Any) -> tuple[list[Choice], str]:
    """Of each request: V2 counts what it rejected, ``[requests]``, and keeps the last token by the request's index."""
    count = batch.num_reqs
    last = last_sampled.flatten()[batch.idx_mapping[:count].long()]
    pairs = zip(num_rejected[:count].tolist(), last.tolist(), strict=True)
    return [Choice(int(rejected), int(token)) for rejected, token in pairs], "num_rejected, last_sampled"
