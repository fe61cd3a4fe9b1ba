"""Files of a set in one of fsspec's storages: ``s3://``, ``gs://``, ``hf://`` and so on.

Of a file only the ranges are fetched that are asked for: its header, its ids and masks, the rows of the sample. What
has to be read as a whole (a gzip) is refused with the way out.
"""

from __future__ import annotations

import posixpath
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity.errors import InputError, MissingExtraError
from eagle_parity.readers import EXPECTED
from eagle_parity.readers.companions import DATA_CONFIG, NEMO_MANIFEST, Companions, find_companions
from eagle_parity.readers.containers import read_remote_table
from eagle_parity.readers.folders import COMPANION_NAMES, SHARD_SUFFIXES, natural_key
from eagle_parity.scan.shards import Listing, Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eagle_parity.readers.containers import TensorTable

_VERSIONS = ("ETag", "etag", "md5Hash", "checksum", "blob_id", "LastModified", "last_modified", "mtime", "updated")
"""By what the storages tell versions of a file apart; the first one that is there."""
MAX_COMPANION_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class RemoteFile:
    """The bytes of a file in a storage: a ``Source``.

    Attributes:
        storage: fsspec's file system.
        path: of the file in it.
        size: its bytes when it was listed.
    """

    storage: Any
    path: str
    size: int

    def read(self, start: int, count: int) -> bytearray:
        """See ``Source``."""
        try:
            data = self.storage.cat_file(self.path, start=start, end=start + count)
        except Exception as error:  # storages raise whatever their client does
            raise InputError(self.path, f"can't be read any more ({_reason(error)})") from error
        if len(data) != count:
            raise InputError(self.path, "has become shorter while it was read", remedy="wait until its writer is done")
        return bytearray(data)

    def view(self, start: int, count: int) -> None:
        """See ``Source``: there is no such way."""


@dataclass
class RemoteShards:
    """Files below a URL.

    Attributes:
        root: the URL.
        first_token: see ``open_hidden_states``.
    """

    root: str
    first_token: int | None = None
    _storage: Any = field(default=None, repr=False)
    _base: str = field(default="", repr=False)
    _companions: dict[str, Companions] = field(default_factory=dict, repr=False)

    def stamp(self, name: str) -> Stamp:
        """See ``Shards``."""
        storage, path = self._place(name)
        storage.invalidate_cache(posixpath.dirname(path))
        return stamp_of(_asked(lambda: storage.info(path)))

    def table(self, name: str) -> TensorTable:
        """See ``Shards``."""
        storage, path = self._place(name)
        size = int(_asked(lambda: storage.info(path)).get("size") or 0)
        table: TensorTable = _asked(lambda: read_remote_table(storage, path, RemoteFile(storage, path, size)))
        return table

    def companions(self, name: str) -> Companions:
        """See ``Shards``."""
        storage, path = self._place(name)
        folder = posixpath.dirname(path)
        if folder not in self._companions:
            self._companions[folder] = _fetch_companions(storage, folder, self.first_token)
        return self._companions[folder]

    def __getstate__(self) -> dict[str, object]:
        """Without connections: each process makes its own."""
        return {**self.__dict__, "_storage": None, "_companions": {}}

    def _place(self, name: str) -> tuple[Any, str]:
        if self._storage is None:
            self._storage, self._base = open_storage(self.root)
        return self._storage, posixpath.join(self._base, name)


def find_remote_shards(url: str, *, first_token: int | None = None) -> Listing:
    """Lists the files below a URL.

    Args:
        url: of a folder.
        first_token: see ``open_hidden_states``.

    Raises:
        InputError: there is nothing, or it can't be listed.
        MissingExtraError: fsspec or the storage's client isn't installed.
    """
    storage, base = open_storage(url)
    try:
        found: Mapping[str, Mapping[str, Any]] = storage.find(base, detail=True)
    except Exception as error:  # as above
        raise InputError(url, f"can't be listed ({_reason(error)})", expected="a folder of training shards") from error
    stamps = {}
    for path, info in found.items():
        name = posixpath.relpath(path, base)
        last = posixpath.basename(path)
        hidden = any(part.startswith(".") for part in name.split("/"))
        if not hidden and last.endswith(SHARD_SUFFIXES) and last not in COMPANION_NAMES:
            stamps[name] = stamp_of(info)
    if not stamps:
        raise InputError(url, f"no shards in it ({len(found)} other files)", expected=f"training shards; {EXPECTED}")
    names = sorted(stamps, key=natural_key)
    return Listing(RemoteShards(url, first_token), names, stamps=stamps)


def open_storage(url: str) -> tuple[Any, str]:
    """The storage and the path in it.

    Raises:
        MissingExtraError: fsspec or the storage's client isn't installed.
        InputError: there is no such storage.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError("reading a URL", "remote", "fsspec") from error
    try:
        storage, path = url_to_fs(url)
    except ImportError as error:
        scheme = url.partition("://")[0]
        raise InputError(
            url, f"no client for {scheme} is installed ({error})", remedy="install the one that fsspec names for it"
        ) from error
    except ValueError as error:
        raise InputError(url, str(error), expected="a URL of one of fsspec's storages") from error
    return storage, str(path).rstrip("/")


def stamp_of(info: Mapping[str, Any]) -> Stamp:
    """A file's state, by what its storage says."""
    version = next((str(info[key]) for key in _VERSIONS if info.get(key) is not None), "")
    return Stamp(int(info.get("size") or 0), version)


def _asked(question: Callable[[], Any]) -> Any:
    """The answer of a storage, whose clients raise whatever they do.

    Raises:
        FileNotFoundError: the file isn't there.
        OSError: anything else.
    """
    from eagle_parity.readers.containers import UnreadableFileError

    try:
        return question()
    except (FileNotFoundError, UnreadableFileError, InputError):
        raise
    except Exception as error:
        raise OSError(_reason(error)) from error


def _fetch_companions(storage: Any, folder: str, first_token: int | None) -> Companions:
    """What lies beside a file and in the folder above, copied to where it is looked for."""
    with tempfile.TemporaryDirectory(prefix="eagle-parity-") as copy:
        below = Path(copy) / "set" / "folder"
        below.mkdir(parents=True)
        for place, where in ((below, folder), (below.parent, posixpath.dirname(folder))):
            for name in (DATA_CONFIG, NEMO_MANIFEST):
                _fetch(storage, posixpath.join(where, name), place / name)
        return find_companions(below, first_token)


def _fetch(storage: Any, path: str, to: Path) -> None:
    try:
        if storage.info(path)["size"] <= MAX_COMPANION_BYTES:
            to.write_bytes(storage.cat_file(path))
    except Exception:  # noqa: BLE001, S110  what isn't there tells nothing, whatever the client calls it
        pass


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
