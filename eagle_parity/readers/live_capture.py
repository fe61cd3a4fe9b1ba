"""What a capture of a running server holds beside its sequences: other ranks' states, draft inputs, conditions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eagle_parity.capture.format import CONDITIONS_FOLDER, DRAFT_INPUT, RANKS_FOLDER, SAMPLED_IDS
from eagle_parity.capture.manifest_file import is_capture, read_manifest
from eagle_parity.errors import InputError
from eagle_parity.hidden_states import StateSequence, Unreadable
from eagle_parity.quoting import quoted
from eagle_parity.readers import open_hidden_states
from eagle_parity.readers.capture import CAPTURE
from eagle_parity.readers.companions import Companions
from eagle_parity.readers.containers import UnreadableFileError, read_table
from eagle_parity.readers.containers.stored_tensor import StoredRows
from eagle_parity.readers.reader import is_state, token_vector
from eagle_parity.readers.sequence import read_sequence

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from eagle_parity.capture.live_recording import LiveRecording
    from eagle_parity.capture.manifest import CapturedSequence, Manifest
    from eagle_parity.hidden_states import HiddenStates, Rows

_MATRIX = 2


@dataclass(frozen=True)
class LiveCapture:
    """A capture of a running server.

    Attributes:
        folder: the capture's.
        manifest: its own.
        live: the manifest's section of the server.
    """

    folder: Path
    manifest: Manifest
    live: LiveRecording

    @cached_property
    def groups(self) -> dict[str, str]:
        """The group of every rank: ranks of one group compute the same rows."""
        return {rank.name: rank.group for rank in self.live.ranks}

    def sequence(self, name: str) -> CapturedSequence | None:
        """The manifest's entry of a sequence."""
        return self._entries.get(name)

    @cached_property
    def _entries(self) -> dict[str, CapturedSequence]:
        return {entry.name: entry for entry in self.manifest.sequences}

    def ranks_of(self, entry: CapturedSequence) -> tuple[str, ...]:
        """The ranks of one group that recorded a sequence, the one of the main file first.

        What the manifest names and doesn't describe is left out: only a described name is one that a folder may have.
        """
        groups = self.groups
        if not entry.ranks or entry.ranks[0] not in groups:
            return ()
        group = groups[entry.ranks[0]]
        # The pattern of names allows dots, which alone would lead out of the folder.
        return tuple(name for name in dict.fromkeys(entry.ranks) if groups.get(name) == group and name.strip("."))

    def open_rank(self, entry: CapturedSequence, rank: str) -> StateSequence | Unreadable:
        """One sequence as another rank computed it; its states are read when they are asked for.

        Args:
            entry: of the sequence.
            rank: one of ``ranks_of``, and not the first.
        """
        name = f"{RANKS_FOLDER}/{rank}/{entry.file}"
        if rank not in self.ranks_of(entry):
            return Unreadable(name, f"the manifest describes no rank {quoted(rank)} in the sequence's group")
        try:
            # A rank's name has been held against its pattern and a file's name too: neither leads out of the folder.
            table = read_table(self.folder / RANKS_FOLDER / rank / entry.file)
            recognised = CAPTURE.recognise(table, Companions({}, None, None))
            if recognised is None:
                return Unreadable(name, f"no states of a capture in it: {table}")
            return read_sequence(name, table.source, recognised.sequence)
        except (UnreadableFileError, InputError) as error:
            return Unreadable(name, str(error))

    def sampled_ids(self, entry: CapturedSequence, rank: str) -> torch.Tensor | Unreadable:
        """The token that a rank chose behind each of its rows, int64 ``[T]``.

        Args:
            entry: of the sequence.
            rank: one of ``ranks_of``.
        """
        ranks = self.ranks_of(entry)
        if rank not in ranks:
            return Unreadable(entry.file, f"the manifest describes no rank {quoted(rank)} in the sequence's group")
        folder = self.folder if rank == ranks[0] else self.folder / RANKS_FOLDER / rank
        try:
            table = read_table(folder / entry.file)
            tensor = table.tensors.get(SAMPLED_IDS)
            if tensor is None:
                return Unreadable(entry.file, f"no {SAMPLED_IDS} in it: {table}")
            return token_vector(tensor, SAMPLED_IDS).read(table.source).long()
        except (UnreadableFileError, InputError) as error:
            return Unreadable(entry.file, str(error))

    def draft_input(self, entry: CapturedSequence) -> Rows | Unreadable:
        """What the head's ``fc`` got, ``[T, width]``, where that is stored: it isn't the slots side by side."""
        try:
            table = read_table(self.folder / entry.file)
        except (UnreadableFileError, InputError) as error:
            return Unreadable(entry.file, str(error))
        tensor = table.tensors.get(DRAFT_INPUT)
        if tensor is None or not is_state(tensor, _MATRIX):
            return Unreadable(entry.file, f"no {DRAFT_INPUT} [T, width] in it: {table}")
        return StoredRows(table.source, tensor)

    def open_condition(self, condition: str) -> HiddenStates:
        """What was recorded under a condition.

        Raises:
            InputError: the manifest names no such condition, or it can't be read.
        """
        folder = self.folder / CONDITIONS_FOLDER / condition
        if condition not in self.live.conditions or "/" in condition or condition in {"", ".", ".."}:
            raise InputError(self.folder, f"no condition {quoted(condition)}", expected="one that its manifest names")
        return open_hidden_states(folder, role="live")


def open_live(states: HiddenStates) -> LiveCapture | None:
    """The live capture that some states are of; None where they are of none.

    Raises:
        InputError: its manifest can't be read any more.
    """
    if states.layout.format != CAPTURE.name or not states.path.is_dir() or not is_capture(states.path):
        return None
    manifest = read_manifest(states.path)
    return None if manifest.live is None else LiveCapture(states.path, manifest, manifest.live)
