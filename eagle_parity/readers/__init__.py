"""The readers: a file or folder in, hidden states out, lazily. One file an on-disk layout.

``READERS`` lists them: adding a layout is one file and one line. Content decides which one reads a file (keys, ranks,
dtypes, widths), never its name; what lies beside it informs (``companions``). Nothing of a file but its header is read
until rows are asked for, and neither listing nor recognising needs torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.capture.format import MANIFEST_NAME
from eagle_parity.capture.manifest_file import is_capture, read_manifest
from eagle_parity.errors import InputError
from eagle_parity.hidden_states import HiddenStates, Layout, StateSequence, Unreadable
from eagle_parity.open_files import Stamp
from eagle_parity.readers.angelslim import ANGELSLIM
from eagle_parity.readers.baldeagle import BALDEAGLE
from eagle_parity.readers.capture import CAPTURE, Header, facts_of_folder
from eagle_parity.readers.companions import Companions, find_companions
from eagle_parity.readers.containers import TensorTable, UnreadableFileError, read_table
from eagle_parity.readers.containers.stored_tensor import PlainFile, require_torch
from eagle_parity.readers.eagle_last_state import EAGLE_LAST_STATE
from eagle_parity.readers.eagle_list import EAGLE_LIST
from eagle_parity.readers.folders import Listing, list_shards
from eagle_parity.readers.modelopt import MODELOPT
from eagle_parity.readers.mooncake import MOONCAKE
from eagle_parity.readers.nemo import NEMO
from eagle_parity.readers.opened_sequences import OpenedSequences
from eagle_parity.readers.prepared_dataset import Joined, NoMask
from eagle_parity.readers.sequence import count_tokens, has_mask, read_sequence
from eagle_parity.readers.sglang_dump import is_dump, open_dump
from eagle_parity.readers.sglang_dumper import SGLANG_DUMPER
from eagle_parity.readers.specforge import SPECFORGE
from eagle_parity.readers.specforge_aux_only import SPECFORGE_AUX_ONLY
from eagle_parity.readers.speculators_list import SPECULATORS_LIST
from eagle_parity.readers.speculators_research import SPECULATORS_RESEARCH
from eagle_parity.readers.stacked import MOONCAKE_CONTAINER, STACKED
from eagle_parity.readers.stacked_fp8 import STACKED_FP8
from eagle_parity.readers.tensorrt_llm import TENSORRT_LLM
from eagle_parity.readers.torchspec import TORCHSPEC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eagle_parity.readers.reader import Reader, Recognised, StoredSequence

READERS: tuple[Reader, ...] = (
    CAPTURE,
    STACKED,
    STACKED_FP8,
    MOONCAKE,
    SPECULATORS_LIST,
    SPECULATORS_RESEARCH,
    SPECFORGE,
    SPECFORGE_AUX_ONLY,
    MODELOPT,
    TENSORRT_LLM,
    ANGELSLIM,
    NEMO,
    TORCHSPEC,
    BALDEAGLE,
    EAGLE_LIST,
    EAGLE_LAST_STATE,
    SGLANG_DUMPER,
)

EXPECTED = (
    "hidden states: a trainer's shards (docs/formats.md lists them), files of vLLM's connector, or a capture, as one"
    " file or a folder of them"
)

SNIFFED = 8
"""Files that are looked into before the layout of a folder is decided."""

MAX_SNIFFED = 64
"""Where the first ones are all broken: after as many, the folder is called unreadable."""

MAX_JOINED = 8
"""Files whose ids are held against the dataset beside them when a folder is opened; all are when they are read."""

_OTHERS_TOLD = 4

SUMMARY_KEY = "eagle-parity scan"
"""Of the metadata of a scan's summary, which is a safetensors file too."""


