"""The files of a set: their names, and what of each of them is needed to look at it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from eagle_parity.capture.format import MANIFEST_NAME
from eagle_parity.capture.manifest_file import is_capture, read_manifest
from eagle_parity.errors import InputError
from eagle_parity.files import is_same_place
from eagle_parity.readers import EXPECTED
from eagle_parity.readers.companions import DATA_CONFIG, Companions, find_companions
from eagle_parity.readers.containers import read_table
from eagle_parity.readers.folders import list_shards, printable
from eagle_parity.readers.prepared_dataset import DATASET_INFO
from eagle_parity.readers.sglang_dump import is_dump

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eagle_parity.readers.containers import TensorTable

URL_MARK = "://"


class Stamp(NamedTuple):
    """What changes when a file is written again.

    Attributes:
        size: in bytes.
        version: by whatever the storage tells versions apart: times, an entity tag.
    """

    size: int
    version: str


class Shards(Protocol):
    """The files of a set, wherever they are. It goes to other processes, with a part of the names."""

    @property
    def root(self) -> str:
        """As it was given."""
        ...

    def is_at(self, name: str, path: str) -> bool:
        """Whether a file is at a path on this machine."""
        ...

    def beside(self, names: Sequence[str]) -> str:
        """What changes when that which lies beside some files is written again; empty where that isn't looked at."""
        ...

    def stamp(self, name: str) -> Stamp:
        """A file's state now.

        Raises:
            OSError: it isn't there.
        """
        ...

    def table(self, name: str) -> TensorTable:
        """A file's tensors, from its header.

        Raises:
            UnreadableFileError: it can't be read.
        """
        ...

    def companions(self, name: str) -> Companions:
        """What lies beside a file.

        Raises:
            InputError: it is damaged, and the file is nothing without it.
        """
        ...


@dataclass(frozen=True)
class Listing:
    """The list of a set's files.

    Attributes:
        shards: to look at them.
        names: in natural order.
        closed: folders that can't be listed, with the reason.
        stamps: of the files, where the storage tells them with the list.
    """

    shards: Shards
    names: Sequence[str]
    closed: Mapping[str, str] = field(default_factory=dict)
    stamps: Mapping[str, Stamp] = field(default_factory=dict)

    def has(self, path: str) -> bool:
        """Whether a path on this machine is one of the files."""
        return any(self.shards.is_at(name, path) for name in self.names)

    def without(self, path: str | None) -> Listing:
        """The same without one file: a summary that is written into the set is none of it."""
        if path is None or not self.has(path):
            return self
        return replace(self, names=[name for name in self.names if not self.shards.is_at(name, path)])

    def stamp(self, name: str) -> Stamp:
        """A file's state, as it was when it was listed where the storage tells it with the list, else now.

        Raises:
            OSError: it isn't there.
        """
        return self.stamps[name] if name in self.stamps else self.shards.stamp(name)


@dataclass
class LocalShards:
    """Files below a folder.

    Attributes:
        root: the folder.
        paths: of names that aren't the path below the folder.
        first_token: see ``open_hidden_states``.
    """

    root: str
    paths: Mapping[str, str] = field(default_factory=dict)
    first_token: int | None = None
    _companions: dict[Path, Companions] = field(default_factory=dict, repr=False)

    def is_at(self, name: str, path: str) -> bool:
        """See ``Shards``."""
        base = self.paths.get(name, name).rpartition("/")[2]
        return path.rpartition("/")[2] == base and is_same_place(self._path(name), path)

    def beside(self, names: Sequence[str]) -> str:
        """See ``Shards``."""
        folders = {self._path(folder) for folder in {name.rpartition("/")[0] for name in names}}
        found = []
        for folder in sorted({*folders, *(folder.parent for folder in folders)}):
            for companion in (DATA_CONFIG, DATASET_INFO, MANIFEST_NAME):
                with suppress(OSError):
                    status = (folder / companion).stat()
                    found.append(f"{folder}/{companion} {status.st_size} {status.st_mtime_ns}")
        return "\n".join(found)

    def stamp(self, name: str) -> Stamp:
        """See ``Shards``."""
        status = self._path(name).stat()
        return Stamp(status.st_size, f"{status.st_mtime_ns}.{status.st_ino}")

    def table(self, name: str) -> TensorTable:
        """See ``Shards``."""
        return read_table(self._path(name))

    def companions(self, name: str) -> Companions:
        """See ``Shards``."""
        folder = self._path(name).parent
        if folder not in self._companions:
            self._companions[folder] = find_companions(folder, self.first_token)
        return self._companions[folder]

    def __getstate__(self) -> dict[str, object]:
        """Without what was found beside the files: each process looks itself."""
        return {**self.__dict__, "_companions": {}}

    def _path(self, name: str) -> Path:
        return Path(self.root) / self.paths.get(name, name)


def find_shards(path: str, *, first_token: int | None = None) -> Listing:
    """Lists a set.

    Args:
        path: a folder, a capture, a single file, or a URL of one of fsspec's storages.
        first_token: see ``open_hidden_states``.

    Raises:
        InputError: there is nothing, or no shard in it.
        MissingExtraError: a URL, and its extra isn't installed.
    """
    if URL_MARK in path:
        from eagle_parity.scan.remote_shards import find_remote_shards

        return find_remote_shards(path, first_token=first_token)
    root = Path(path).expanduser()
    try:
        is_folder, is_there = root.is_dir(), root.exists()
    except (OSError, ValueError) as error:
        raise _nothing(path, f"no path ({error})") from error
    if not is_there:
        raise _nothing(path, "no such file or folder")
    if not is_folder:
        shown = printable(root.name)
        return Listing(LocalShards(str(root.parent), {shown: root.name}, first_token), [shown])
    if is_capture(root):
        files = {sequence.name: sequence.file for sequence in read_manifest(root).sequences}
        if not files:
            raise _nothing(path, "a capture without sequences")
        return Listing(LocalShards(str(root), files, first_token), list(files))
    listing = list_shards(root)
    if not listing.names:
        others = ", ".join(f"{count} {suffix}" for suffix, count in listing.others.most_common(4))
        raise _nothing(path, f"no shards in it (found: {others or 'nothing'})")
    if is_dump(root, listing.names, listing.paths):
        raise _nothing(path, "a dump of SGLang's, which is no training set", remedy="compare it with `diff-captures`")
    return Listing(LocalShards(str(root), listing.paths, first_token), listing.names, listing.closed)


def _nothing(path: str, found: str, *, remedy: str = "") -> InputError:
    return InputError(path, found, expected=f"training shards; {EXPECTED}", remedy=remedy)
