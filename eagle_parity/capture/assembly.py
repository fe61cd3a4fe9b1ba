"""From the parts that the workers left in a spool to whole sequences, by request and position, never by order.

Nothing is held but headers: a sequence's rows are read when it is asked for. The spool may be a copy that was fetched
from another host.

Shape letters: T tokens of a sequence, H hidden size, K slots.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from eagle_parity.capture.rank_record import RankRecord, read_record
from eagle_parity.capture.spool.files import BOUNDARY_KEY, PART_NAME, PER_TOKEN, RECORD_NAME
from eagle_parity.errors import InputError
from eagle_parity.quoting import one_line
from eagle_parity.wiring import EMBEDDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import torch

_BESIDE = re.compile(rf"{re.escape(BOUNDARY_KEY)}[0-9]{{1,4}}")
_INTEGERS = {"I64", "I32"}

DraftInputState: TypeAlias = Literal["equal", "differs", "normed", "absent"]
MAX_RUNS_NAMED = 4
"""Gaps of a sequence that a message names."""


@dataclass(frozen=True)
class AssembledRank:
    """One sequence as one rank recorded it.

    Attributes:
        token_ids: int64 ``[T]``.
        slots: ``[T, H]`` each.
        beside: boundaries that were recorded beside the slots, ``[T, H]`` each.
        last_state: ``[T, H]``.
        draft_input: ``[T, K * H]``; None where the rank didn't record it whole, or it is known to be no other.
        draft_input_is: what is known of it.
        modes: the engine's words for the forwards that it came from.
        forwards: how many there were.
        sampled_ids: int64 ``[T]``, of generated rows the token that the rank chose behind each.
    """

    token_ids: torch.Tensor
    slots: tuple[torch.Tensor, ...]
    last_state: torch.Tensor | None
    draft_input: torch.Tensor | None
    modes: tuple[str, ...]
    forwards: int
    beside: Mapping[int, torch.Tensor] = field(default_factory=dict)
    sampled_ids: torch.Tensor | None = None
    draft_input_is: DraftInputState = "absent"

    def with_input_judged(self, *, normed: bool) -> AssembledRank:
        """Itself with the state of its draft input, which is kept where it differs: it is as large as all slots."""
        state = draft_input_state(self, normed=normed)
        kept = self.draft_input if state == "differs" else None
        return replace(self, draft_input=kept, draft_input_is=state)

    @property
    def states(self) -> tuple[torch.Tensor, ...]:
        """The slots, with the embedding in front of them and the last boundary behind where these are there."""
        first = (self.beside[EMBEDDING],) if EMBEDDING in self.beside else ()
        return (*first, *self.slots, *(self.beside[k] for k in sorted(self.beside) if k != EMBEDDING))


@dataclass(frozen=True)
class Incomplete:
    """Why a rank's rows are no whole sequence.

    Attributes:
        missing: runs of positions without a row, ends excluded.
        rows: rows that are there.
        reason: what else is wrong with them, where it isn't that any is missing.
    """

    missing: tuple[tuple[int, int], ...]
    rows: int
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        named = ", ".join(f"{start} to {stop - 1}" for start, stop in self.missing[:MAX_RUNS_NAMED])
        more = len(self.missing) - MAX_RUNS_NAMED
        return f"no rows of positions {named}" + (f" and {more} more gaps" if more > 0 else "")


@dataclass
class _Part:
    path: Path
    mode: str
    states: Mapping[str, tuple[str, int]]
    """Dtype and width of each tensor that is a state."""
    share: bool
    """Whether the states are a rank's share of the rows, which says nothing of which ones these are."""
    rows: dict[int, torch.Tensor] = field(default_factory=dict)
    """Indices of each request's rows, int64."""