def open_hidden_states(
    path: str | Path,
    *,
    role: str,
    first_token: int | None = None,
    max_files: int | None = None,
    rank: int | None = None,
) -> HiddenStates:
    """Opens shards or a capture: one file, or everything below a folder.

    The layout of most of a folder's first files is the folder's. Whatever is broken or of another layout becomes an
    ``Unreadable``: the first files right away, the others when they are opened.

    Args:
        path: a file or folder.
        role: what it is to the caller, for errors: ``trained``, ``live``, ``reference``.
        first_token: the id that each sequence begins with, for layouts that don't store it (``Layout.first_token``).
        max_files: where a layout keeps several sequences a file, how many are in each only its header tells: of more
            files than this only as many are listed, at even distances (``HiddenStates.files_left_out``).
        rank: of a dump of several ranks, the one to read; by default the lowest. Other layouts have none.

    Raises:
        InputError: there is nothing that can be read.
    """
    given = Path(path).expanduser()
    try:
        is_folder, is_there = given.is_dir(), given.exists()
    except (OSError, ValueError) as error:  # too long, or a NUL in it
        raise _no_states(path, role, f"no path ({error})") from error
    if not is_there:
        raise _no_states(path, role, "no such file or folder")
    if not is_folder:
        return _open_file(given, path, role, first_token)
    if is_capture(given):
        return _open_capture(given, path, role)
    return _open_folder(given, path, role, first_token, max_files=max_files, rank=rank)


def describe_shards(path: str | Path) -> Layout:
    """The layout of shards or a capture, from headers alone and without torch.

    Raises:
        InputError: as ``open_hidden_states``.
    """
    return open_hidden_states(path, role="trained").layout


def recognise(table: TensorTable, companions: Companions) -> Recognised:
    """What the one reader that knows a file makes of it.

    Raises:
        UnreadableFileError: none knows it, more than one does, or the one that does can't use it.
    """
    if SUMMARY_KEY in table.metadata:
        raise UnreadableFileError("a summary of `eagle-parity scan`: sums over a set's states, and none of the states")
    known: list[tuple[Reader, Recognised]] = []
    unusable: list[UnreadableFileError] = []
    for reader in READERS:
        try:
            recognised = reader.recognise(table, companions)
        except UnreadableFileError as error:
            unusable.append(error)
            continue
        if recognised is not None:
            known.append((reader, recognised))
    if len(known) > 1:
        names = " or ".join(f"{reader.name} ({reader.written_by})" for reader, _ in known)
        raise UnreadableFileError(f"ambiguous: its tensors are those of {names}; nothing is guessed: {table}")
    if known:
        return known[0][1]
    if unusable:
        raise unusable[0]
    raise UnreadableFileError(f"tensors of no layout that is known here: {table}")


@dataclass(frozen=True, slots=True)
class _Looked:
    """A sequence of a file by the file's header."""

    table: TensorTable
    recognised: Recognised
    sequence: StoredSequence


