"""A capture's manifest: who recorded which sequences of which model, and what its slots are."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from eagle_parity import __version__
from eagle_parity.capture.format import KIND, MAX_HIDDEN_SIZE, MAX_SEQUENCE_TOKENS, SCHEMA_VERSION, Name
from eagle_parity.capture.live_recording import LiveRecording
from eagle_parity.wiring import MAX_BOUNDARIES, BoundaryEntry, Wiring

MAX_MODES = 16
"""Engines have about ten kinds of forwards; what a spool's files claim beyond that is left out."""


class Producer(msgspec.Struct, frozen=True, kw_only=True):
    """Who recorded the capture, and how.

    Attributes:
        engine: what ran the forward, with its version: ``transformers@5.19.0``.
        dtype: of the computation; the stored dtype is the manifest's.
        name: the program that wrote the files.
        version: of that program.
        options: what else the numbers depend on: attention implementation, device.
    """

    engine: Name
    dtype: Name
    name: Name = "eagle-parity"
    version: Name = __version__
    options: dict[Name, Name] = {}


class CapturedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The model whose states these are.

    Attributes:
        name: the last part of its path: a whole path would tell about the machine.
        architectures: as its config names them.
        num_layers: N, decoder layers.
        hidden_size: H.
    """

    name: Name
    architectures: list[Name]
    num_layers: Annotated[int, msgspec.Meta(ge=1, lt=MAX_BOUNDARIES)]
    hidden_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_HIDDEN_SIZE)]


class CapturedSequence(msgspec.Struct, frozen=True, kw_only=True):
    """One complete file.

    Attributes:
        name: where the tokens came from, unique within the capture.
        file: its name in the directory.
        tokens: T.
        first_position: of its first row in the sequence that was computed: above 0 behind a warm prefix, whose rows
            were in a cache and are not here, and of generated rows, behind their prompt.
        ranks: of a live capture, whose file this is, and then the other ranks that recorded the sequence whole.
        draft_input: of a live capture: whether what the head's ``fc`` got is the slots side by side, bit for bit;
            ``normed`` where the head normalises first and what it got can't be held against the slots.
        modes: of a live capture: the engine's words for the forwards that the main file's rows come from, in their
            order: ``EXTEND`` or ``MIXED`` (SGLang), ``runner v1`` (vLLM, whose forwards have no kinds).
        forwards: of a live capture: how many there were. More than one of a prompt means that the scheduler split it,
            or computed it again after it had preempted the request.
    """

    name: Name
    file: Annotated[str, msgspec.Meta(max_length=64)]
    tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQUENCE_TOKENS)]
    first_position: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE_TOKENS)] = 0
    ranks: list[Name] = []
    draft_input: Literal["equal", "differs", "normed", "absent"] | None = None
    modes: Annotated[list[Name], msgspec.Meta(max_length=MAX_MODES)] = []
    forwards: Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQUENCE_TOKENS)] | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``manifest.json``.

    Attributes:
        complete: False where the recording was interrupted; the listed files are whole either way.
        producer: who recorded it.
        target: of which model.
        slots: a boundary per slot, in concatenation order; null where it isn't known.
        last_state: the boundary of the last state; null where none is stored, or its boundary isn't known.
        dtype: of the stored states: ``bfloat16``, ``float16`` or ``float32``.
        sequences: the files, in the order in which they were recorded.
        live: of a running server's capture.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["eagle-parity-capture"] = KIND
    complete: bool
    producer: Producer
    target: CapturedTarget
    slots: Annotated[list[BoundaryEntry], msgspec.Meta(max_length=MAX_BOUNDARIES)]
    last_state: BoundaryEntry = None
    dtype: Literal["bfloat16", "float16", "float32"]
    sequences: list[CapturedSequence]
    live: LiveRecording | None = None

    @property
    def wiring(self) -> Wiring:
        """The slots and the last state as a wiring."""
        return Wiring(tuple(self.slots), self.last_state)

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(sequence.tokens for sequence in self.sequences)