class SessionParts:
    """The parts of one session.

    Args:
        folder: ``<spool>/<session>``.

    Attributes:
        ranks: the records, by rank name.

    Raises:
        InputError: there is no such folder, or a record is no record of this version of the hook.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ranks: dict[str, RankRecord] = {}
        self._parts: dict[tuple[str, str, int], list[_Part]] = defaultdict(list)
        self._ranks: dict[tuple[str, int], set[str]] = defaultdict(set)  # by kind and request
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError as error:
            raise InputError(
                folder, error.strerror or str(error), expected="what the capture hook wrote for this session"
            ) from error
        for name in names:
            if match := RECORD_NAME.fullmatch(name):
                self.ranks[match["rank"]] = read_record(folder / name, match["rank"])
        matches = [
            match
            for name in names
            if (match := PART_NAME.fullmatch(name)) and match["rank"] in self.ranks and (folder / name).is_file()
        ]
        for match in sorted(matches, key=lambda match: int(match["part"])):  # the later row of a position counts
            self._index(folder / match[0], match["rank"], match["kind"])

    def ranks_of(self, number: int) -> list[str]:
        """The ranks that stored rows of a request, in natural order."""
        return sorted(self._ranks.get(("aux", number), ()), key=_natural)

    def shape_of(self, rank: str, number: int) -> tuple[int, int, bool]:
        """How a request was computed: in how many forwards, from which position on, and whether it was alone in all."""
        parts = self._parts.get((rank, "aux", number), [])
        first = min((int(part.min()) for part in self._positions(rank, "aux", number)), default=0)
        return len(parts), first, all(len(part.rows) == 1 for part in parts)

    def is_whole(self, rank: str, number: int, tokens: int, *, first: int = 0) -> bool:
        """Whether a rank has every row of a request, and every row of the head's input where it has any of that.

        Reads positions alone, so it may be asked again and again.

        Args:
            rank: whose rows.
            number: of the request.
            tokens: T, as it was sent.
            first: the position that the sequence begins with.
        """
        kinds = ("aux", "draft") if ("draft", number) in self._ranks else ("aux",)
        return all(self._order(rank, kind, number, tokens, first) for kind in kinds)

    def assemble(self, rank: str, number: int, tokens: int, *, first: int = 0) -> AssembledRank | Incomplete:
        """One request's rows of one rank, in the order of their positions.

        Where a position was computed twice (an engine that preempted the request computes it again), the later row
        counts: it is the one that the head was fed. Where the rank's states are a share of the rows, they are given as
        they are.

        Args:
            rank: whose rows.
            number: of the request.
            tokens: T, as it was sent.
            first: the position that the sequence begins with; rows before it are neither needed nor given.
        """
        order = _latest(self._positions(rank, "aux", number), tokens)[first:]
        if (order < 0).any():
            runs = tuple((start + first, stop + first) for start, stop in _runs(order < 0))
            return Incomplete(runs, int((order >= 0).sum()))
        return self._gather("aux", rank, number, order, self._draft_input(rank, number, tokens, first))

    def generated_forwards(self, rank: str, number: int) -> int:
        """In how many forwards a rank accepted rows of a request's generated tokens."""
        return len(self._parts.get((rank, "generated", number), []))

    def assemble_generated(self, rank: str, number: int, first: int, tokens: int) -> AssembledRank | Incomplete:
        """One request's rows of generated tokens as one rank accepted them, from a position on until one is missing.

        Its token ids are the rank's own: ranks may choose different ones. Where they accepted different numbers of
        drafts too, rows are missing on the rank that accepted fewer.

        Args:
            rank: whose rows.
            number: of the request.
            first: the position of the first generated token, which is the prompt's length.
            tokens: rows that are wanted at most.
        """
        order = _latest(self._positions(rank, "generated", number), first + tokens)[first:]
        missing = (order < 0).nonzero().flatten()
        order = order[: int(missing[0])] if len(missing) else order
        if not len(order):
            return Incomplete((), 0, "no row of a generated token")
        return self._gather("generated", rank, number, order, None)

    def _gather(
        self, kind: str, rank: str, number: int, order: torch.Tensor, draft_input: torch.Tensor | None
    ) -> AssembledRank | Incomplete:
        parts = self._parts.get((rank, kind, number), [])
        reason = _unlike(parts)
        if reason:
            return Incomplete((), len(order), reason)

        def whole(name: str) -> torch.Tensor:
            rows = self._rows(kind, rank, number, name)
            return rows if parts[0].share and name in parts[0].states else rows[order]

        names = set(parts[0].states)
        slots = _slots(whole, names, _hidden_size(self.ranks.get(rank)))
        if isinstance(slots, str):
            return Incomplete((), len(order), slots)
        return AssembledRank(
            token_ids=whole("token_ids").to(_int64()),
            slots=slots,
            last_state=whole("last_state") if "last_state" in names else None,
            draft_input=draft_input,
            modes=tuple(dict.fromkeys(part.mode for part in parts)),
            forwards=len(parts),
            beside={
                int(name.removeprefix(BOUNDARY_KEY)): whole(name) for name in sorted(names) if _BESIDE.fullmatch(name)
            },
            sampled_ids=whole("sampled_ids").to(_int64()) if kind == "generated" else None,
        )

    def _order(self, rank: str, kind: str, number: int, tokens: int, first: int) -> bool:
        return bool((_latest(self._positions(rank, kind, number), tokens)[first:] >= 0).all())

    def _draft_input(self, rank: str, number: int, tokens: int, first: int) -> torch.Tensor | None:
        parts = self._parts.get((rank, "draft", number), [])
        order = _latest(self._positions(rank, "draft", number), tokens)[first:]
        if not parts or parts[0].share or (order < 0).any() or _unlike(parts):
            return None
        return self._rows("draft", rank, number, "draft_input")[order]

    def _positions(self, rank: str, kind: str, number: int) -> list[torch.Tensor]:
        return self._read(kind, rank, number, "positions")

    def _rows(self, kind: str, rank: str, number: int, name: str) -> torch.Tensor:
        import torch

        return torch.cat(self._read(kind, rank, number, name))

    def _read(self, kind: str, rank: str, number: int, name: str) -> list[torch.Tensor]:
        from safetensors import SafetensorError, safe_open

        read = []
        for part in self._parts.get((rank, kind, number), ()):
            try:
                with safe_open(part.path, framework="pt") as file:
                    tensor = file.get_tensor(name)
            except (SafetensorError, OSError) as error:
                raise InputError(part.path, f"can't be read any more ({one_line(error)})") from error
            read.append(tensor if part.share and name in part.states else tensor[part.rows[number]])
        return read

    def _index(self, path: Path, rank: str, kind: str) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                numbers = [int(number) for number in json.loads(header.get("requests", "[]"))]
                request = file.get_tensor("request")
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  safe_open is no mapping
                shapes = {name: tuple(one.get_shape()) for name, one in slices.items()}
                dtypes = {name: str(one.get_dtype()) for name, one in slices.items()}
            states, share = _checked_part(kind, numbers, request, shapes, dtypes)
        except (SafetensorError, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            self.ranks[rank].unreadable.append(f"{path.name} can't be read ({one_line(error)})")
            return
        part = _Part(path, header.get("mode", ""), states, share)
        for index, number in enumerate(numbers):
            part.rows[number] = (request == index).nonzero().flatten()
            self._parts[rank, kind, number].append(part)
            self._ranks[kind, number].add(rank)


def _checked_part(
    kind: str,
    numbers: Sequence[int],
    request: torch.Tensor,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
) -> tuple[dict[str, tuple[str, int]], bool]:
    """The states of a part, and whether they are a share of its rows.

    Raises:
        ValueError: it isn't what the spool says that a part is.
        KeyError: a tensor is missing.
    """
    if request.ndim != 1 or request.dtype != _int64() or not 0 < len(set(numbers)) == len(numbers) <= len(request):
        raise ValueError(f"request is {tuple(request.shape)} {request.dtype}, of {len(numbers)} requests")
    rows = len(request)
    for name in ("token_ids", "positions", *(("sampled_ids",) if kind == "generated" else ())):
        if shapes[name] != (rows,) or dtypes[name] not in _INTEGERS:
            raise ValueError(f"{name} is {shapes[name]} {dtypes[name]}, not ({rows},) of integers")
    states = {name: shape for name, shape in shapes.items() if name != "request" and name not in PER_TOKEN}
    wanted = ("draft_input",) if kind == "draft" else ("slot.0", "packed")
    if not any(name in states for name in wanted):
        raise ValueError(f"it has no {' and no '.join(wanted)}")
    share = False
    for name, shape in states.items():
        if len(shape) != 2 or not 0 < shape[0] <= rows or shape[1] < 1:  # noqa: PLR2004  rows, values
            raise ValueError(f"{name} is {shape}, and the part has {rows} rows")
        share |= shape[0] < rows
    if share and len(numbers) > 1:
        raise ValueError("a rank's share of the rows of several requests")
    return {name: (dtypes[name], shape[1]) for name, shape in states.items()}, share


def _unlike(parts: Sequence[_Part]) -> str:
    """Why the forwards of one request can't be put together; empty where they can."""
    if any(part.states != parts[0].states for part in parts):
        return "its forwards recorded states of different kinds"
    return "a rank's share of the rows of several forwards" if parts[0].share and len(parts) > 1 else ""


def _int64() -> torch.dtype:
    import torch

    return torch.int64


def draft_input_state(assembled: AssembledRank, *, normed: bool) -> DraftInputState:
    """Whether what the head's ``fc`` got is the slots side by side, bit for bit, in the dtype that the head has.

    Args:
        assembled: a sequence of one rank.
        normed: whether the head normalises before ``fc``, and what was recorded stands behind that.
    """
    import torch

    if assembled.draft_input is None:
        return "absent"
    if normed:
        return "normed"
    widths = [slot.shape[1] for slot in assembled.slots]
    if assembled.draft_input.shape[1] != sum(widths):
        return "differs"
    chunks = torch.split(assembled.draft_input, widths, dim=1)
    same = all(_is_same(slot, chunk) for slot, chunk in zip(assembled.slots, chunks, strict=True))
    return "equal" if same else "differs"


def _is_same(slot: torch.Tensor, chunk: torch.Tensor) -> bool:
    if slot.shape != chunk.shape:
        return False
    # A head of another dtype than the target's gets the states cast; a NaN that it gets is the target's fault.
    cast = slot.to(chunk.dtype)
    return bool(((cast == chunk) | (cast.isnan() & chunk.isnan())).all())


def _slots(whole: Any, names: set[str], hidden_size: int | None) -> tuple[torch.Tensor, ...] | str:
    """The slots, or why they can't be told apart."""
    if "packed" in names:
        packed: torch.Tensor = whole("packed")
        if hidden_size is None or packed.shape[1] % hidden_size:
            return f"its states are one tensor of {packed.shape[1]} values a row, no multiple of {hidden_size or 'H'}"
        return tuple(packed.chunk(packed.shape[1] // hidden_size, dim=1))
    slots = sorted((name for name in names if name.startswith("slot.")), key=_natural)
    if slots != [f"slot.{index}" for index in range(len(slots))]:
        return f"its slots are {', '.join(slots)}"
    return tuple(whole(name) for name in slots)


def _hidden_size(record: RankRecord | None) -> int | None:
    target = record.facts.get("target") if record is not None else None
    size = target.get("hidden_size") if isinstance(target, dict) else None
    return size if isinstance(size, int) and size > 0 else None


def _latest(pieces: Sequence[torch.Tensor], tokens: int) -> torch.Tensor:
    """For each position below ``tokens`` the index of its last row; -1 where there is none."""
    import torch

    positions = torch.cat(list(pieces)) if pieces else torch.empty(0).long()
    order = torch.full((tokens,), -1)
    inside = ((positions >= 0) & (positions < tokens)).nonzero().flatten()
    # An indexed assignment with repeated indices keeps any of them; the greatest is the latest.
    return order.scatter_reduce(0, positions[inside].long(), inside, reduce="amax")


def _runs(missing: torch.Tensor) -> tuple[tuple[int, int], ...]:
    return tuple(_consecutive(missing.nonzero().flatten().tolist()))


def _consecutive(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = previous = None
    for position in positions:
        if previous is None or position != previous + 1:
            if start is not None and previous is not None:
                yield start, previous + 1
            start = position
        previous = position
    if start is not None and previous is not None:
        yield start, previous + 1


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", name) if piece)
