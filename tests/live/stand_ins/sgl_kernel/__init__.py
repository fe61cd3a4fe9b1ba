"""In sgl_kernel's place, for a server: the CPU kernels that speculation with a chain of drafts needs, in torch.

There is no CPU build of sgl_kernel on the index. What is here computes what the kernels' callers in SGLang 0.5.23
expect of them (``layers/attention/intel_amx_backend.py``, ``kernels/ops/speculative``, ``kernels/ops/kvcache``), for
``--speculative-eagle-topk 1``: a chain, in which draft i follows draft i - 1. Everything else fails when it is called.

Shape letters: B requests, Q rows of a request in this forward, C its rows in the cache, D drafted tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable


def _refuse_unless(supported: bool, what: str) -> None:
    if not supported:
        raise NotImplementedError(f"the stand-in of sgl_kernel has no {what}")


# Attention -----------------------------------------------------------------------------------------------------------


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, scale: float, window: int, dtype: torch.dtype
) -> torch.Tensor:
    """Causal attention of the last Q of C positions: ``[Q, heads, v]``, computed in fp32.

    Args:
        query: ``[Q, heads, d]``.
        keys: ``[C, kv_heads, d]``.
        values: ``[C, kv_heads, v]``.
        scale: of the products.
        window: positions that a row sees, itself included; 0 for all.
        dtype: of the result.
    """
    rows, cached = query.shape[0], keys.shape[0]
    distance = torch.arange(cached - rows, cached)[:, None] - torch.arange(cached)[None, :]
    visible = distance >= 0
    if window > 0:
        visible &= distance < window
    query, keys, values = (tensor.transpose(0, 1)[None].float() for tensor in (query, keys, values))
    out = scaled_dot_product_attention(query, keys, values, attn_mask=visible, scale=scale, enable_gqa=True)
    return out[0].transpose(0, 1).to(dtype)


def extend_attention_cpu(
    query: torch.Tensor,
    _key: torch.Tensor | None,
    _value: torch.Tensor | None,
    out: torch.Tensor,
    key_buffer: torch.Tensor,
    value_buffer: torch.Tensor,
    _key_scale: float,
    _value_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_lens: torch.Tensor,
    extend_starts: torch.Tensor,
    _longest: int,
    scale: float,
    logit_cap: float,
    cross: bool,
    window: int,
    _encoder_lens: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    tree_mask: torch.Tensor | None = None,
    causal: bool = True,
) -> None:
    """Rows that come behind a cached prefix; the caller has put their keys and values into the cache."""
    _refuse_unless(causal and not cross, "cross-attention")
    _refuse_unless(not logit_cap and sinks is None and tree_mask is None, "logit cap, sinks or tree of drafts")
    for request, length in enumerate(extend_lens.tolist()):
        rows = slice(int(extend_starts[request]), int(extend_starts[request]) + length)
        where = req_to_token[int(req_pool_indices[request]), : int(seq_lens[request])].long()
        if length:
            out[rows] = _attend(
                query[rows], key_buffer[where], value_buffer[where], scale=scale, window=window, dtype=out.dtype
            )


def decode_attention_cpu(
    query: torch.Tensor,
    key_buffer: torch.Tensor,
    value_buffer: torch.Tensor,
    _key_scale: float,
    _value_scale: float,
    out: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    cache_loc: torch.Tensor,
    _attn_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    logit_cap: float,
    cross: bool,
    window: int,
    _encoder_lens: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """One row a request, whose key and value this kernel puts into the cache itself."""
    _refuse_unless(not cross and not logit_cap and sinks is None, "cross-attention, logit cap or sinks")
    for new, buffer in ((key, key_buffer), (value, value_buffer)):
        if new is not None:
            buffer[cache_loc] = new.view(-1, *buffer.shape[1:]).to(buffer.dtype)
    for request, length in enumerate(seq_lens.tolist()):
        where = req_to_token[int(req_pool_indices[request]), :length].long()
        row = slice(request, request + 1)
        out[row] = _attend(
            query[row], key_buffer[where], value_buffer[where], scale=scale, window=window, dtype=out.dtype
        )


# Places in the cache -------------------------------------------------------------------------------------------------


def _places(
    req_to_token: torch.Tensor, req_pool_indices: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor
) -> torch.Tensor:
    """The entries ``starts`` to ``stops`` of each request's row, one request after the other."""
    spans = zip(req_pool_indices.tolist(), starts.tolist(), stops.tolist(), strict=True)
    return torch.cat([req_to_token[row, start:stop] for row, start, stop in spans])


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    starts: torch.Tensor,
    stops: torch.Tensor,
    out: torch.Tensor,
    _pool_len: int,
) -> None:
    """Reads each request's places from ``starts`` to ``stops``."""
    places = _places(req_to_token, req_pool_indices, starts, stops)
    out[: len(places)] = places.to(out.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor,
    pool_len: int,
    topk: int,
    steps: int,
) -> None:
    """Reads the places of the drafts, which come behind each request."""
    assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, seq_lens, seq_lens + topk * steps, out, pool_len)


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    starts: torch.Tensor,
    stops: torch.Tensor,
    places: torch.Tensor,
    _pool_len: int,
) -> None:
    """Writes them."""
    taken = 0
    for row, start, stop in zip(req_pool_indices.tolist(), starts.tolist(), stops.tolist(), strict=True):
        req_to_token[row, start:stop] = places[taken : taken + stop - start].to(req_to_token.dtype)
        taken += stop - start


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    _seq_lens: torch.Tensor,
    topk: int,
    _steps: int,
    _pool_len: int,
) -> torch.Tensor:
    """Each request's row: a chain's drafts lie where the places behind it already point."""
    _refuse_unless(topk == 1, "tree of drafts")
    return req_to_token[req_pool_indices.long()].clone()


