"""Sequences that were opened before: a comparison looks at each twice, once to pair them and once to read them.

A file is the one that it was as long as its stamp is: an entry that was written again is looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eagle_parity.hidden_states import StateSequence
    from eagle_parity.open_files import Stamp

MOST_BYTES = 32 * 1024 * 1024
_SEQUENCE_BYTES, _SLOT_BYTES = 1024, 320
"""Of Python's objects, beside token ids and masks."""


class OpenedSequences:
    """The first ones, by name: of files that are read in their order over and over the last ones are of no use."""

    def __init__(self) -> None:
        self._sequences: dict[str, tuple[Stamp, StateSequence]] = {}
        self._bytes = 0

    def find(self, name: str, stamp: Stamp) -> StateSequence | None:
        """A sequence, if its file is as it was."""
        known = self._sequences.get(name)
        return known[1] if known is not None and known[0] == stamp else None

    def keep(self, sequence: StateSequence, stamp: Stamp) -> None:
        """Keeps a sequence while there is room.

        Args:
            sequence: as it was opened.
            stamp: its file's, from before that.
        """
        size = _SEQUENCE_BYTES + _SLOT_BYTES * len(sequence.slots)
        size += sum(each.nbytes for each in (sequence.token_ids, sequence.loss_mask) if each is not None)
        if sequence.name in self._sequences:
            self._sequences[sequence.name] = stamp, sequence
        elif self._bytes + size <= MOST_BYTES:
            self._sequences[sequence.name] = stamp, sequence
            self._bytes += size
