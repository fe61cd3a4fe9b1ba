"""The Arrow dataset of speculators' ``prepare-data``, which keeps the loss masks of the states beside it.

Speculators 0.5 and newer (``train/data.py``): ``hidden_states/hs_<i>.safetensors`` belongs to row i, and what shows
that it does is that both have the same token ids. ``prepare-data`` shuffles, so that the order of the input says
nothing; a dataset that was shuffled, filtered or made again after the states were written has other tokens in the row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eagle_parity.config_files import read_json_object
from eagle_parity.errors import InputError, MissingExtraError
from eagle_parity.readers.containers.arrow_rows import ArrowRows
from eagle_parity.readers.containers.stored_tensor import UnreadableFileError
from eagle_parity.readers.containers.tensor_table import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

DATASET_INFO = "dataset_info.json"
STATE = "state.json"
TOKEN_IDS = "input_ids"  # noqa: S105  a column's name
LOSS_MASK = "loss_mask"

MAX_DATA_FILES = 65_536
"""``datasets`` starts a new file every 500 MB."""

_ROW_NUMBER = re.compile(r"hs_([0-9]{1,15})\.safetensors")


@dataclass(frozen=True, slots=True)
class NoMask:
    """Why a file has no loss mask though a dataset lies beside it."""

    reason: str


@dataclass(frozen=True, slots=True)
class PreparedDataset:
    """A dataset, of which no row has been read.

    Attributes:
        rows: its rows; None where ``state.json`` doesn't say where they are.
        problem: why there are none; empty where there are.
    """

    rows: ArrowRows | None
    problem: str = ""

    def mask_of(self, name: str, token_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | NoMask:
        """The loss mask ``[T]`` of one file of states.

        Args:
            name: of the file, with or without its folder.
            token_ids: the file's own, ``[T]``.
        """
        number = row_number(name)
        if number is None:
            return NoMask(
                f"no row number in the name {shorten(name)}: which row of the dataset it belongs to isn't known"
            )
        if self.rows is None:
            return NoMask(self.problem)
        try:
            row = self.rows.row(number)
        except (UnreadableFileError, MissingExtraError) as error:
            return NoMask(str(error))
        if row is None:
            return NoMask(f"the dataset has no row {number}")
        ids, mask = row[TOKEN_IDS], row[LOSS_MASK]
        if ids.shape != token_ids.shape or (ids != token_ids).any():
            return NoMask(
                f"row {number} of the dataset has other token ids ({len(ids)}, the file has {len(token_ids)}): it was"
                " shuffled, filtered or made again since the states were written"
            )
        if mask.shape != ids.shape:
            return NoMask(f"row {number} of the dataset has {len(ids)} token ids and a loss mask of {len(mask)}")
        return mask


def row_number(name: str) -> int | None:
    """The number in ``hs_<i>.safetensors`` in any folder; None for any other name."""
    match = _ROW_NUMBER.fullmatch(name.rpartition("/")[2])
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Joined:
    """How some files of states fit to the rows of the dataset beside them.

    Attributes:
        tried: how many were looked into.
        failed: the names of those without a mask, each with the reason.
    """

    tried: int
    failed: Sequence[tuple[str, NoMask]]

    @property
    def fact(self) -> str:
        """What is known of the masks."""
        kept = self.tried - len(self.failed)
        return f"in row i of the Arrow dataset for hs_<i>: {kept} of {self.tried} files tried have that row's token ids"

    @property
    def unknown(self) -> tuple[str, ...]:
        """Whose mask isn't known, and why; nothing where all were found."""
        if not self.failed:
            return ()
        name, first = self.failed[0]
        whose = f"{len(self.failed)} of the {self.tried} files tried, which are read without it"
        return (f"the loss mask of {whose} ({shorten(name)}: {first.reason})",)


def find_prepared_dataset(folder: Path) -> PreparedDataset | None:
    """The dataset that was saved in a folder, if it is one of speculators' kind."""
    features = _json(folder / DATASET_INFO).get("features")
    if not isinstance(features, dict) or not {TOKEN_IDS, LOSS_MASK} <= features.keys():
        return None
    listed = _json(folder / STATE).get("_data_files")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_DATA_FILES:
        return PreparedDataset(None, f"there is no {STATE} that lists the dataset's files")
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in listed]
    kept = [name for name in names if isinstance(name, str) and _is_plain(name)]
    if len(kept) < len(names):
        # With a folder in it a name would lead out of the dataset; datasets writes none.
        return PreparedDataset(None, f"{STATE} lists something that is no name of a file beside it")
    return PreparedDataset(ArrowRows([folder / name for name in kept], (TOKEN_IDS, LOSS_MASK)))


def _is_plain(name: str) -> bool:
    return name not in {"", ".", ".."} and not {"/", "\\", "\0"} & set(name)


def _json(path: Path) -> Mapping[str, Any]:
    """A companion that can't be read tells nothing, which is what its absence tells."""
    try:
        return read_json_object(path, what="a companion of shards") if path.is_file() else {}
    except (InputError, OSError):
        return {}
