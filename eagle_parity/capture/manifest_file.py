"""``manifest.json`` of a capture: recognised, read, checked and written."""

from __future__ import annotations

from pathlib import Path

import msgspec

from eagle_parity.capture.format import FILE_NAME, KIND, MANIFEST_NAME, SCHEMA_VERSION
from eagle_parity.capture.manifest import Manifest
from eagle_parity.errors import InputError
from eagle_parity.files import write_atomically
from eagle_parity.input_files import NOTHING_THERE, read_bounded, why_no_file
from eagle_parity.quoting import one_line, quoted

MAX_MANIFEST_BYTES = 256 * 1024 * 1024
"""A sequence's entry is about 200 bytes, of eight ranks 320: room for 800,000 of them, and no more is parsed."""

_EXPECTED = f"a capture's {MANIFEST_NAME}, schema_version {SCHEMA_VERSION}"


def is_capture(folder: str | Path) -> bool:
    """Whether a folder holds this format's manifest, readable or of another schema version; reads its start only."""
    path = Path(folder) / MANIFEST_NAME
    try:
        if why_no_file(path) is not None:  # a pipe would never say what it is
            return False
        with path.open("rb") as file:
            # The writer puts kind second; a manifest that hides it further down is not the writer's.
            return f'"{KIND}"'.encode() in file.read(512)
    except OSError:
        return False


def read_manifest(folder: str | Path) -> Manifest:
    """Reads and checks a capture's manifest; no tensor file is opened.

    Args:
        folder: the capture.

    Raises:
        InputError: no manifest, too large, not one, of another schema version, or it contradicts itself.
    """
    path = Path(folder) / MANIFEST_NAME
    if why_no_file(path) == NOTHING_THERE:
        raise InputError(
            folder,
            f"no {MANIFEST_NAME} in it",
            expected="a capture",
            remedy="a recording that was killed has none: record it again",
        )
    try:
        manifest = msgspec.json.decode(read_bounded(path, MAX_MANIFEST_BYTES, expected=_EXPECTED), type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(path, f"not a capture's manifest ({error})", expected=_EXPECTED) from error
    check_manifest(path, manifest)
    return manifest


def check_readable(path: Path, manifest: Manifest) -> None:
    """Whether a manifest keeps its own bounds: what is written is to be read again.

    Raises:
        InputError: it doesn't.
    """
    try:
        msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest)
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError) as error:
        raise InputError(path, f"can't be written so that it can be read ({one_line(error)})") from error


def write_manifest(folder: str | Path, manifest: Manifest) -> None:
    """Writes a capture's manifest, atomically and with mode 0600."""
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    write_atomically(Path(folder) / MANIFEST_NAME, data, private=True)


def check_manifest(path: Path, manifest: Manifest) -> None:
    """Whether a manifest contradicts itself, or names files that a capture doesn't have.

    Raises:
        InputError: it does.
    """
    num_layers = manifest.target.num_layers
    for entry in (*manifest.slots, manifest.last_state):
        if isinstance(entry, int) and not 0 <= entry <= num_layers:
            raise InputError(
                path, f"boundary {entry}", expected=f"0 to {num_layers}, as the target has {num_layers} layers"
            )
    if not manifest.slots:
        raise InputError(path, "no slots", expected="at least one")
    names = {sequence.name for sequence in manifest.sequences}
    files = {sequence.file for sequence in manifest.sequences}
    if len(names) < len(manifest.sequences) or len(files) < len(manifest.sequences):
        raise InputError(path, "two sequences of one name or one file", expected="every sequence named once")
    if manifest.live is not None:
        described = {rank.name for rank in manifest.live.ranks}
        named = {rank for sequence in manifest.sequences for rank in sequence.ranks}
        if not named <= described:
            unknown = quoted(min(named - described))
            raise InputError(path, f"a sequence of rank {unknown}", expected="ranks that the section live describes")
        if len(described) < len(manifest.live.ranks):
            raise InputError(path, "two ranks of one name", expected="every rank described once")
    for file in files:
        if not FILE_NAME.fullmatch(file):
            # Also what keeps a manifest from naming files outside its folder.
            raise InputError(
                path, f"a sequence's file is called {file!r}", expected="sequence_000000.safetensors and so on"
            )
