"""Files of a set in one of fsspec's storages: ``s3://``, ``gs://``, ``hf://`` and so on.

Of a file only the ranges are fetched that are asked for: its header, its ids and masks, the rows of the sample. What
has to be read as a whole (a gzip) is refused with the way out. One file that can't be read is a finding; a storage that
doesn't answer any more ends the scan, which goes on from its summary.
"""

from __future__ import annotations

import posixpath
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.format import MANIFEST_NAME
from eagle_parity.capture.manifest_file import is_capture, read_manifest
from eagle_parity.errors import InputError, MissingExtraError, ParityError
from eagle_parity.quoting import one_line
from eagle_parity.readers import EXPECTED
from eagle_parity.readers.companions import DATA_CONFIG, Companions, find_companions
from eagle_parity.readers.containers import UnreadableFileError, read_remote_table
from eagle_parity.readers.folders import COMPANION_NAMES, SHARD_SUFFIXES, natural_key
from eagle_parity.readers.prepared_dataset import DATASET_INFO, PreparedDataset
from eagle_parity.scan.shards import Listing, Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from eagle_parity.readers.containers import TensorTable

    Answer = TypeVar("Answer")

_VERSIONS = ("ETag", "etag", "md5Hash", "checksum", "blob_id", "LastModified", "last_modified", "mtime", "updated")
"""By what the storages tell versions of a file apart; the first one that is there."""
_ROWS_ON_DISK = "the Arrow dataset that has the masks is not fetched: copy the folder to a disk and scan it there"
MAX_COMPANION_BYTES = 64 * 1024 * 1024
SMALL_BYTES = 256 * 1024
"""A file of no more is fetched with one request: that takes less time than five for its parts."""


class StorageError(ParityError):
    """A storage that doesn't answer: what it would have said of the files left nobody knows."""


