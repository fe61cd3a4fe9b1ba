"""transformers: no engine that serves an EAGLE-3 head, but the reference; what an index of its hidden states means."""

from __future__ import annotations

import msgspec


class Reference(msgspec.Struct, frozen=True):
    """A library whose hidden states are what others are compared with.

    Attributes:
        name: ``transformers``.
        title: for messages.
        versions: every release that was read.
        index: what an index means.
        last: what the last index means, which is another thing.
        source: where it was read.
        refusal: why it can't be named as an engine, and what to do.
    """

    name: str
    title: str
    versions: tuple[str, ...]
    index: str
    last: str
    source: str
    refusal: str


TRANSFORMERS = Reference(
    name="transformers",
    title="transformers",
    versions=("5.19.0",),
    index="hidden_states[k] of output_hidden_states is boundary k for k below the number of layers",
    last="hidden_states[N], with N layers, is post_norm: it is overwritten by last_hidden_state, so boundary N is not"
    " in the tuple (classes with tie_last_hidden_states off keep it)",
    source="utils/output_capturing.py:112-124, 293-303 (5.19.0)",
    refusal="transformers runs no EAGLE-3 head, so there is nothing to judge; it is what a reference capture uses"
    " (`eagle-parity capture transformers`). Its hidden_states[k] is boundary k below the number of layers, the last"
    " one is post_norm",
)
