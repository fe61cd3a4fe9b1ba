"""Writes a capture, sequence by sequence, so that what a killed process leaves can be read."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import msgspec

from eagle_parity.capture.format import (
    CONDITIONS_FOLDER,
    DRAFT_INPUT,
    FILE_NAME,
    LAST_STATE,
    LOSS_MASK,
    MANIFEST_NAME,
    RANKS_FOLDER,
    SAMPLED_IDS,
    TOKEN_IDS,
    name_of,
    slot_key,
)
from eagle_parity.capture.manifest import MAX_MODES, CapturedSequence, Manifest
from eagle_parity.capture.manifest_file import check_manifest, check_readable, is_capture, write_manifest
from eagle_parity.errors import InputError
from eagle_parity.files import replace_when_written
from eagle_parity.quoting import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import torch

    from eagle_parity.capture.live_recording import LiveRecording
    from eagle_parity.capture.manifest import CapturedTarget, Producer
    from eagle_parity.wiring import BoundaryEntry

MANIFEST_EVERY = 100
"""Sequences after which an unfinished recording's manifest is written again: what a killed process leaves readable."""


class RankIds(NamedTuple):
    """Token ids as one rank has them: ``[T]`` of its rows, and of generated rows what it chose behind each."""

    token_ids: torch.Tensor
    sampled_ids: torch.Tensor | None = None

    def tensors(self) -> dict[str, torch.Tensor]:
        """As files have them."""
        import torch

        found = {TOKEN_IDS: self.token_ids, SAMPLED_IDS: self.sampled_ids}
        return {name: ids.to(torch.int64) for name, ids in found.items() if ids is not None}