@dataclass
class Storage:
    """One of fsspec's file systems, and the folder in it.

    Attributes:
        url: as it was given.
        files: fsspec's file system.
        base: the folder's path in it.
    """

    url: str
    files: Any
    base: str

    def place(self, name: str) -> str:
        """The path of a file of the folder."""
        return f"{self.prefix}{name}"

    @property
    def prefix(self) -> str:
        """What paths of the folder's files begin with. Joined by hand: a key may have ``//`` in it."""
        return f"{self.base}/" if self.base else str(self.files.root_marker)

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer of a storage, whose clients raise whatever they do.

        Raises:
            FileNotFoundError: the file isn't there.
            OSError: anything else that is wrong with this file.
            StorageError: it is the storage that is wrong.
        """
        try:
            return question()
        except (FileNotFoundError, UnreadableFileError, ParityError):
            raise
        except Exception as error:
            self._check()
            raise OSError(one_line(error)) from error

    def _check(self) -> None:
        """Whether the folder can still be asked for.

        Raises:
            StorageError: it can't.
        """
        try:
            self.files.info(self.base)
        except FileNotFoundError:  # an answer: some storages have no folders
            pass
        except Exception as error:
            raise StorageError(
                f"{self.url}: the storage doesn't answer any more ({one_line(error)}); with --summary the scan goes on"
                " from where it was"
            ) from error


@dataclass
class RemoteFile:
    """The bytes of a file in a storage: a ``Source``.

    Attributes:
        storage: where it is.
        path: of the file in it.
        size: its bytes when it was looked at first.
    """

    storage: Storage
    path: str
    size: int
    _whole: bytes | None = field(default=None, repr=False)

    def read(self, start: int, count: int) -> bytearray:
        """See ``Source``.

        Raises:
            StorageError: the storage doesn't answer any more.
        """
        if self.size <= SMALL_BYTES:
            if self._whole is None:
                self._whole = self._fetch(0, self.size)
            data = self._whole[start : start + count]
        else:
            data = self._fetch(start, count)
        if len(data) != count:
            raise InputError(self.path, "has become shorter while it was read", remedy="wait until its writer is done")
        return bytearray(data)

    def view(self, start: int, count: int) -> memoryview | None:  # noqa: ARG002  the protocol's
        """See ``Source``: there is no such way."""
        return None

    def _fetch(self, start: int, count: int) -> bytes:
        if not count:
            return b""
        try:
            data: bytes = self.storage.ask(
                lambda: self.storage.files.cat_file(self.path, start=start, end=start + count)
            )
        except OSError as error:
            raise InputError(self.path, f"can't be read any more ({one_line(error)})") from error
        return data


@dataclass
class RemoteShards:
    """Files below a URL.

    Attributes:
        root: the URL.
        paths: of names that aren't the path below the URL.
        first_token: see ``open_hidden_states``.
    """

    root: str
    paths: Mapping[str, str] = field(default_factory=dict)
    first_token: int | None = None
    _storage: Storage | None = field(default=None, repr=False)
    _companions: dict[str, Companions] = field(default_factory=dict, repr=False)
    _sizes: dict[str, int] = field(default_factory=dict, repr=False)

    def is_at(self, name: str, path: str) -> bool:  # noqa: ARG002  the protocol's
        """See ``Shards``: none is on this machine."""
        return False

    def beside(self, names: Sequence[str]) -> str:  # noqa: ARG002  as above
        """See ``Shards``: each question would be a request."""
        return ""

    def stamp(self, name: str) -> Stamp:
        """See ``Shards``.

        Raises:
            StorageError: as ``Storage.ask``.
        """
        storage, path = self._place(name)
        storage.files.invalidate_cache(posixpath.dirname(path))
        stamp = stamp_of(storage.ask(lambda: storage.files.info(path)))
        self._sizes = {name: stamp.size}  # of the file that is looked at now
        return stamp

    def table(self, name: str) -> TensorTable:
        """See ``Shards``.

        Raises:
            StorageError: as ``Storage.ask``.
        """
        storage, path = self._place(name)
        size = self._sizes[name] if name in self._sizes else self.stamp(name).size
        return read_remote_table(path, RemoteFile(storage, path, size))

    def companions(self, name: str) -> Companions:
        """See ``Shards``.

        Raises:
            StorageError: as ``Storage.ask``.
        """
        storage, path = self._place(name)
        folder = posixpath.dirname(path)
        if folder not in self._companions:
            self._companions[folder] = _fetch_companions(storage, folder, self.first_token)
        return self._companions[folder]

    def __getstate__(self) -> dict[str, object]:
        """Without connections: each process makes its own."""
        return {**self.__dict__, "_storage": None, "_companions": {}, "_sizes": {}}

    def _place(self, name: str) -> tuple[Storage, str]:
        if self._storage is None:
            try:
                self._storage = open_storage(self.root)
            except (InputError, MissingExtraError) as error:  # the list was made elsewhere: every file would say so
                raise StorageError(str(error)) from error
        return self._storage, self._storage.place(self.paths.get(name, name))


def find_remote_shards(url: str, *, first_token: int | None = None) -> Listing:
    """Lists the files below a URL.

    Args:
        url: of a folder, a capture or one file.
        first_token: see ``open_hidden_states``.

    Raises:
        InputError: there is nothing, or it can't be listed.
        MissingExtraError: fsspec or the storage's client isn't installed.
        StorageError: it answers no more.
    """
    storage = open_storage(url)
    storage.files.invalidate_cache()  # of an earlier list in this process
    try:
        found: Mapping[str, Mapping[str, Any]] = storage.files.find(storage.base, detail=True)
    except Exception as error:  # clients raise whatever they do
        raise InputError(url, f"can't be listed ({one_line(error)})", expected="a folder of training shards") from error
    if set(found) == {storage.base}:
        above, _, name = url.rstrip("/").rpartition("/")
        return Listing(RemoteShards(above, {}, first_token), [name])
    stamps = {}
    for path, info in found.items():
        name = path.removeprefix(storage.prefix)
        last = posixpath.basename(name)
        hidden = any(part.startswith(".") for part in name.split("/"))
        if path != name and not hidden and last.endswith(SHARD_SUFFIXES) and last not in COMPANION_NAMES:
            stamps[name] = stamp_of(info)
    if MANIFEST_NAME in (path.removeprefix(storage.prefix) for path in found):
        files = _files_of_capture(storage)
        if files is not None:
            told = {name: stamps[file] for name, file in files.items() if file in stamps}
            return Listing(RemoteShards(url, files, first_token), list(files), stamps=_told(told))
    if not stamps:
        held = f"no shards in it ({len(found)} other files)" if found else "there is no file"
        raise InputError(url, held, expected=f"training shards; {EXPECTED}")
    names = sorted(stamps, key=natural_key)
    return Listing(RemoteShards(url, {}, first_token), names, stamps=_told(stamps))


def open_storage(url: str) -> Storage:
    """The storage of a URL.

    Raises:
        MissingExtraError: fsspec or the storage's client isn't installed.
        InputError: there is no such storage.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError("reading a URL", "remote", "fsspec") from error
    try:
        # What was listed once may be another thing by now: each file is asked for when its turn comes.
        files, path = url_to_fs(url)
    except ImportError as error:
        scheme = url.partition("://")[0]
        raise InputError(
            url, f"no client for {scheme} is installed ({one_line(error)})", remedy="install what fsspec names for it"
        ) from error
    except Exception as error:  # a client's own, about its settings
        raise InputError(url, one_line(error), expected="a URL of one of fsspec's storages") from error
    return Storage(url, files, str(path).rstrip("/"))


