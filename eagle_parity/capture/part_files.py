"""The part files that workers left in a spool: headers are checked, rows are read when they are asked for.

Shape letters: n rows of a file, T tokens of a sequence, W values a row.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from eagle_parity.capture.format import MAX_HIDDEN_SIZE, MAX_SEQUENCE_TOKENS
from eagle_parity.capture.spool.files import BOUNDARY_KEY, PER_TOKEN
from eagle_parity.capture.spool.request_ids import MAX_NUMBER
from eagle_parity.errors import InputError
from eagle_parity.quoting import one_line, plain, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

_INTEGERS = {"I64", "I32"}
_FLOATS = {"BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2"}
_STATE = re.compile(rf"(?P<alike>slot\.|{re.escape(BOUNDARY_KEY)})(0|[1-9][0-9]{{0,3}})|packed|last_state|draft_input")
"""The names that the spool's own files have; those of the first kind are states of one model, all of one shape."""

MAX_STATES = 512
"""Of one file: every boundary of a model four times as deep as any. Each is read by itself, and each reading parses
the file's header."""
MAX_WIDTH = MAX_HIDDEN_SIZE * MAX_STATES
"""Values a row: of all states side by side."""


class StateShape(NamedTuple):
    """Of a state in a part file: its dtype as safetensors names it, and values a row."""

    dtype: str
    width: int


@dataclass(frozen=True)
class PartFile:
    """One of them.

    Attributes:
        path: the file.
        mode: the engine's word for the forward.
        states: by name, what isn't ``PER_TOKEN``.
        share: whether the states are a rank's share of the rows, which says nothing of which ones these are.
        rows: indices of each request's rows, int64.
    """

    path: Path
    mode: str
    states: Mapping[str, StateShape]
    share: bool
    rows: Mapping[int, torch.Tensor] = field(default_factory=dict)

    def read(self, name: str, columns: slice | None = None) -> torch.Tensor:
        """A whole tensor ``[n]`` or ``[n, W]``, or some of its columns.

        Raises:
            InputError: the file isn't any more what it was.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, framework="pt") as file:
                read: torch.Tensor = file.get_tensor(name) if columns is None else file.get_slice(name)[:, columns]
                return read
        except (SafetensorError, OSError, RuntimeError) as error:  # the last one of what is too large to be mapped
            raise InputError(self.path, f"can't be read any more ({one_line(error)})") from error


def open_part(path: Path, kind: str) -> PartFile:
    """Reads and checks a file's header and the requests of its rows; no state.

    Args:
        path: of the file.
        kind: by its name.

    Raises:
        SafetensorError: it is no safetensors file.
        OSError: it can't be read.
        ValueError: it isn't what the spool says that a part is.
        TypeError, RuntimeError: neither is its header, or it is too large to be mapped.
        KeyError: a tensor is missing.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = file.metadata() or {}
        numbers = _numbers(header.get("requests", "[]"))
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  safe_open is no mapping
        shapes = {name: tuple(one.get_shape()) for name, one in slices.items()}
        dtypes = {name: str(one.get_dtype()) for name, one in slices.items()}
        states, share = _checked(kind, numbers, shapes, dtypes)
        request = file.get_tensor("request")
    return PartFile(path, header.get("mode", ""), states, share, _rows_of(numbers, request))


def _numbers(stated: str) -> list[int]:
    """The requests of a header.

    Raises:
        ValueError: they are none, or one is there twice.
    """
    numbers = json.loads(stated)
    if not isinstance(numbers, list) or not all(type(one) is int and 0 <= one <= MAX_NUMBER for one in numbers):
        raise ValueError(f"its requests are {quoted(numbers)}")
    if len(set(numbers)) < len(numbers):
        raise ValueError("one request is there twice")
    return numbers


def _rows_of(numbers: Sequence[int], request: torch.Tensor) -> dict[int, torch.Tensor]:
    """Indices of each request's rows, ascending, in one pass: a file may have as many requests as rows."""
    import torch

    named = ((request >= 0) & (request < len(numbers))).nonzero().flatten()
    ours = request[named]
    by_request = named[torch.argsort(ours, stable=True)]
    counts = torch.bincount(ours, minlength=len(numbers)).tolist()
    return dict(zip(numbers, torch.split(by_request, counts), strict=True))