class CaptureWriter:
    """Writes a capture, sequence by sequence; a context manager.

    Entering it writes a manifest with ``complete`` false; leaving it normally one with ``complete`` true. An exception,
    Ctrl-C too, leaves the files that are complete and a manifest that lists them with ``complete`` false; a killed
    process leaves the manifest of every ``MANIFEST_EVERY`` sequences.

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
        check_manifest(self.folder / MANIFEST_NAME, self._manifest)
        self._sequences: list[CapturedSequence] = []
        self._names: set[str] = set()
        self._other_ranks: list[str] = []  # whose files of the next sequence are there
        check_output(self.folder, overwrite=overwrite)
        check_readable(self.folder / MANIFEST_NAME, self._manifest)

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
                if FILE_NAME.fullmatch(path.name):
                    path.unlink()
            for name in (RANKS_FOLDER, CONDITIONS_FOLDER):
                _remove_former(self.folder / name)
            self._write_manifest()
        except OSError as error:
            raise InputError(self.folder, f"can't be written to ({error.strerror or error})") from error
        return self

    def describe_live(self, live: LiveRecording) -> None:
        """Sets or replaces what the manifest says of the running server.

        Raises:
            InputError: a manifest that says so couldn't be read.
        """
        self._manifest = msgspec.structs.replace(self._manifest, live=live)
        check_readable(self.folder / MANIFEST_NAME, self._manifest)

    def write(
        self,
        name: str,
        token_ids: torch.Tensor,
        slots: Sequence[torch.Tensor],
        *,
        last_state: torch.Tensor | None = None,
        loss_mask: torch.Tensor | None = None,
        draft_input: torch.Tensor | None = None,
        draft_input_is: Literal["equal", "differs", "normed", "absent"] | None = None,
        rank: str | None = None,
        sampled_ids: torch.Tensor | None = None,
        first_position: int = 0,
        modes: Sequence[str] = (),
        forwards: int | None = None,
    ) -> None:
        """Writes one sequence; its files are whole when this returns.

        What other ranks of a live capture have of it is written before, rank by rank (``write_rank``).

        Args:
            name: where the tokens came from; a second one of the same name gets a number.
            token_ids: integers ``[T]``.
            slots: ``[T, H]`` a slot, in the capture's dtype.
            last_state: ``[T, H]``, just where the capture has one.
            loss_mask: integers ``[T]``.
            draft_input: ``[T, K * H]``, what the head's ``fc`` got where it isn't the slots side by side.
            draft_input_is: what is known of it.
            rank: of a live capture, the rank whose states these are.
            sampled_ids: integers ``[T]``, of generated rows the token that this rank chose behind each.
            first_position: see ``CapturedSequence``.
            modes: see there; texts of a spool, cut to what a manifest may hold.
            forwards: see there.

        Raises:
            ValueError: the tensors aren't what the manifest says.
            InputError: a file can't be written.
        """
        import torch

        dtype: torch.dtype = getattr(torch, self._manifest.dtype)
        (tokens,) = token_ids.shape
        states = {slot_key(i): state for i, state in enumerate(slots)}
        if last_state is not None:
            states[LAST_STATE] = last_state
        shape = (tokens, self._manifest.target.hidden_size)
        if len(slots) != len(self._manifest.slots) or (last_state is None) != (self._manifest.last_state is None):
            raise ValueError(f"{name}: {sorted(states)}, but the capture has {len(self._manifest.slots)} slots")
        for key, state in states.items():
            # A rank may hold a share of the rows alone: what it computed is written down, and the comparison names it.
            share = rank is not None and state.ndim == len(shape) and 0 < state.shape[0] < tokens
            if (state.shape[1:] != shape[1:] if share else state.shape != shape) or state.dtype != dtype:
                raise ValueError(f"{name}: {key} is {tuple(state.shape)} {state.dtype}, not {shape} {dtype}")
        tensors = {**RankIds(token_ids, sampled_ids).tensors(), **states}
        for key, vector in ((LOSS_MASK, loss_mask), (DRAFT_INPUT, draft_input)):
            if vector is not None:
                if vector.shape[0] != tokens:
                    raise ValueError(f"{name}: {key} is {tuple(vector.shape)}, not ({tokens}, ...)")
                tensors[key] = vector.to(torch.int64) if key == LOSS_MASK else vector
        file = self._next_file
        _write_tensors(self.folder / file, tensors)
        entry = CapturedSequence(
            name=self._unique(name),
            file=file,
            tokens=tokens,
            first_position=first_position,
            ranks=[] if rank is None else [rank, *self._other_ranks],
            draft_input=draft_input_is,
            modes=[plain(mode) for mode in modes[:MAX_MODES] if mode],
            forwards=forwards,
        )
        self._sequences.append(entry)
        self._other_ranks = []
        self._names.add(entry.name)
        if len(self._sequences) % MANIFEST_EVERY == 0:
            self._write_manifest()

    def write_rank(self, rank: str, ids: RankIds, slots: Sequence[torch.Tensor]) -> None:
        """Writes what another rank has of the sequence that ``write`` is called for next: one rank's at a time is held.

        Args:
            rank: its name.
            ids: as this rank has them.
            slots: ``[T, H]`` each, or the rank's share of them.

        Raises:
            InputError: the file can't be written.
        """
        folder = self.folder / RANKS_FOLDER / rank
        folder.mkdir(parents=True, exist_ok=True)
        _write_tensors(folder / self._next_file, {**ids.tensors(), **{slot_key(i): s for i, s in enumerate(slots)}})
        self._other_ranks.append(rank)

    @property
    def _next_file(self) -> str:
        return f"sequence_{len(self._sequences):06d}.safetensors"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self._sequences:
            (self.folder / MANIFEST_NAME).unlink(missing_ok=True)
            return
        self._manifest = msgspec.structs.replace(self._manifest, complete=kind is None and not self._is_cut_short)
        self._write_manifest()

    @property
    def _is_cut_short(self) -> bool:
        return self._manifest.live is not None and bool(self._manifest.live.incomplete)

    def _write_manifest(self) -> None:
        write_manifest(self.folder, self.manifest)

    def _unique(self, name: str) -> str:
        name = name_of(name[:1000])  # room for the number below the manifest's bound
        unique, count = name, 1
        while unique in self._names:
            count += 1
            unique = f"{name} ({count})"
        return unique


def _write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # One boundary may be two slots; the file format wants memory of its own for each.
    seen: set[int] = set()
    stored: dict[str, torch.Tensor] = {}
    for key, tensor in tensors.items():
        owned = tensor.detach().cpu().contiguous()
        stored[key] = owned.clone() if owned.data_ptr() in seen else owned
        seen.add(stored[key].data_ptr())
    try:
        with replace_when_written(path, private=True) as temporary:
            save_file(stored, temporary)
    except SafetensorError as failure:  # how the library tells a full disk
        raise InputError(path, f"can't be written ({failure})") from failure


def _remove_former(folder: Path) -> None:
    """Removes what a former capture left in a folder of its own making; anything else stays."""
    for path in folder.rglob("*"):
        if FILE_NAME.fullmatch(path.name) or (path.name == MANIFEST_NAME and is_capture(path.parent)):
            path.unlink()


def check_output(folder: str | Path, *, overwrite: bool) -> None:
    """Whether a capture may be written there, asked before anything is computed.

    Raises:
        InputError: it isn't a directory, can't be made or written to, isn't empty and ``overwrite`` is false, or holds
            a manifest.json that isn't a capture's (other tools use that name too).
    """
    folder = Path(folder)
    try:
        content = _content(folder)
    except (OSError, ValueError) as error:  # the latter of a NUL in it
        found = getattr(error, "strerror", None) or str(error)
        raise InputError(folder, found, expected="a directory to write a capture to") from error
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


def _content(folder: Path) -> list[str]:
    """The names in a folder in which a file can be made; one that isn't there is made for that, and goes again.

    Raises:
        OSError, ValueError: none can.
    """
    made = [parent for parent in (folder, *folder.parents) if not os.path.lexists(parent)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = os.listdir(folder)  # noqa: PTH208  names are all that is needed
        with tempfile.TemporaryFile(dir=folder):
            return content
    finally:
        for parent in made:
            with suppress(OSError):
                parent.rmdir()
