"""One forward of SGLang by the tensors that its dumper wrote: whose it is, and which rows belong to which request.

What a forward gives its logits processor is what reaches the head: the auxiliary states (argument 4 of
``LogitsProcessor.forward``) and the state after the final norm (argument 1). Their rows are those of all requests of
the batch, one behind the other, as in ``input_ids`` and ``positions``; ``seq_lens`` and ``rids`` have an entry a
request.
The forward's mode is in no file, but each leaves its mark (SGLang 0.5.23, ``forward_batch_info.py``,
``layers/logits_processor.py``; seen in real dumps):

- A prompt, or a chunk of one: a request's positions run up to ``seq_lens`` - 1, and there are logits for its last row
  only, so fewer rows of logits than of states.
- Decoding: one row a request.
- Draft tokens under verification: positions start at ``seq_lens``, and there are logits for every row.
- The draft's own forwards: one state as wide as the hidden state, where the target gives several.

Shape letters: T rows of the batch, B requests, H hidden size, K slots.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from eagle_parity.readers.containers import read_table
from eagle_parity.readers.containers.stored_tensor import INTEGER_DTYPES, UnreadableFileError, read_integers
from eagle_parity.readers.containers.tensor_table import shorten
from eagle_parity.readers.reader import all_alike, check_slot_count, is_state, split_columns
from eagle_parity.readers.sglang_dumper import is_dumped, meta_of, parse_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from eagle_parity.readers.containers.stored_tensor import Source, StoredTensor
    from eagle_parity.readers.containers.tensor_table import TensorTable

TOKEN_IDS = "input_ids"  # noqa: S105  a tensor's name
POSITIONS = "positions"
LENGTHS = "seq_lens"
REQUESTS = "rids"

_PROCESSOR = re.compile(
    r"non_intrusive__(?:[A-Za-z0-9_]+\.)*logits_processor\."
    r"(?:inputs\.(?P<argument>[014])(?:\.(?P<slot>[0-9]{1,4}))?|output\.(?P<logits>next_token_logits))"
)
_IDS_AGAIN, _LAST_STATE, _AUX = "0", "1", "4"
LOGITS = "logits"

_RANK = 2
MAX_ROWS = 1024 * 1024
"""Of a forward; servers take 16,384 tokens at once, or some times as many. More are refused before they are read."""

_FEWEST_SLOTS = 2
"""A target's forward that gives one state looks as the draft's do."""


class Whose(StrEnum):
    """What a forward was, as far as its auxiliary states tell."""

    TARGET = "target"
    ONE_STATE = "draft"
    """One state as wide as the hidden state: the draft's, or that of a target with a single slot."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The files of one forward on one rank, by what they hold.

    Attributes:
        vectors: ``input_ids``, ``positions``, ``seq_lens``, ``rids``. More than one file where a tensor was recorded
            more than once on the way; they must agree.
        slots: a list's entries by their number; -1 for a single tensor.
        last_state: as the logits processor got it.
        ids_again: the token ids that the logits processor got.
        logits: for the next tokens.
    """

    vectors: Mapping[str, Sequence[Path]]
    slots: Mapping[int, Sequence[Path]]
    last_state: Sequence[Path]
    ids_again: Sequence[Path]
    logits: Sequence[Path]


def sort_parts(files: Sequence[tuple[str, Path]]) -> Parts:
    """Sorts the files of one forward, given by tensor name and path; others are left out."""
    vectors: dict[str, list[Path]] = {}
    slots: dict[int, list[Path]] = {}
    others: dict[str, list[Path]] = {_LAST_STATE: [], _IDS_AGAIN: [], LOGITS: []}
    for name, path in files:
        if name in {TOKEN_IDS, POSITIONS, LENGTHS, REQUESTS}:
            vectors.setdefault(name, []).append(path)
        elif match := _PROCESSOR.fullmatch(name):
            if match["argument"] == _AUX:
                slots.setdefault(-1 if match["slot"] is None else int(match["slot"]), []).append(path)
            elif match["logits"] or match["slot"] is None:
                others[match["argument"] or LOGITS].append(path)
    return Parts(vectors, slots, others[_LAST_STATE], others[_IDS_AGAIN], others[LOGITS])


def is_relevant(name: str) -> bool:
    """Whether a tensor of this name is one of a forward's parts."""
    return name in {TOKEN_IDS, POSITIONS, LENGTHS, REQUESTS} or _PROCESSOR.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor and the file that it is in."""

    source: Source
    stored: StoredTensor


@dataclass(frozen=True, slots=True)
class States:
    """The states of one forward, of which no number has been read.

    Attributes:
        slots: ``[T, H]`` each.
        last_state: ``[T, H]``, where it was recorded.
        whose: see there.
        rows: T.
    """

    slots: tuple[Placed, ...]
    last_state: Placed | None
    whose: Whose
    rows: int

    @property
    def hidden_size(self) -> int:
        """H."""
        return self.slots[0].stored.shape[1]

    @property
    def dtype(self) -> str:
        """As stored."""
        return self.slots[0].stored.dtype


@dataclass(frozen=True, slots=True)
class Request:
    """The rows of one request in a forward.

    Attributes:
        rid: its id; None where they weren't recorded.
        start: its first row.
        stop: the first row behind it.
        position: of its first row in its sequence.
        prompt: whether the rows are tokens of a text for certain: the first of one, or the following ones with the
            mark of a prompt.
    """

    rid: str | None
    start: int
    stop: int
    position: int
    prompt: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Which rows of a forward are whose.

    Attributes:
        requests: in the order of the rows; empty where the rows are draft tokens under verification.
        verification: whether they are.
    """

    requests: tuple[Request, ...]
    verification: bool = False