def _checked(
    kind: str,
    numbers: Sequence[int],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
) -> tuple[dict[str, StateShape], bool]:
    """The states of a part, and whether they are a share of its rows; of a header alone, nothing is read.

    Raises:
        ValueError: it isn't what the spool says that a part is.
        KeyError: a tensor is missing.
    """
    request = shapes["request"]
    if len(request) != 1 or dtypes["request"] != "I64" or not 0 < len(numbers) <= request[0] <= MAX_SEQUENCE_TOKENS:
        raise ValueError(f"request is {request} {dtypes['request']}, of {len(numbers)} requests")
    rows = request[0]
    for name in ("token_ids", "positions", *(("sampled_ids",) if kind == "generated" else ())):
        if shapes[name] != (rows,) or dtypes[name] not in _INTEGERS:
            raise ValueError(f"{name} is {shapes[name]} {dtypes[name]}, not ({rows},) of integers")
    states = {name: shape for name, shape in shapes.items() if name != "request" and name not in PER_TOKEN}
    wanted = ("draft_input",) if kind == "draft" else ("slot.0", "packed")
    if not any(name in states for name in wanted) or len(states) > MAX_STATES:
        raise ValueError(f"it has {len(states)} states; expected {' or '.join(wanted)}, and at most {MAX_STATES}")
    _check_states(states, dtypes, rows)
    share = any(shape[0] < rows for shape in states.values())
    if share and len(numbers) > 1:
        raise ValueError("a rank's share of the rows of several requests")
    return {name: StateShape(dtypes[name], shape[1]) for name, shape in states.items()}, share


def _check_states(states: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str], rows: int) -> None:
    """Whether they are states of one forward.

    Raises:
        ValueError: one isn't.
    """
    for name, shape in states.items():
        if _STATE.fullmatch(name) is None:
            raise ValueError(f"it has a tensor {plain(name)}, and a part has none of that name")
        if len(shape) != 2 or not 0 < shape[0] <= rows or not 0 < shape[1] <= MAX_WIDTH:  # noqa: PLR2004  rows, values
            raise ValueError(f"{name} is {shape}, and the part has {rows} rows")
        if dtypes[name] not in _FLOATS:
            raise ValueError(f"{name} is {dtypes[name]}; expected a state of floats")
    # How many rows of them a rank has may differ.
    alike = {(shape[1], dtypes[name]) for name, shape in states.items() if (m := _STATE.fullmatch(name)) and m["alike"]}
    if len(alike) > 1:
        told = " and ".join(f"{width} {dtype} a row" for width, dtype in sorted(alike)[:2])
        raise ValueError(f"its states aren't alike: {told}")


@dataclass(frozen=True)
class RequestRows:
    """Where the rows of one request lie in the parts of one rank.

    Attributes:
        number: of the request.
        parts: in the order of their numbers.
        order: int64 ``[T]``, for each position the index of its row among the request's rows of all parts.
    """

    number: int
    parts: Sequence[PartFile]
    order: torch.Tensor

    @property
    def states(self) -> Mapping[str, StateShape]:
        """What each part has, where they are alike."""
        return self.parts[0].states

    def unlike(self) -> str:
        """Why the forwards can't be put together; empty where they can."""
        if any(part.states != self.states for part in self.parts):
            return "its forwards recorded states of different kinds"
        return "a rank's share of the rows of several forwards" if self.parts[0].share and len(self.parts) > 1 else ""

    def read(self, name: str, columns: slice | None = None) -> torch.Tensor:
        """``[T]`` or ``[T, W]`` in the order of the positions; a share of the rows is given as it is.

        No more than the result and one part's tensor are held.

        Args:
            name: of the tensor.
            columns: of a state, where not all are wanted.

        Raises:
            InputError: a part can't be read any more.
        """
        import torch

        if self.parts[0].share and name in self.states:
            return self.parts[0].read(name, columns)
        whole: torch.Tensor | None = None
        before = 0
        for part in self.parts:
            rows = part.rows[self.number]
            here = ((self.order >= before) & (self.order < before + len(rows))).nonzero().flatten()
            picked = part.read(name, columns)[rows[self.order[here] - before]]
            before += len(rows)
            if len(here) == len(self.order):
                return picked
            if whole is None:
                whole = torch.empty(len(self.order), *picked.shape[1:], dtype=picked.dtype)
            whole[here] = picked
        assert whole is not None  # noqa: S101  a request without parts has no rows to be found
        return whole