class _Files:
    """The files of one folder, capture or single shard by name, and how a sequence of one is read."""

    def __init__(self, root: Path, paths: Mapping[str, str], first_token: int | None) -> None:
        self._root = root
        self._paths = paths
        self._first_token = first_token
        self._companions: dict[Path, Companions] = {}
        self._places: dict[str, tuple[str, int]] = {}
        self._opened = OpenedSequences()
        self.layout: Layout | None = None

    def expand(self, names: Iterable[str]) -> tuple[list[str], list[Unreadable]]:
        """The sequences of files that hold several, ``shard-000000.safetensors#1``, and the files that can't be read.

        How many a file holds only its header tells.
        """
        expanded: list[str] = []
        bad: list[Unreadable] = []
        for name in names:
            looked = self.look(name)
            if isinstance(looked, Unreadable):
                bad.append(looked)
                continue
            for i in range(looked.recognised.count):
                expanded.append(f"{name}#{i}")
                self._places[expanded[-1]] = (name, i)
        return expanded, bad

    def look(self, name: str) -> _Looked | Unreadable:
        """One file by its header, held against the layout where that is decided already."""
        _, index = self._places.get(name, (name, 0))
        path = self._path(name)
        try:
            table = read_table(path)
            recognised = recognise(table, self._beside(path.parent))
            if self.layout is not None:
                _check_alike(self.layout, recognised.layout)
            sequence = recognised.at(index) if index < recognised.count else None
        except (UnreadableFileError, InputError) as error:
            return Unreadable(name, str(error))
        if sequence is None:
            return Unreadable(name, f"the file was rewritten and has only {recognised.count} sequences now")
        return _Looked(table, recognised, sequence)

    def header(self, name: str) -> Header | Unreadable:
        """What the header of one sequence's file says."""
        looked = self.look(name)
        if isinstance(looked, Unreadable):
            return looked
        layout = looked.recognised.layout
        return Header(looked.sequence.token_ids.shape[0], layout.hidden_size, layout.dtype)

    def open(self, name: str) -> StateSequence | Unreadable:
        """One sequence."""
        require_torch()
        path = self._path(name)
        try:
            stamp = Stamp.of(os.stat(path))  # noqa: PTH116  half as long
        except OSError:
            stamp = None  # looking at it says why
        known = None if stamp is None else self._opened.find(name, stamp)
        if known is not None:
            return known
        looked = self.look(name)
        if isinstance(looked, Unreadable):
            return looked
        try:
            sequence = read_sequence(name, looked.table.source, looked.sequence)
        except (UnreadableFileError, InputError) as error:
            return Unreadable(name, str(error))
        # Only what the file says by itself, and was held against the layout.
        alone = isinstance(looked.table.source, PlainFile) and looked.table.container != MOONCAKE_CONTAINER
        if stamp is not None and alone and self.layout is not None:
            self._opened.keep(sequence, stamp)
        return sequence

    def count(self, name: str) -> int | Unreadable:
        """The token ids of one sequence."""
        looked = self.look(name)
        if isinstance(looked, Unreadable):
            return looked
        try:
            return count_tokens(looked.table.source, looked.sequence)
        except (UnreadableFileError, InputError) as error:
            return Unreadable(name, str(error))

    def join_masks(self, names: Sequence[str]) -> Joined | None:
        """Whether the masks that a dataset beside keeps are those of the files, by a few of them; None without one."""
        failed: list[tuple[str, NoMask]] = []
        tried = 0
        for name in names[:: max(1, -(-len(names) // MAX_JOINED))]:
            looked = self.look(name)
            if isinstance(looked, Unreadable) or looked.sequence.prepared_dataset is None:
                continue
            try:
                missing = has_mask(name, looked.table.source, looked.sequence)
            except (UnreadableFileError, InputError):
                continue  # whoever opens it is told
            tried += 1
            if missing is not None:
                failed.append((name, missing))
        return Joined(tried, failed) if tried else None

    def _path(self, name: str) -> Path:
        file, _ = self._places.get(name, (name, 0))
        return self._root / self._paths.get(file, file)

    def _beside(self, folder: Path) -> Companions:
        if folder not in self._companions:
            self._companions[folder] = find_companions(folder, self._first_token)
        return self._companions[folder]


def _open_file(file: Path, path: str | Path, role: str, first_token: int | None) -> HiddenStates:
    remedy = "a config is for `check-config`" if file.suffix == ".json" else ""
    if file.name == MANIFEST_NAME and is_capture(file.parent):
        remedy = "pass the capture's folder"
    return _assemble(_Files(file.parent, {}, first_token), file, path, role, [file.name], remedy=remedy)


def _open_capture(folder: Path, path: str | Path, role: str) -> HiddenStates:
    manifest = read_manifest(folder)
    files = {sequence.name: sequence.file for sequence in manifest.sequences}
    if not files:
        raise _no_states(path, role, "a capture without sequences", remedy="record it again")
    opened = _Files(folder, files, None)
    states = _assemble(opened, folder, path, role, list(files))
    facts = {**states.layout.facts, **facts_of_folder(folder, manifest, opened.header)}
    return replace(states, layout=replace(states.layout, facts=facts))


def _open_folder(
    folder: Path,
    path: str | Path,
    role: str,
    first_token: int | None,
    *,
    max_files: int | None,
    rank: int | None,
) -> HiddenStates:
    listing = list_shards(folder)
    if not listing.names:
        raise _no_states(path, role, _describe_strangers(listing))
    closed = [Unreadable(name, f"a folder that can't be listed ({why})") for name, why in listing.closed.items()]
    if is_dump(folder, listing.names, listing.paths):
        dump = open_dump(folder, listing.names, listing.paths, rank)
        return replace(dump, unreadable=(*closed, *dump.unreadable))
    files = _Files(folder, listing.paths, first_token)
    return _assemble(files, folder, path, role, listing.names, unreadable=closed, max_files=max_files)


def _assemble(
    files: _Files,
    root: Path,
    path: str | Path,
    role: str,
    names: Sequence[str],
    *,
    remedy: str = "",
    unreadable: Iterable[Unreadable] = (),
    max_files: int | None = None,
) -> HiddenStates:
    """Decides the layout by the first files and puts the hidden states together."""
    found: list[tuple[str, Recognised]] = []
    bad: list[Unreadable] = list(unreadable)
    for i, name in enumerate(names[:MAX_SNIFFED]):
        if found and i >= SNIFFED:
            break
        looked = files.look(name)
        if isinstance(looked, Unreadable):
            bad.append(looked)
        else:
            found.append((name, looked.recognised))
    if not found:
        raise _no_states(path, role, _describe_failure(names, bad), remedy=remedy)
    groups = [[entry for _, entry in found if _difference(first.layout, entry.layout) is None] for _, first in found]
    chosen = max(groups, key=len)[0]
    layout = chosen.layout
    bad += [Unreadable(name, why) for name, other in found if (why := _difference(layout, other.layout)) is not None]
    files.layout = layout
    excluded = {entry.name for entry in bad}
    kept: Sequence[str] = [name for name in names if name not in excluded] if excluded else names
    left_out = 0
    if chosen.nth is not None:
        stride = 1 if max_files is None else max(1, -(-len(kept) // max_files))
        left_out = len(kept) - len(kept[::stride])
        kept, unreadable_files = files.expand(kept[::stride])
        bad += unreadable_files
    joined = files.join_masks(kept) if chosen.sequence.prepared_dataset is not None else None
    if joined is not None:
        facts = {**layout.facts, "loss_mask": joined.fact}
        layout = replace(layout, facts=facts, unknown=(*layout.unknown, *joined.unknown))
    return HiddenStates(
        path=root,
        layout=layout,
        names=kept,
        opener=files.open,
        unreadable=tuple(bad),
        counter=files.count,
        files_left_out=left_out,
    )


def _check_alike(expected: Layout, found: Layout) -> None:
    difference = _difference(expected, found)
    if difference is not None:
        raise UnreadableFileError(difference)


def _difference(expected: Layout, found: Layout) -> str | None:
    """Why a file can't be read together with the others, or None."""
    for what, ours, theirs in (
        ("layout", expected.format, found.format),
        ("slots", expected.slots, found.slots),
        ("hidden size", expected.hidden_size, found.hidden_size),
        ("last state", str(expected.last_state), str(found.last_state)),
        ("declared wiring", str(expected.declared), str(found.declared)),
    ):
        if ours != theirs:
            return f"it has {what} {theirs}, the other files have {ours}: read it apart from them"
    return None


def _describe_failure(names: Sequence[str], bad: Sequence[Unreadable]) -> str:
    first = next(entry for entry in bad if entry.name in names[:MAX_SNIFFED])
    if len(names) == 1:
        return first.reason
    tried = (
        f"the first {MAX_SNIFFED} of {len(names):,} files" if len(names) > MAX_SNIFFED else f"its {len(names)} files"
    )
    return f"none of {tried} can be read; {first.name}: {first.reason}"


def _describe_strangers(listing: Listing) -> str:
    found = [f"{count} {suffix}" for suffix, count in listing.others.most_common(_OTHERS_TOLD)]
    found += [f"{name} that can't be listed ({why})" for name, why in list(listing.closed.items())[:_OTHERS_TOLD]]
    return f"no shards in it (found: {', '.join(found) or 'nothing'})"


def _no_states(path: str | Path, role: str, found: str, *, remedy: str = "") -> InputError:
    return InputError(path, found, expected=f"{role} {EXPECTED}", remedy=remedy)