def read_states(parts: Parts) -> States:
    """The states of a forward that has some.

    Raises:
        UnreadableFileError: they are none, or are recorded twice.
    """
    last = _only_tensor(parts.last_state, "the last state") if parts.last_state else None
    if last is not None and not is_state(last.stored, _RANK):
        raise UnreadableFileError(f"the logits processor's states are {last.stored}; expected floats [T, H]")
    numbers = sorted(parts.slots)
    if numbers not in ([-1], list(range(len(numbers)))):
        raise UnreadableFileError(f"auxiliary states numbered {numbers[:8]}: some of them are missing")
    tensors = [_only_tensor(parts.slots[number], "an auxiliary state") for number in numbers]
    if not all(is_state(t.stored, _RANK) for t in tensors) or not all_alike([t.stored for t in tensors]):
        told = ", ".join(str(t.stored) for t in tensors[:4])
        raise UnreadableFileError(f"auxiliary states {told}; expected floats [T, H] of one width and dtype")
    slots = tuple(tensors) if numbers != [-1] else _unpack(tensors[0], last)
    rows = {t.stored.shape[0] for t in (*slots, *([] if last is None else [last]))}
    if len(rows) > 1:
        raise UnreadableFileError(f"auxiliary states and last state of {sorted(rows)} rows: they are of two forwards")
    if last is not None and last.stored.shape[1] != slots[0].stored.shape[1]:
        raise UnreadableFileError(
            f"auxiliary states {slots[0].stored.shape[1]:,} wide and a last state {last.stored.shape[1]:,} wide"
        )
    check_slot_count(len(slots))
    whose = Whose.TARGET if len(slots) >= _FEWEST_SLOTS else Whose.ONE_STATE
    return States(slots, last, whose, rows.pop())


