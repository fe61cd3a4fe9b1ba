"""The capture format: a directory with one safetensors file a sequence and a ``manifest.json``.

The manifest is written last and atomically, and names every file that is complete: a directory without one is no
capture (yet), one whose ``complete`` is false was interrupted, and what it lists can be read. Each sequence's file
appears under its name only when it is whole. Files are made with mode 0600: the states and the token ids are enough to
read the prompts back.

Tensors of one file, for T tokens, hidden size H and K slots:

=================  ==========  =================================================
``token_ids``      int64       ``[T]``
``slot.0`` ...     ``dtype``   ``[T, H]`` each, in concatenation order, K of them
``last_state``     ``dtype``   ``[T, H]``, where the manifest has a last state
``loss_mask``      int64       ``[T]``, optional
=================  ==========  =================================================
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import msgspec

from eagle_parity import __version__
from eagle_parity.errors import InputError
from eagle_parity.files import replace_when_written, write_atomically
from eagle_parity.wiring import MAX_BOUNDARIES, BoundaryEntry, Wiring

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    import torch

SCHEMA_VERSION: Literal[1] = 1
KIND: Literal["eagle-parity-capture"] = "eagle-parity-capture"
MANIFEST_NAME = "manifest.json"

TOKEN_IDS = "token_ids"  # noqa: S105  a tensor's name
LAST_STATE = "last_state"
LOSS_MASK = "loss_mask"

MAX_MANIFEST_BYTES = 256 * 1024 * 1024
"""A sequence's entry is about a hundred bytes: room for two million of them, and no more is parsed."""
MAX_SEQUENCE_TOKENS = 2**24
"""Far above any context window; a file that claims more is refused before anything is allocated."""
MAX_HIDDEN_SIZE = 2**20
"""Far above any model; bounds what a hostile manifest can make a reader allocate for one row."""

_FILE_NAME = re.compile(r"sequence_\d{6,9}\.safetensors")
_EXPECTED = f"a capture's {MANIFEST_NAME}, schema_version {SCHEMA_VERSION}"

_Name = Annotated[str, msgspec.Meta(max_length=1024)]


def slot_key(slot: int) -> str:
    """The name of a slot's tensor: ``slot.0``."""
    return f"slot.{slot}"


class Producer(msgspec.Struct, frozen=True, kw_only=True):
    """Who recorded the capture, and how.

    Attributes:
        engine: what ran the forward, with its version: ``transformers@5.19.0``.
        dtype: of the computation; the stored dtype is the manifest's.
        name: the program that wrote the files.
        version: of that program.
        options: what else the numbers depend on: attention implementation, device.
    """

    engine: _Name
    dtype: _Name
    name: _Name = "eagle-parity"
    version: _Name = __version__
    options: dict[_Name, _Name] = {}


class CapturedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The model whose states these are.

    Attributes:
        name: the last part of its path: a whole path would tell about the machine.
        architectures: as its config names them.
        num_layers: N, decoder layers.
        hidden_size: H.
    """

    name: _Name
    architectures: list[_Name]
    num_layers: Annotated[int, msgspec.Meta(ge=1, lt=MAX_BOUNDARIES)]
    hidden_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_HIDDEN_SIZE)]


class CapturedSequence(msgspec.Struct, frozen=True, kw_only=True):
    """One complete file.

    Attributes:
        name: where the tokens came from, unique within the capture.
        file: its name in the directory.
        tokens: T.
    """

    name: _Name
    file: Annotated[str, msgspec.Meta(max_length=64)]
    tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQUENCE_TOKENS)]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``manifest.json``.

    Attributes:
        complete: False where the recording was interrupted; the listed files are whole either way.
        producer: who recorded it.
        target: of which model.
        slots: a boundary per slot, in concatenation order; null where it isn't known.
        last_state: the boundary of the last state; null where none is stored, or its boundary isn't known.
        dtype: of the stored states: ``bfloat16``, ``float16`` or ``float32``.
        sequences: the files, in the order in which they were recorded.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["eagle-parity-capture"] = KIND
    complete: bool
    producer: Producer
    target: CapturedTarget
    slots: Annotated[list[BoundaryEntry], msgspec.Meta(max_length=MAX_BOUNDARIES)]
    last_state: BoundaryEntry = None
    dtype: Literal["bfloat16", "float16", "float32"]
    sequences: list[CapturedSequence]

    @property
    def wiring(self) -> Wiring:
        """The slots and the last state as a wiring."""
        return Wiring(tuple(self.slots), self.last_state)

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(sequence.tokens for sequence in self.sequences)


def is_capture(folder: str | Path) -> bool:
    """Whether a folder holds this format's manifest, readable or of another schema version; reads its start only."""
    try:
        with (Path(folder) / MANIFEST_NAME).open("rb") as file:
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
    try:
        size = path.stat().st_size
        if size > MAX_MANIFEST_BYTES:
            raise InputError(path, f"{size:,} bytes", expected=f"{_EXPECTED}, at most {MAX_MANIFEST_BYTES:,} bytes")
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError as error:
        raise InputError(
            folder,
            f"no {MANIFEST_NAME} in it",
            expected="a capture",
            remedy="a recording that was killed has none: record it again",
        ) from error
    except OSError as error:
        raise InputError(path, error.strerror or str(error), expected=_EXPECTED) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(path, f"not a capture's manifest ({error})", expected=_EXPECTED) from error
    _check(path, manifest)
    return manifest


def _check(path: Path, manifest: Manifest) -> None:
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
    for file in files:
        if not _FILE_NAME.fullmatch(file):
            # Also what keeps a manifest from naming files outside its folder.
            raise InputError(
                path, f"a sequence's file is called {file!r}", expected="sequence_000000.safetensors and so on"
            )