def stamp_of(info: Mapping[str, Any]) -> Stamp:
    """A file's state, by what its storage says."""
    version = next((str(info[key]) for key in _VERSIONS if info.get(key) is not None), "")
    return Stamp(int(info.get("size") or 0), version)


def _told(stamps: Mapping[str, Stamp]) -> Mapping[str, Stamp]:
    """Those by which versions can be told apart; the others are asked for one by one."""
    return {name: stamp for name, stamp in stamps.items() if stamp.version}


def _files_of_capture(storage: Storage) -> dict[str, str] | None:
    """The files of the sequences, where the folder is a capture; its last files may be missing, as on a disk."""
    with tempfile.TemporaryDirectory(prefix="eagle-parity-") as copy:
        _fetch(storage, storage.place(MANIFEST_NAME), Path(copy) / MANIFEST_NAME)
        if not is_capture(copy):
            return None
        files = {sequence.name: sequence.file for sequence in read_manifest(copy).sequences}
    if not files:
        raise InputError(storage.url, "a capture without sequences", expected=f"training shards; {EXPECTED}")
    return files


def _fetch_companions(storage: Storage, folder: str, first_token: int | None) -> Companions:
    """What lies beside a file and in the folder above, copied to where it is looked for."""
    with tempfile.TemporaryDirectory(prefix="eagle-parity-") as copy:
        below = Path(copy) / "set" / "folder"
        below.mkdir(parents=True)
        for name in (DATA_CONFIG, DATASET_INFO, MANIFEST_NAME):  # NeMo's manifest has the same name
            _fetch(storage, posixpath.join(folder, name), below / name)
        above = posixpath.dirname(folder)
        if above.strip("/"):  # else the folder is a bucket, and beside it are other people's
            for name in (DATA_CONFIG, DATASET_INFO):
                _fetch(storage, posixpath.join(above, name), below.parent / name)
        found = find_companions(below, first_token)
    if found.prepared_dataset is None:
        return found
    # That it is there says what the states are. Its rows are gigabytes, of which each process would fetch all.
    return replace(found, prepared_dataset=PreparedDataset(None, _ROWS_ON_DISK))


def _fetch(storage: Storage, path: str, to: Path) -> None:
    """Copies a companion; one that isn't there tells nothing.

    Raises:
        OSError: it can't be asked for or read. What the files beside it are said to be must not hang on one request.
        StorageError: the storage doesn't answer any more.
    """
    try:
        size = int(storage.ask(lambda: storage.files.info(path)).get("size") or 0)
        if 0 < size <= MAX_COMPANION_BYTES:
            to.write_bytes(storage.ask(lambda: storage.files.cat_file(path, start=0, end=size)))
    except FileNotFoundError:
        pass
