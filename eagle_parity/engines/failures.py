"""Why and when an engine doesn't serve."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Failure(msgspec.Struct, frozen=True):
    """Why an engine doesn't serve.

    Attributes:
        kind: what it stumbles over.
        at_load: whether while it starts; else in the first forward pass of a request.
        words: the failure, with the error that the engine prints.
        remark: what else its time depends on.
    """

    kind: FailureKind
    at_load: bool
    words: str
    remark: str = ""


class FailureKind(StrEnum):
    """What an engine stumbles over."""

    NO_SETTER = "no-setter"
    MALFORMED = "malformed-ids"
    OUT_OF_RANGE = "out-of-range"
    EMBEDDING = "embedding"
    MISSING_STATE = "missing-state"
    WIDTH = "fc-width"
    DRAFT = "draft"
    VOCAB_MAP = "vocab-map"
    CAPTURE = "capture"


class Timing(msgspec.Struct, frozen=True):
    """Which failures an engine meets while it starts, and which only at the first request.

    Attributes:
        embedding: the forward's TypeError at index 0.
        nothing: no state at all was delivered.
        shortfall: fewer states than fc takes.
        first, last: versions, inclusive.
        remark: what else the time depends on.
        runner: the value of ``Engine.runner_option`` for which it holds; "" for every one.
    """

    embedding: bool
    nothing: bool
    shortfall: bool
    first: str
    last: str
    remark: str = ""
    runner: str = ""
