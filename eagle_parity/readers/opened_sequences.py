"""Sequences that were opened before: a comparison looks at each twice, once to pair them and once to read them.

A file is the one that it was as long as its stamp is: an entry that was written again is looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from eagle_parity.hidden_states import StateSequence
    from eagle_parity.open_files import Stamp

MOST_BYTES = 32 * 1024 * 1024
"""Of a side: some thousand sequences."""
_SEQUENCE_BYTES, _SLOT_BYTES = 1024, 320
"""Of Python's objects, beside token ids and masks."""


class _Opened(NamedTuple):
    """A sequence, its file's stamp, and about how many bytes it takes."""

    stamp: Stamp
    sequence: StateSequence
    size: int


class OpenedSequences:
    """The first ones, by name: of files that are read in their order over and over the last ones are of no use."""

    def __init__(self) -> None:
        self._sequences: dict[str, _Opened] = {}
        self._bytes = 0

    def find(self, name: str, stamp: Stamp) -> StateSequence | None:
        """A sequence, if its file is as it was."""
        known = self._sequences.get(name)
        return known.sequence if known is not None and known.stamp == stamp else None

    def keep(self, sequence: StateSequence, stamp: Stamp) -> None:
        """Keeps a sequence while there is room.

        Args:
            sequence: as it was opened.
            stamp: its file's, from before that.
        """
        size = _SEQUENCE_BYTES + _SLOT_BYTES * len(sequence.slots)
        size += sum(each.nbytes for each in (sequence.token_ids, sequence.loss_mask) if each is not None)
        before = self._sequences.get(sequence.name)
        others = self._bytes - (0 if before is None else before.size)
        if others + size <= MOST_BYTES:
            self._bytes = others + size
            self._sequences[sequence.name] = _Opened(stamp, sequence, size)
