"""One state against its candidates, as plain numbers."""

from __future__ import annotations

import math

import msgspec

from eagle_parity.wiring import BoundaryEntry

EMBEDDING_ROWS = "the target's embedding rows"
LAST_STATE = "the trained last state"
LARGEST = 1e300
"""Stands for an infinite error, the error against a row of zeros: JSON has no infinity."""


def json_number(value: float) -> float:
    """A number that JSON can hold."""
    return value if math.isfinite(value) else LARGEST


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One state that a slot was compared with.

    Attributes:
        label: its identity: ``boundary 3``, ``trained slot 1``, ``the trained last state``.
        boundary: where it is a boundary.
        trained_slot: where it is a slot of the trained side.
        distance: median over tokens of the relative error; sinks and non-finite rows left out.
        rows: on how many rows it was measured; None for a candidate that wasn't.
    """

    label: str
    distance: float
    boundary: BoundaryEntry = None
    trained_slot: int | None = None
    rows: int | None = None


class RepeatedTokens(msgspec.Struct, frozen=True, kw_only=True):
    """How much rows of one token differ between its places in a sequence: nothing at all for the embedding.

    Attributes:
        pairs: number of row pairs.
        distance: the 90th percentile of their relative error.
        contrast: the median relative error between rows of different tokens: zero for a dead state, which repeats
            itself just as well; None where all tokens are one.
    """

    pairs: int
    distance: float
    contrast: float | None = None


class StateMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """One state of one side against its candidates.

    Attributes:
        rows: rows that were compared.
        non_finite_rows: rows with a NaN or an infinity; they are in no other number.
        dtype: as stored.
        candidates: nearest first.
        repeated_tokens: the test for the embedding; None without repetitions.
        median_norm: of its rows; None where no row was a number.
    """

    rows: int
    non_finite_rows: int
    dtype: str
    candidates: list[Candidate]
    median_norm: float | None
    repeated_tokens: RepeatedTokens | None = None
