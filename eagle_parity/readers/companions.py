"""What lies beside shards and tells about them: data_config.json, an arrow dataset's description, manifests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.manifest_file import is_capture, read_manifest
from eagle_parity.config_files import read_json_object
from eagle_parity.errors import InputError
from eagle_parity.readers.prepared_dataset import PreparedDataset, find_prepared_dataset

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eagle_parity.capture.manifest import Manifest

DATA_CONFIG = "data_config.json"
NEMO_MANIFEST = "manifest.json"

_NEMO_KEYS = frozenset({"format_version", "aux_layer_ids", "aux_hidden_dim"})
"""NeMo Automodel's ``precompute_eagle3.py``; the tool's own manifest of this name has none of them."""


@dataclass(frozen=True, slots=True)
class Companions:
    """What was found in a file's folder or in the one above it.

    Attributes:
        data_config: speculators 0.3 and 0.4 write it once for a directory; empty where there is none.
        prepared_dataset: the Arrow dataset of speculators' ``prepare-data`` (0.5 and newer), where it is there.
        manifest: of the capture that the file belongs to.
        nemo_manifest: NeMo Automodel writes it once for a directory; empty where there is none.
        first_token: no file's but the user's word: the id that each sequence begins with, for layouts without it.
    """

    data_config: Mapping[str, Any]
    prepared_dataset: PreparedDataset | None
    manifest: Manifest | None
    nemo_manifest: Mapping[str, Any] = field(default_factory=dict)
    first_token: int | None = None


def find_companions(folder: Path, first_token: int | None = None) -> Companions:
    """Looks for the few names that matter: the folder may hold a million others.

    A companion that can't be read tells nothing, which is what its absence tells; the shards are readable without it.
    A capture's manifest that can't be is an error: its files are nothing without it.

    Raises:
        InputError: the manifest is damaged or of another version.
    """
    folders = (folder, folder.resolve().parent)
    return Companions(
        data_config=next((config for f in folders if (config := _data_config(f))), {}),
        prepared_dataset=next((found for f in folders if (found := find_prepared_dataset(f))), None),
        manifest=read_manifest(folder) if is_capture(folder) else None,
        nemo_manifest=_nemo_manifest(folder),
        first_token=first_token,
    )


def _data_config(folder: Path) -> Mapping[str, Any]:
    config = _json(folder / DATA_CONFIG)
    return config if isinstance(config.get("hidden_states"), dict) else {}


def _nemo_manifest(folder: Path) -> Mapping[str, Any]:
    manifest = _json(folder / NEMO_MANIFEST)
    return manifest if manifest.keys() >= _NEMO_KEYS else {}


def _json(path: Path) -> Mapping[str, Any]:
    try:
        return read_json_object(path, what="a companion of shards") if path.is_file() else {}
    except (InputError, OSError):
        return {}