def copy_all_layer_kv_cache_cpu(
    _pointers: torch.Tensor, _strides: torch.Tensor, target: torch.Tensor, source: torch.Tensor
) -> None:
    """Moves accepted drafts together: those of a chain are together."""
    _refuse_unless(torch.equal(target, source), "tree of drafts")


# Verification --------------------------------------------------------------------------------------------------------


def build_tree_kernel_efficient_cpu(
    _parents: torch.Tensor,
    _selected: torch.Tensor,
    seq_lens: torch.Tensor,
    _tree_mask: torch.Tensor,
    positions: torch.Tensor,
    index: torch.Tensor,
    next_token: torch.Tensor,
    _next_sibling: torch.Tensor,
    topk: int,
    _depth: int,
    drafted: int,
    _mask_mode: int,
) -> None:
    """Links each draft to the next. The mask is left alone: the backend doesn't read it for a chain."""
    _refuse_unless(topk == 1, "tree of drafts")
    steps = torch.arange(drafted)
    requests = torch.arange(len(seq_lens))
    positions.view(-1, drafted)[:] = seq_lens[:, None] + steps
    index.view(-1, drafted)[:] = requests[:, None] * drafted + steps
    following = steps + 1
    following[-1] = -1
    next_token.view(-1, drafted)[:] = following


def verify_tree_greedy_cpu(
    *,
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,  # noqa: ARG001  the kernel's keyword
    retrive_next_sibling: torch.Tensor,  # noqa: ARG001  as above
    target_predict: torch.Tensor,
) -> None:
    """Accepts drafts as long as each is what the target says behind the one before."""
    requests, drafted = candidates.shape
    predicted = target_predict.reshape(requests, drafted)
    agrees = candidates[:, 1:] == predicted[:, :-1]
    accepted = agrees.int().cumprod(dim=1).sum(dim=1).clamp(max=accept_index.shape[1] - 1)
    for request, count in enumerate(accepted.tolist()):
        rows = retrive_index.view(requests, drafted)[request, : count + 1]
        accept_index[request, : count + 1] = rows.to(accept_index.dtype)
        predicts[rows.long()] = predicted[request, : count + 1].to(predicts.dtype)
    accept_token_num[:] = accepted.to(accept_token_num.dtype)


def fill_bonus_tokens_cpu(accepted: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, stride: int) -> None:
    """The last accepted token of each request."""
    last = torch.arange(len(lengths)) * stride + lengths.long() - 1
    out[:] = accepted.reshape(-1)[last].to(out.dtype)


def fill_accept_out_cache_loc_cpu(accept_index: torch.Tensor, places: torch.Tensor, out: torch.Tensor) -> None:
    """The places of the accepted tokens, side by side."""
    kept = accept_index[accept_index >= 0].long()
    out[: len(kept)] = places[kept].to(out.dtype)


# The rest ------------------------------------------------------------------------------------------------------------


def _absent(name: str) -> Callable[..., NoReturn]:
    if name.startswith("_"):
        raise AttributeError(name)

    def kernel(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU build, and no stand-in")

    return kernel


def __getattr__(name: str) -> Callable[..., NoReturn]:
    return _absent(name)


class _Operators:
    """``torch.ops.sgl_kernel``: SGLang asks it by hasattr which kernels there are, and does without the others."""

    decode_attention_cpu = staticmethod(decode_attention_cpu)
    extend_attention_cpu = staticmethod(extend_attention_cpu)
    # Taken at import, by models that are imported with all the others.
    fused_sigmoid_mul_cpu = staticmethod(_absent("fused_sigmoid_mul_cpu"))


# The namespace grows as kernels are registered, which no type says.
torch.ops.__dict__["sgl_kernel"] = _Operators()