def _unpack(packed: Placed, last: Placed | None) -> tuple[Placed, ...]:
    """The slots of one tensor: DeepSeek's ``[T, K*H]``, or a single state."""
    if last is None:
        raise UnreadableFileError(
            f"one auxiliary tensor {packed.stored} and no state of the logits processor beside it, whose width would"
            " tell how many slots it is: record logits_processor.inputs.1 too"
        )
    width, hidden_size = packed.stored.shape[1], last.stored.shape[1]
    if width % hidden_size:
        raise UnreadableFileError(f"auxiliary states {width:,} wide, no multiple of the last state's {hidden_size:,}")
    check_slot_count(width // hidden_size)
    return tuple(Placed(packed.source, slot) for slot in split_columns(packed.stored, hidden_size))


def read_batch(parts: Parts, rows: int) -> Batch:
    """Which rows are whose.

    Raises:
        UnreadableFileError: a vector is missing, or they don't fit to each other or to the rows.
    """
    positions, lengths = (integers_of(parts, name) for name in (POSITIONS, LENGTHS))
    if len(positions) != rows or len(check_token_ids(parts)) != rows:
        raise UnreadableFileError(
            f"{rows} rows of states with {len(positions)} positions: padded, split over ranks, or of two forwards"
        )
    rids = _request_ids(parts, len(lengths))
    logits = _only_tensor(parts.logits, "the logits").stored if parts.logits else None
    # One row of logits a request, of more rows: no verification, which has logits for all.
    prompts = logits is not None and len(logits.shape) == _RANK and logits.shape[0] == len(lengths) < rows
    requests: list[Request] = []
    at = 0
    for rid, length in zip(rids, lengths, strict=True):
        first = positions[at] if at < rows else length
        stop = at + length - first
        if not (0 <= first < length and stop <= rows and positions[at:stop] == list(range(first, length))):
            break
        requests.append(Request(rid, at, stop, first, prompt=first == 0 or (prompts and stop - at > 1)))
        at = stop
    else:
        if at == rows:
            return Batch(tuple(requests))
    if _are_drafted(positions, lengths):
        return Batch((), verification=True)
    raise UnreadableFileError(
        f"{rows} rows whose positions aren't those of {len(lengths)} requests of {LENGTHS}: which row is whose token"
        " isn't known (padding, or a mode of forward that isn't known here)"
    )


def _are_drafted(positions: Sequence[int], lengths: Sequence[int]) -> bool:
    """Whether each request has as many rows, all behind its sequence."""
    if not lengths or len(positions) % len(lengths):
        return False
    each = len(positions) // len(lengths)
    return all(
        position >= length for b, length in enumerate(lengths) for position in positions[b * each : (b + 1) * each]
    )


def check_token_ids(parts: Parts) -> list[int]:
    """The token ids ``[T]``.

    Raises:
        UnreadableFileError: the logits processor got others: the files are of two forwards.
    """
    ids = integers_of(parts, TOKEN_IDS)
    if parts.ids_again and ids != _integers(parts.ids_again, "the logits processor's token ids"):
        raise UnreadableFileError("the forward and its logits processor have other token ids: files of two recordings")
    return ids


def integers_of(parts: Parts, name: str) -> list[int]:
    """One of the vectors.

    Raises:
        UnreadableFileError: it wasn't recorded, is no vector of integers, or is recorded twice and differs.
    """
    files = parts.vectors.get(name, ())
    if not files:
        raise UnreadableFileError(f"no {name} of this forward in the dump: its rows belong to no known tokens")
    return _integers(files, name)


def _integers(files: Sequence[Path], what: str) -> list[int]:
    found: list[list[int]] = []
    for path in files:
        placed = _tensor(path, what)
        stored = placed.stored
        if stored.dtype not in INTEGER_DTYPES or len(stored.shape) != 1 or stored.stride != (1,):
            raise UnreadableFileError(f"{what} is {stored}; expected integers, one a row")
        if stored.shape[0] > MAX_ROWS:
            raise UnreadableFileError(f"{what} has {stored.shape[0]:,} rows; at most {MAX_ROWS:,} are read")
        found.append(read_integers(placed.source, stored))
    if any(other != found[0] for other in found):
        raise UnreadableFileError(f"{what} was recorded {len(found)} times and differs: two recordings in one folder?")
    return found[0]


def _request_ids(parts: Parts, count: int) -> Sequence[str | None]:
    files = parts.vectors.get(REQUESTS, ())
    if not files:
        return [None] * count
    rids = read_dumped(files[0]).objects.get("value")
    if not isinstance(rids, list) or len(rids) != count or not all(isinstance(rid, str) for rid in rids):
        raise UnreadableFileError(f"{REQUESTS} isn't one name a request")
    return rids


def _only_tensor(files: Sequence[Path], what: str) -> Placed:
    if len(files) != 1:
        raise UnreadableFileError(
            f"{what} is in {len(files)} files of one forward: the dumper was reset and wrote into the same folder"
        )
    return _tensor(files[0], what)


def _tensor(path: Path, what: str) -> Placed:
    table = read_dumped(path)
    stored = table.tensors.get("value")
    if stored is None:
        raise UnreadableFileError(f"{what} ({shorten(path.name)}) is no tensor")
    return Placed(table.source, stored)


def read_dumped(path: Path) -> TensorTable:
    """A file of the dumper that is what its name says.

    Raises:
        UnreadableFileError: it isn't the dumper's, is damaged, or says something else of itself.
    """
    table = read_table(path)
    if not is_dumped(table):
        raise UnreadableFileError(f"{shorten(path.name)} has the dumper's name, but isn't a file of it")
    meta, named = meta_of(table), parse_name(path.name)
    said = (meta.get("step"), meta.get("rank"), meta.get("name"))
    if named is None or said != (named.step, named.rank, named.name):
        raise UnreadableFileError(f"{shorten(path.name)} was renamed: it says that it is {shorten(str(said))}")
    return table
