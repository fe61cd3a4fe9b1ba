"""The readers: a file or folder in, hidden states out, lazily. One file an on-disk layout.

``READERS`` lists them: adding a layout is one file and one line. Content decides which one reads a file (keys, ranks,
dtypes, widths), never its name; what lies beside it informs (``companions``). Nothing of a file but its header is read
until rows are asked for, and neither listing nor recognising needs torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.capture.format import MANIFEST_NAME, is_capture, read_manifest
from eagle_parity.errors import InputError
from eagle_parity.hidden_states import HiddenStates, Layout, StateSequence, Unreadable
from eagle_parity.readers.capture import CAPTURE
from eagle_parity.readers.companions import Companions, find_companions
from eagle_parity.readers.containers import TensorTable, UnreadableFileError, read_table
from eagle_parity.readers.containers.stored_tensor import StoredRows, require_torch
from eagle_parity.readers.folders import Listing, list_shards
from eagle_parity.readers.specforge import SPECFORGE
from eagle_parity.readers.speculators_list import SPECULATORS_LIST
from eagle_parity.readers.stacked import STACKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eagle_parity.readers.reader import Reader, Recognised

READERS: tuple[Reader, ...] = (CAPTURE, STACKED, SPECULATORS_LIST, SPECFORGE)

EXPECTED = (
    "hidden states: shards of speculators (0.3 and newer) or SpecForge, files of vLLM's connector, or a capture, as one"
    " file or a folder of them"
)

SNIFFED = 8
"""Files that are looked into before the layout of a folder is decided."""

MAX_SNIFFED = 64
"""Where the first ones are all broken: after as many, the folder is called unreadable."""

_OTHERS_TOLD = 4


def open_hidden_states(path: str | Path, *, role: str) -> HiddenStates:
    """Opens shards or a capture: one file, or everything below a folder.

    The layout of most of a folder's first files is the folder's. Whatever is broken or of another layout becomes an
    ``Unreadable``: the first files right away, the others when they are opened.

    Args:
        path: a file or folder.
        role: what it is to the caller, for errors: ``trained``, ``live``, ``reference``.

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
        return _open_file(given, path, role)
    if is_capture(given):
        return _open_capture(given, path, role)
    return _open_folder(given, path, role)


def describe_shards(path: str | Path) -> Layout:
    """The layout of shards or a capture, from headers alone and without torch.

    Raises:
        InputError: as ``open_hidden_states``.
    """
    return open_hidden_states(path, role="trained").layout


def recognise(table: TensorTable, companions: Companions) -> Recognised:
    """What the first reader that knows a file makes of it.

    Raises:
        UnreadableFileError: none knows it, or the one that does can't use it.
    """
    for reader in READERS:
        recognised = reader.recognise(table, companions)
        if recognised is not None:
            return recognised
    raise UnreadableFileError(f"tensors of no layout that is known here: {table}")


class _Files:
    """The files of one folder, capture or single shard by name, and how one of them is read."""

    def __init__(self, root: Path, paths: Mapping[str, str]) -> None:
        self._root = root
        self._paths = paths
        self._companions: dict[Path, Companions] = {}
        self.layout: Layout | None = None

    def look(self, name: str) -> tuple[TensorTable, Recognised] | Unreadable:
        """One file by its header, held against the layout where that is decided already."""
        path = self._root / self._paths.get(name, name)
        try:
            table = read_table(path)
            recognised = recognise(table, self._beside(path.parent))
            if self.layout is not None:
                _check_alike(self.layout, recognised.layout)
        except (UnreadableFileError, InputError) as error:
            return Unreadable(name, str(error))
        return table, recognised

    def open(self, name: str) -> StateSequence | Unreadable:
        """One sequence."""
        require_torch()
        looked = self.look(name)
        if isinstance(looked, Unreadable):
            return looked
        table, recognised = looked
        source = table.source
        try:
            token_ids = recognised.token_ids.read(source).long()
            mask = None if recognised.loss_mask is None else recognised.loss_mask.read(source)
        except InputError as error:
            return Unreadable(name, str(error))
        last_state = None if recognised.last_state is None else StoredRows(source, recognised.last_state)
        return StateSequence(
            name=name,
            token_ids=token_ids,
            slots=tuple(StoredRows(source, slot) for slot in recognised.slots),
            last_state=last_state,
            loss_mask=mask,
        )

    def count(self, name: str) -> int | Unreadable:
        """The token ids of one sequence."""
        looked = self.look(name)
        return looked if isinstance(looked, Unreadable) else looked[1].token_ids.shape[0]

    def _beside(self, folder: Path) -> Companions:
        if folder not in self._companions:
            self._companions[folder] = find_companions(folder)
        return self._companions[folder]


def _open_file(file: Path, path: str | Path, role: str) -> HiddenStates:
    remedy = "a config is for `check-config`" if file.suffix == ".json" else ""
    if file.name == MANIFEST_NAME and is_capture(file.parent):
        remedy = "pass the capture's folder"
    return _assemble(_Files(file.parent, {}), file, path, role, [file.name], remedy=remedy)


def _open_capture(folder: Path, path: str | Path, role: str) -> HiddenStates:
    manifest = read_manifest(folder)
    files = {sequence.name: sequence.file for sequence in manifest.sequences}
    if not files:
        raise _no_states(path, role, "a capture without sequences", remedy="record it again")
    return _assemble(_Files(folder, files), folder, path, role, list(files))


def _open_folder(folder: Path, path: str | Path, role: str) -> HiddenStates:
    listing = list_shards(folder)
    if not listing.names:
        raise _no_states(path, role, _describe_strangers(listing))
    closed = [Unreadable(name, f"a folder that can't be listed ({why})") for name, why in listing.closed.items()]
    return _assemble(_Files(folder, listing.paths), folder, path, role, listing.names, unreadable=closed)


def _assemble(
    files: _Files,
    root: Path,
    path: str | Path,
    role: str,
    names: Sequence[str],
    *,
    remedy: str = "",
    unreadable: Iterable[Unreadable] = (),
) -> HiddenStates:
    """Decides the layout by the first files and puts the hidden states together."""
    found: list[tuple[str, Layout]] = []
    bad: list[Unreadable] = list(unreadable)
    for i, name in enumerate(names[:MAX_SNIFFED]):
        if found and i >= SNIFFED:
            break
        looked = files.look(name)
        if isinstance(looked, Unreadable):
            bad.append(looked)
        else:
            found.append((name, looked[1].layout))
    if not found:
        raise _no_states(path, role, _describe_failure(names, bad), remedy=remedy)
    groups = [[layout for _, layout in found if _difference(first, layout) is None] for _, first in found]
    layout = max(groups, key=len)[0]
    bad += [Unreadable(name, why) for name, other in found if (why := _difference(layout, other)) is not None]
    files.layout = layout
    excluded = {entry.name for entry in bad}
    return HiddenStates(
        path=root,
        layout=layout,
        names=[name for name in names if name not in excluded] if excluded else names,
        opener=files.open,
        unreadable=tuple(bad),
        counter=files.count,
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
            return f"another {what} ({theirs}) than the other files ({ours}): read it apart from them"
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
