"""What a file holds, from its header alone: the common ground of every container."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  a dataclass field
from dataclasses import dataclass, field
from typing import TypeAlias

from eagle_parity.readers.containers.stored_tensor import Source, StoredTensor  # noqa: TC001  dataclass fields

_KEYS_TOLD = 8
"""As many keys as one line bears."""

_NAME_TOLD = 60
"""A name in a message; whatever is longer was not written to be read."""

Constant: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class TensorTable:
    """The tensors of one file by name; no number of them has been read.

    Attributes:
        source: where their bytes are.
        container: ``safetensors``, ``torch``, or ``mooncake`` and ``torchspec`` for bare bytes with a manifest beside.
        tensors: by key.
        lists: lists of tensors by key; only torch files have any.
        others: keys whose value is neither.
        constants: those of them whose value is text, a number, a truth value or nothing.
        objects: those of them whose value is a list or dict, as a stranger wrote it: whoever uses one looks at what is
            in it, without going through all of it.
        records: where the file is a list of tables, these; it has no tensors of its own then.
        metadata: the strings of a safetensors header's ``__metadata__``.
    """

    source: Source
    container: str
    tensors: Mapping[str, StoredTensor]
    lists: Mapping[str, tuple[StoredTensor, ...]] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    constants: Mapping[str, Constant] = field(default_factory=dict)
    objects: Mapping[str, object] = field(default_factory=dict)
    records: tuple[TensorTable, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The keys with shapes and dtypes, as one line: ``input_ids [38] int64, hidden_states list of 4``."""
        if self.records:
            return f"list of {len(self.records):,}, the first with {self.records[0]}"
        words = [f"{shorten(key)} {tensor}" for key, tensor in self.tensors.items()]
        words += [f"{shorten(key)} list of {len(value)}" for key, value in self.lists.items()]
        words += [shorten(key) for key in self.others]
        more = f" and {len(words) - _KEYS_TOLD} more" if len(words) > _KEYS_TOLD else ""
        return ", ".join(words[:_KEYS_TOLD]) + more if words else "no tensors"


def shorten(name: str) -> str:
    """A name from a file, cut to what a message bears and without control characters."""
    text = name if len(name) <= _NAME_TOLD else name[:_NAME_TOLD] + "..."
    return text if text.isprintable() else ascii(text)[1:-1]
