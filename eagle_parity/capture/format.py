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
``draft_input``    ``dtype``   ``[T, K * H]``, just where it isn't the slots side by side, bit for bit
``sampled_ids``    int64       ``[T]``, of generated rows: the token that this rank chose behind each
=================  ==========  =================================================

A capture of a running server has one more section in its manifest, ``live``, and what the other ranks computed in
``ranks/<rank>/`` under the same file names, each with ``token_ids`` and ``slot.*``. What was recorded under other
conditions (in a batch, in chunks, behind a warm prefix) is a capture of its own in ``conditions/<condition>/``. So is
what was generated behind the prompts, ``conditions/generate/``: there each rank's file has the rank's own token ids and
as many rows as this rank accepted in one run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import msgspec

from eagle_parity import __version__
from eagle_parity.errors import InputError
from eagle_parity.files import replace_when_written, write_atomically
from eagle_parity.quoting import plain
from eagle_parity.wiring import MAX_BOUNDARIES, BoundaryEntry, Wiring

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import torch

SCHEMA_VERSION: Literal[1] = 1
KIND: Literal["eagle-parity-capture"] = "eagle-parity-capture"
MANIFEST_NAME = "manifest.json"

TOKEN_IDS = "token_ids"  # noqa: S105  a tensor's name
LAST_STATE = "last_state"
LOSS_MASK = "loss_mask"
SAMPLED_IDS = "sampled_ids"
DRAFT_INPUT = "draft_input"

RANKS_FOLDER = "ranks"
CONDITIONS_FOLDER = "conditions"
GENERATE: Literal["generate"] = "generate"
"""The condition whose rows are those of generated tokens."""

MAX_MANIFEST_BYTES = 256 * 1024 * 1024
"""A sequence's entry is about 200 bytes, of eight ranks 320: room for 800,000 of them, and no more is parsed."""
MANIFEST_EVERY = 100
"""Sequences after which an unfinished recording's manifest is written again: what a killed process leaves readable."""
MAX_SEQUENCE_TOKENS = 2**24
"""Far above any context window; a file that claims more is refused before anything is allocated."""
MAX_HIDDEN_SIZE = 2**20
"""Far above any model; bounds what a hostile manifest can make a reader allocate for one row."""
MAX_MODES = 16
"""Engines have about ten kinds of forwards; what a spool's files claim beyond that is left out."""

_FILE_NAME = re.compile(r"sequence_\d{6,9}\.safetensors")
_RANK_NAME = re.compile(r"[a-z0-9.]{1,40}")
_EXPECTED = f"a capture's {MANIFEST_NAME}, schema_version {SCHEMA_VERSION}"

_Name = Annotated[str, msgspec.Meta(max_length=1024)]
_Text = Annotated[str, msgspec.Meta(max_length=8192)]


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
        first_position: of its first row in the sequence that was computed: above 0 behind a warm prefix, whose rows
            were in a cache and are not here, and of generated rows, behind their prompt.
        ranks: of a live capture, whose file this is, and then the other ranks that recorded the sequence whole.
        draft_input: of a live capture: whether what the head's ``fc`` got is the slots side by side, bit for bit;
            ``normed`` where the head normalises first and what it got can't be held against the slots.
        modes: of a live capture: the engine's words for the forwards that the main file's rows come from, in their
            order: ``EXTEND`` or ``MIXED`` (SGLang), ``runner v1`` (vLLM, whose forwards have no kinds).
    """

    name: _Name
    file: Annotated[str, msgspec.Meta(max_length=64)]
    tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQUENCE_TOKENS)]
    first_position: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE_TOKENS)] = 0
    ranks: list[_Name] = []
    draft_input: Literal["equal", "differs", "normed", "absent"] | None = None
    modes: Annotated[list[_Name], msgspec.Meta(max_length=MAX_MODES)] = []


class RankIds(NamedTuple):
    """Token ids as one rank has them: ``[T]`` of its rows, and of generated rows what it chose behind each."""

    token_ids: torch.Tensor
    sampled_ids: torch.Tensor | None = None

    def tensors(self) -> dict[str, torch.Tensor]:
        """As files have them."""
        import torch

        found = {TOKEN_IDS: self.token_ids, SAMPLED_IDS: self.sampled_ids}
        return {name: ids.to(torch.int64) for name, ids in found.items() if ids is not None}


class LiveRank(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of the server, as it described itself.

    Attributes:
        name: unique within the server, ``tp1``.
        group: ranks of one group compute the same rows; under attention data parallelism there are several.
        group_size: ranks that such a group has.
        parallel: sizes and ranks, ``{"tp_size": 2, "tp_rank": 1, ...}``.
        tokens: rows that it stored.
        seconds: that its hook took to copy and write them; None where it doesn't say.
        limit: why it stopped storing; None where it didn't.
        failures: of its hook.
        skipped: rows that it saw and did not store, by reason.
    """

    name: Annotated[str, msgspec.Meta(pattern=f"^{_RANK_NAME.pattern}$")]
    group: _Name
    group_size: Annotated[int, msgspec.Meta(ge=1, le=65_536)]
    parallel: dict[_Name, int]
    tokens: int
    seconds: float | None = None
    limit: _Text | None = None
    failures: list[_Text] = []
    skipped: dict[_Name, int] = {}