class CaptureWriter:
    """Writes a capture, sequence by sequence; a context manager.

    Leaving it normally writes the manifest with ``complete`` true. An exception, Ctrl-C too, leaves the files that are
    complete and a manifest that lists them with ``complete`` false; none at all if there are no files.

    Args:
        folder: the directory; made where it isn't there.
        producer: who records.
        target: of which model.
        slots: a boundary per slot.
        last_state: the boundary of the last state; None where none is stored.
        dtype: of the states as they will be stored.
        overwrite: take a directory that isn't empty. Of what is there only a former capture's own files are removed.

    Raises:
        InputError: the directory can't be made, isn't empty, or holds a manifest.json of something else.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        producer: Producer,
        target: CapturedTarget,
        slots: Sequence[BoundaryEntry],
        last_state: BoundaryEntry,
        dtype: Literal["bfloat16", "float16", "float32"],
        overwrite: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self._manifest = Manifest(
            complete=False,
            producer=producer,
            target=target,
            slots=list(slots),
            last_state=last_state,
            dtype=dtype,
            sequences=[],
        )
        _check(self.folder / MANIFEST_NAME, self._manifest)
        self._sequences: list[CapturedSequence] = []
        self._names: set[str] = set()
        check_output(self.folder, overwrite=overwrite)

    @property
    def manifest(self) -> Manifest:
        """The manifest as far as it has got."""
        return msgspec.structs.replace(self._manifest, sequences=list(self._sequences))

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Without its manifest a half overwritten capture is none; so it goes first.
            (self.folder / MANIFEST_NAME).unlink(missing_ok=True)
            for path in self.folder.iterdir():
                if _FILE_NAME.fullmatch(path.name):
                    path.unlink()
        except OSError as error:
            raise InputError(self.folder, f"can't be written to ({error.strerror or error})") from error
        return self

    def write(
        self,
        name: str,
        token_ids: torch.Tensor,
        slots: Sequence[torch.Tensor],
        *,
        last_state: torch.Tensor | None = None,
        loss_mask: torch.Tensor | None = None,
    ) -> None:
        """Writes one sequence; its file is whole when this returns.

        Args:
            name: where the tokens came from; a second one of the same name gets a number.
            token_ids: integers ``[T]``.
            slots: ``[T, H]`` a slot, in the capture's dtype.
            last_state: ``[T, H]``, just where the capture has one.
            loss_mask: integers ``[T]``.

        Raises:
            ValueError: the tensors aren't what the manifest says.
            InputError: the file can't be written.
        """
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        dtype: torch.dtype = getattr(torch, self._manifest.dtype)
        (tokens,) = token_ids.shape
        states = {slot_key(i): state for i, state in enumerate(slots)}
        if last_state is not None:
            states[LAST_STATE] = last_state
        shape = (tokens, self._manifest.target.hidden_size)
        if len(slots) != len(self._manifest.slots) or (last_state is None) != (self._manifest.last_state is None):
            raise ValueError(f"{name}: {sorted(states)}, but the capture has {len(self._manifest.slots)} slots")
        for key, state in states.items():
            if state.shape != shape or state.dtype != dtype:
                raise ValueError(f"{name}: {key} is {tuple(state.shape)} {state.dtype}, not {shape} {dtype}")
        tensors = {TOKEN_IDS: token_ids.to(torch.int64), **states}
        if loss_mask is not None:
            if loss_mask.shape != (tokens,):
                raise ValueError(f"{name}: {LOSS_MASK} is {tuple(loss_mask.shape)}, not ({tokens},)")
            tensors[LOSS_MASK] = loss_mask.to(torch.int64)
        # One boundary may be two slots; the file format wants memory of its own for each.
        seen: set[int] = set()
        for key, tensor in tensors.items():
            owned = tensor.detach().cpu().contiguous()
            tensors[key] = owned.clone() if owned.data_ptr() in seen else owned
            seen.add(tensors[key].data_ptr())
        entry = CapturedSequence(
            name=self._unique(name), file=f"sequence_{len(self._sequences):06d}.safetensors", tokens=tokens
        )
        try:
            with replace_when_written(self.folder / entry.file, private=True) as temporary:
                save_file(tensors, temporary)
        except SafetensorError as failure:  # how the library tells a full disk
            raise InputError(self.folder / entry.file, f"can't be written ({failure})") from failure
        self._sequences.append(entry)
        self._names.add(entry.name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or self._sequences:
            self._manifest = msgspec.structs.replace(self._manifest, complete=kind is None)
            data = msgspec.json.format(msgspec.json.encode(self.manifest), indent=2) + b"\n"
            write_atomically(self.folder / MANIFEST_NAME, data, private=True)

    def _unique(self, name: str) -> str:
        name = name[:1000]  # room for the number below the manifest's bound
        unique, count = name, 1
        while unique in self._names:
            count += 1
            unique = f"{name} ({count})"
        return unique


def check_output(folder: str | Path, *, overwrite: bool) -> None:
    """Whether a capture may be written there, asked before anything is computed.

    Raises:
        InputError: it isn't a directory, isn't empty and ``overwrite`` is false, or holds a manifest.json that isn't a
            capture's (other tools use that name too).
    """
    folder = Path(folder)
    try:
        content = os.listdir(folder)  # noqa: PTH208  names are all that is needed
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(folder, error.strerror or str(error), expected="a directory to write a capture to") from error
    if MANIFEST_NAME in content and not is_capture(folder):
        raise InputError(
            folder,
            f"its {MANIFEST_NAME} is not a capture's",
            expected="an empty directory",
            remedy="choose another one",
        )
    if content and not overwrite:
        what = "holds a capture already" if is_capture(folder) else "not empty"
        raise InputError(folder, what, expected="an empty directory", remedy="choose another one or pass --overwrite")
