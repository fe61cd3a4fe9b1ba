"""From the parts that the workers left in a spool to whole sequences, by request and position, never by order.

Nothing is held but headers: a sequence's rows are read when it is asked for. The spool may be a copy that was fetched
from another host.

Shape letters: T tokens of a sequence, H hidden size, K slots.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from eagle_parity.capture.spool import BOUNDARY_KEY, SPOOL_VERSION
from eagle_parity.errors import InputError
from eagle_parity.quoting import one_line
from eagle_parity.wiring import EMBEDDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import torch

_PART = re.compile(r"(?P<rank>[a-z0-9.]{1,40})-(?P<part>[0-9]{6,})-(?P<kind>aux|draft)\.safetensors")
_BESIDE = re.compile(rf"{re.escape(BOUNDARY_KEY)}[0-9]{{1,4}}")
_RANK_FILE = re.compile(r"(?P<rank>[a-z0-9.]{1,40})\.json")
MAX_RECORD_BYTES = 4 * 1024 * 1024
MAX_RUNS_NAMED = 4
"""Gaps of a sequence that a message names."""


@dataclass(frozen=True)
class RankRecord:
    """What a worker wrote about itself.

    Attributes:
        rank: its name.
        content: the record, JSON values; ``eagle_parity.capture.spool.rank_record`` has the keys.
    """

    rank: str
    content: Mapping[str, Any]

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the hook read from the live objects."""
        facts = self.content.get("facts")
        return facts if isinstance(facts, dict) else {}

    @property
    def parallel(self) -> dict[str, int]:
        """Sizes and ranks."""
        found = self.facts.get("parallel")
        return {str(k): v for k, v in found.items() if isinstance(v, int)} if isinstance(found, dict) else {}

    @property
    def group(self) -> str:
        """The ranks that compute the same rows: one pipeline stage of one data-parallel replica."""
        data = self.parallel.get("attn_dp_rank", 0) or self.parallel.get("dp_rank", 0)
        return f"dp{data}"

    @property
    def group_size(self) -> int:
        """How many ranks such a group has."""
        return max(1, self.parallel.get("attn_tp_size", self.parallel.get("tp_size", 1)))


@dataclass(frozen=True)
class AssembledRank:
    """One sequence as one rank recorded it.

    Attributes:
        token_ids: int64 ``[T]``.
        slots: ``[T, H]`` each.
        beside: boundaries that were recorded beside the slots, ``[T, H]`` each.
        last_state: ``[T, H]``.
        draft_input: ``[T, K * H]``; None where the rank didn't record it whole.
        modes: the engine's words for the forwards that it came from.
        forwards: how many there were.
    """

    token_ids: torch.Tensor
    slots: tuple[torch.Tensor, ...]
    last_state: torch.Tensor | None
    draft_input: torch.Tensor | None
    modes: tuple[str, ...]
    forwards: int
    beside: Mapping[int, torch.Tensor] = field(default_factory=dict)

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
    """

    missing: tuple[tuple[int, int], ...]
    rows: int

    def __str__(self) -> str:
        named = ", ".join(f"{start} to {stop - 1}" for start, stop in self.missing[:MAX_RUNS_NAMED])
        more = len(self.missing) - MAX_RUNS_NAMED
        return f"no rows of positions {named}" + (f" and {more} more gaps" if more > 0 else "")


@dataclass
class _Part:
    path: Path
    mode: str
    rows: dict[int, torch.Tensor] = field(default_factory=dict)
    """Indices of each request's rows, int64."""


