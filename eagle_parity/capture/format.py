"""The capture format: a directory with one safetensors file a sequence and a ``manifest.json``.

The manifest is written last and atomically, and names every file that is complete: a directory without one is no
capture (yet), one whose ``complete`` is false was interrupted, and what it lists can be read. Each sequence's file
appears under its name only when it is whole. Files are made with mode 0600: the states and the token ids are enough to
read the prompts back.

Tensors of one file, for T tokens, hidden size H and K slots:

=================  ==========  =================================================
``token_ids``      int64       ``[T]``
``slot.0`` ...     ``dtype``   ``[T, H]`` each, in concatenation order, K of them
``last_state``     ``dtype``   ``[T, H]``, where the manifest has a last state
``loss_mask``      int64       ``[T]``, optional
``draft_input``    ``dtype``   ``[T, K * H]``, just where it isn't the slots side by side, bit for bit
``sampled_ids``    int64       ``[T]``, of generated rows: the token that this rank chose behind each
=================  ==========  =================================================

A capture of a running server has one more section in its manifest, ``live``, and what the other ranks computed in
``ranks/<rank>/`` under the same file names, each with ``token_ids`` and ``slot.*``. What was recorded under other
conditions (in a batch, in chunks, behind a warm prefix) is a capture of its own in ``conditions/<condition>/``. So is
what was generated behind the prompts, ``conditions/generate/``: there each rank's file has the rank's own token ids and
as many rows as this rank accepted in one run.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

import msgspec

SCHEMA_VERSION: Literal[1] = 1
KIND: Literal["eagle-parity-capture"] = "eagle-parity-capture"
MANIFEST_NAME = "manifest.json"

TOKEN_IDS = "token_ids"  # noqa: S105  a tensor's name
LAST_STATE = "last_state"
LOSS_MASK = "loss_mask"
SAMPLED_IDS = "sampled_ids"
DRAFT_INPUT = "draft_input"

RANKS_FOLDER = "ranks"
CONDITIONS_FOLDER = "conditions"
GENERATE: Literal["generate"] = "generate"
"""The condition whose rows are those of generated tokens."""

MAX_SEQUENCE_TOKENS = 2**24
"""Far above any context window; a file that claims more is refused before anything is allocated."""
MAX_HIDDEN_SIZE = 2**20
"""Far above any model; bounds what a hostile manifest can make a reader allocate for one row."""

FILE_NAME = re.compile(r"sequence_\d{6,9}\.safetensors")

_NAME_CHARS, _TEXT_CHARS = 1024, 8192
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=_NAME_CHARS)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=_TEXT_CHARS)]
"""What a manifest may call something, and what it may say of it."""


def name_of(value: object) -> str:
    """What a manifest can hold of what a server or a file calls something."""
    return encodable(str(value)[:_NAME_CHARS])


def text_of(value: object) -> str:
    """What a manifest can hold of what a server or a file says."""
    return encodable(str(value)[:_TEXT_CHARS])


def encodable(text: str) -> str:
    """A text without lone surrogates: names of files and JSON's escapes have them, UTF-8 hasn't."""
    return text.encode("utf-8", "replace").decode()


def slot_key(slot: int) -> str:
    """The name of a slot's tensor: ``slot.0``."""
    return f"slot.{slot}"