class IncompleteSequence(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence that was sent and that no rank recorded whole.

    Attributes:
        name: as for a sequence.
        reason: which rows are missing, and what to change.
    """

    name: _Name
    reason: _Text


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """What the server counted of drafts while it was captured.

    Attributes:
        drafts: verifications, each of one draft.
        draft_tokens: tokens that were drafted; None where the release doesn't count them.
        accepted_tokens: of these.
        output_tokens: that the server generated.
        source: where the counts stand.
        other_traffic: whether they include requests that weren't the capture's.
    """

    drafts: int
    accepted_tokens: int
    output_tokens: int
    source: _Text
    other_traffic: bool
    draft_tokens: int | None = None

    @property
    def length(self) -> float | None:
        """Tokens a verification: the accepted ones and the one that the target adds; None without any."""
        return None if not self.drafts else 1 + self.accepted_tokens / self.drafts

    @property
    def rate(self) -> float | None:
        """Share of the drafted tokens that were accepted."""
        return None if not self.draft_tokens else self.accepted_tokens / self.draft_tokens

    def told(self) -> dict[str, Any]:
        """The counts and what follows from them, as results have them under ``measurements.acceptance``."""
        return {**msgspec.to_builtins(self), "length": self.length, "rate": self.rate}


class LiveRecording(msgspec.Struct, frozen=True, kw_only=True):
    """What only a running server can say.

    Attributes:
        server: its address.
        session: the requests' mark, which the files of its spool bear too.
        tap: where in the engine the states were taken.
        target_class, draft_class: Python classes of the live modules.
        layer_set: what the live target captures, in the engine's own counting: ``list`` and ``flags``.
        draft_config: of the draft as the engine loaded it.
        settings: options of the server that decide what a capture can see.
        variants: by which of a release's ways the hook read what moved between releases.
        ranks: every worker that stored something.
        incomplete: the sequences that aren't in the capture.
        acceptance: None where the server counts nothing.
        conditions: what was recorded beside, each in ``conditions/<condition>/``.
        skipped_conditions: what was asked for and could not be, with the reason.
    """

    server: _Text
    session: _Name
    tap: _Text
    target_class: _Text | None = None
    draft_class: _Text | None = None
    layer_set: dict[_Name, list[int]] | None = None
    draft_config: dict[str, Any] | None = None
    settings: dict[_Name, bool | int | float | str | None] = {}
    variants: dict[_Name, _Text] = {}
    ranks: list[LiveRank] = []
    incomplete: list[IncompleteSequence] = []
    acceptance: Acceptance | None = None
    conditions: list[_Name] = []
    skipped_conditions: dict[_Name, _Text] = {}


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
        live: of a running server's capture.
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
    live: LiveRecording | None = None

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
        _check(self.folder / MANIFEST_NAME, self._manifest)
        self._sequences: list[CapturedSequence] = []
        self._names: set[str] = set()
        self._other_ranks: list[str] = []  # whose files of the next sequence are there
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
            for name in (RANKS_FOLDER, CONDITIONS_FOLDER):
                _remove_former(self.folder / name)
            self._write_manifest()
        except OSError as error:
            raise InputError(self.folder, f"can't be written to ({error.strerror or error})") from error
        return self

    def describe_live(self, live: LiveRecording) -> None:
        """Sets or replaces what the manifest says of the running server."""
        self._manifest = msgspec.structs.replace(self._manifest, live=live)

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
        name = name[:1000]  # room for the number below the manifest's bound
        unique, count = name, 1
        while unique in self._names:
            count += 1
            unique = f"{name} ({count})"
        return unique


def write_manifest(folder: str | Path, manifest: Manifest) -> None:
    """Writes a capture's manifest, atomically and with mode 0600."""
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    write_atomically(Path(folder) / MANIFEST_NAME, data, private=True)


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
        if _FILE_NAME.fullmatch(path.name) or (path.name == MANIFEST_NAME and is_capture(path.parent)):
            path.unlink()


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
