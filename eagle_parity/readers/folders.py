"""Listing the shards of a folder: by name only, so that a million of them are listed in seconds."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.readers.containers.raw_objects import PACKED_SUFFIX, STATES_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARD_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".ckpt.gz", ".pt.gz", PACKED_SUFFIX, STATES_SUFFIX)

COMPANION_NAMES = frozenset(
    {
        "vocab_mapping.pt",  # SpecForge, AngelSlim: d2t and t2d
        "token_freq.pt",  # speculators
        "cache.pt",  # EAGLE: d2t and t2d
        "target_embeddings.safetensors",  # NeMo
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "pytorch_model.bin",  # a checkpoint of old
        "training_args.bin",
        "optimizer.bin",
        "scheduler.bin",
    }
)
"""Tensor files that lie beside shards and hold no states."""

MAX_DEPTH = 8
"""``rank_0/rows_0-2000/`` is the deepest that trainers nest."""

_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder holds.

    Attributes:
        names: the shards' paths below it with forward slashes, in natural order. Bytes that are no UTF-8 are written
            as escapes, so that a name can always be printed.
        paths: for those names only: the path as the system has it.
        others: how many other files of each suffix there are.
        closed: folders below it that can't be listed, each with the reason.
    """

    names: list[str]
    paths: dict[str, str]
    others: Counter[str]
    closed: dict[str, str]


def list_shards(root: Path) -> Listing:
    """Lists the shards below a folder, links to folders included, each folder once."""
    found: list[str] = []
    others: Counter[str] = Counter()
    closed: dict[str, str] = {}
    for name in _walk(root, closed):
        base = name.rpartition("/")[2]
        if base.endswith(SHARD_SUFFIXES) and base not in COMPANION_NAMES:
            found.append(name)
        else:
            others[os.path.splitext(base)[1] or base] += 1  # noqa: PTH122  a Path a file is slow for a million
    found.sort(key=natural_key)
    names = [printable(name) for name in found]
    paths = {shown: real for shown, real in zip(names, found, strict=True) if shown != real}
    return Listing(names, paths, others, closed)


def natural_key(name: str) -> list[int | str]:
    """Sorts ``data_2`` before ``data_10``."""
    # split() with a group alternates text and digits, so that like is compared with like.
    return [int(part) if i % 2 else part for i, part in enumerate(_DIGITS.split(name))]


def printable(name: str) -> str:
    """A name that can always be printed: bytes that are no UTF-8 as escapes, and no two names alike."""
    if name.isascii() and "\\" not in name:
        return name
    # A backslash of the name's own is doubled, or it could look like an escaped byte of another name.
    return os.fsencode(name).replace(b"\\", b"\\\\").decode(errors="backslashreplace")


def _walk(root: Path, closed: dict[str, str]) -> Iterator[str]:
    seen: set[tuple[int, int]] = set()
    pending = [(str(root), "", 0)]
    while pending:
        folder, prefix, depth = pending.pop()
        try:
            status = os.stat(folder)  # noqa: PTH116  strings throughout, as above
            if (status.st_dev, status.st_ino) in seen:
                continue  # a link back up, or a second way to the same folder
            seen.add((status.st_dev, status.st_ino))
            entries = os.scandir(folder)
        except OSError as error:
            closed[printable(prefix.rstrip("/") or ".")] = error.strerror or str(error)
            continue
        with entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue  # caches and the temporary names of writers
                if not _is_folder(entry):
                    yield prefix + entry.name
                elif depth < MAX_DEPTH:
                    pending.append((entry.path, f"{prefix}{entry.name}/", depth + 1))
                else:
                    closed[printable(prefix + entry.name)] = f"more than {MAX_DEPTH} folders deep"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle: whoever opens it is told
        return False