class SessionParts:
    """The parts of one session.

    Args:
        folder: ``<spool>/<session>``.

    Attributes:
        ranks: the records, by rank name.
        unreadable: parts that can't be read, with the reason.

    Raises:
        InputError: there is no such folder, or a record is of another version of the hook.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ranks: dict[str, RankRecord] = {}
        self.unreadable: list[tuple[str, str]] = []
        self._parts: dict[tuple[str, str, int], list[_Part]] = defaultdict(list)
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError as error:
            raise InputError(
                folder, error.strerror or str(error), expected="what the capture hook wrote for this session"
            ) from error
        for name in names:
            if match := _RANK_FILE.fullmatch(name):
                self.ranks[match["rank"]] = _read_record(folder / name, match["rank"])
        for name in names:
            if match := _PART.fullmatch(name):
                self._index(folder / name, match["rank"], match["kind"])

    def ranks_of(self, number: int) -> list[str]:
        """The ranks that stored rows of a request, in natural order."""
        found = {rank for rank, kind, request in self._parts if request == number and kind == "aux"}
        return sorted(found, key=_natural)

    def shape_of(self, rank: str, number: int) -> tuple[int, int, bool]:
        """How a request was computed: in how many forwards, from which position on, and whether it was alone in all."""
        parts = self._parts.get((rank, "aux", number), [])
        collected = self._collect(rank, "aux", number)
        first = min((int(rows["positions"].min()) for rows, _ in collected), default=0)
        return len(parts), first, all(len(part.rows) == 1 for part in parts)

    def assemble(self, rank: str, number: int, tokens: int, *, first: int = 0) -> AssembledRank | Incomplete:
        """One request's rows of one rank, in the order of their positions.

        Where a position was computed twice (an engine that preempted the request computes it again), the later row
        counts: it is the one that the head was fed.

        Args:
            rank: whose rows.
            number: of the request.
            tokens: T, as it was sent.
            first: the position that the sequence begins with; rows before it are neither needed nor given.
        """
        import torch

        collected = self._collect(rank, "aux", number)
        positions = torch.cat([rows["positions"] for rows, _ in collected]) if collected else torch.empty(0).long()
        order = _latest(positions, tokens)[first:]
        if (order < 0).any():
            runs = tuple((start + first, stop + first) for start, stop in _runs(order < 0))
            return Incomplete(runs, int((order >= 0).sum()))

        def whole(name: str) -> torch.Tensor:
            return torch.cat([rows[name] for rows, _ in collected])[order]

        names = set.intersection(*(set(rows) for rows, _ in collected))
        slots = _slots(whole, names, _hidden_size(self.ranks.get(rank)))
        return AssembledRank(
            token_ids=whole("token_ids").to(torch.int64),
            slots=slots,
            last_state=whole("last_state") if "last_state" in names else None,
            draft_input=self._draft_input(rank, number, tokens, first),
            modes=tuple(dict.fromkeys(mode for _, mode in collected)),
            forwards=len(collected),
            beside={
                int(name.removeprefix(BOUNDARY_KEY)): whole(name) for name in sorted(names) if _BESIDE.fullmatch(name)
            },
        )

    def _draft_input(self, rank: str, number: int, tokens: int, first: int) -> torch.Tensor | None:
        import torch

        collected = self._collect(rank, "draft", number)
        if not collected:
            return None
        order = _latest(torch.cat([rows["positions"] for rows, _ in collected]), tokens)[first:]
        if (order < 0).any():
            return None
        return torch.cat([rows["draft_input"] for rows, _ in collected])[order]

    def _collect(self, rank: str, kind: str, number: int) -> list[tuple[dict[str, torch.Tensor], str]]:
        from safetensors import safe_open

        collected = []
        for part in self._parts.get((rank, kind, number), ()):
            with safe_open(part.path, framework="pt") as file:
                names = [name for name in file.keys() if name != "request"]  # noqa: SIM118  safe_open is no mapping
                collected.append(({name: file.get_tensor(name)[part.rows[number]] for name in names}, part.mode))
        return collected

    def _index(self, path: Path, rank: str, kind: str) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                numbers = [int(number) for number in json.loads(header.get("requests", "[]"))]
                request = file.get_tensor("request")
        except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
            self.unreadable.append((path.name, one_line(error)))
            return
        part = _Part(path, header.get("mode", ""))
        for index, number in enumerate(numbers):
            part.rows[number] = (request == index).nonzero().flatten()
            self._parts[rank, kind, number].append(part)


def is_spooled_name(name: object, rank: str) -> bool:
    """Whether a file of a session's folder may be called so by a rank: a plain name of the spool's own making."""
    if not isinstance(name, str):
        return False
    match = _PART.fullmatch(name) or _RANK_FILE.fullmatch(name)
    return match is not None and match["rank"] == rank


def draft_input_state(assembled: AssembledRank, *, normed: bool) -> Literal["equal", "differs", "normed", "absent"]:
    """Whether what the head's ``fc`` got is the slots side by side, bit for bit.

    Args:
        assembled: a sequence of one rank.
        normed: whether the head normalises before ``fc``, and what was recorded stands behind that.
    """
    import torch

    if assembled.draft_input is None:
        return "absent"
    if normed:
        return "normed"
    return "equal" if torch.equal(torch.cat(assembled.slots, dim=1), assembled.draft_input) else "differs"


def _slots(whole: Any, names: set[str], hidden_size: int | None) -> tuple[torch.Tensor, ...]:
    if "packed" in names:
        packed: torch.Tensor = whole("packed")
        count = packed.shape[1] // hidden_size if hidden_size else 1
        return tuple(packed.chunk(count, dim=1))
    return tuple(whole(name) for name in sorted((n for n in names if n.startswith("slot.")), key=_natural))


def _hidden_size(record: RankRecord | None) -> int | None:
    target = record.facts.get("target") if record is not None else None
    size = target.get("hidden_size") if isinstance(target, dict) else None
    return size if isinstance(size, int) and size > 0 else None


def _latest(positions: torch.Tensor, tokens: int) -> torch.Tensor:
    """For each position below ``tokens`` the index of its last row; -1 where there is none."""
    import torch

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


def _read_record(path: Path, rank: str) -> RankRecord:
    expected = f"a rank's record, spool_version {SPOOL_VERSION}"
    try:
        if path.stat().st_size > MAX_RECORD_BYTES:
            raise InputError(path, "too large", expected=expected)
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(path, error.strerror or str(error), expected=expected) from error
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"not JSON ({one_line(error)})", expected=expected) from error
    version = content.get("spool_version") if isinstance(content, dict) else None
    if version != SPOOL_VERSION:
        raise InputError(
            path,
            f"spool_version {version}",
            expected=expected,
            remedy="the hook in the server and this command are of different releases of eagle-parity: use one",
        )
    return RankRecord(rank, content)
