"""The part files that workers left in a spool: headers are checked, rows are read when they are asked for.

Shape letters: n rows of a file, T tokens of a sequence, W values a row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from eagle_parity.capture.spool.files import PER_TOKEN
from eagle_parity.errors import InputError
from eagle_parity.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

_INTEGERS = {"I64", "I32"}


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
        except (SafetensorError, OSError) as error:
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
        TypeError, RecursionError: neither is its header.
        KeyError: a tensor is missing.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = file.metadata() or {}
        numbers = [int(number) for number in json.loads(header.get("requests", "[]"))]
        request = file.get_tensor("request")
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  safe_open is no mapping
        shapes = {name: tuple(one.get_shape()) for name, one in slices.items()}
        dtypes = {name: str(one.get_dtype()) for name, one in slices.items()}
    states, share = _checked(kind, numbers, request, shapes, dtypes)
    rows = {number: (request == index).nonzero().flatten() for index, number in enumerate(numbers)}
    return PartFile(path, header.get("mode", ""), states, share, rows)


def _checked(
    kind: str,
    numbers: Sequence[int],
    request: torch.Tensor,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
) -> tuple[dict[str, StateShape], bool]:
    """The states of a part, and whether they are a share of its rows.

    Raises:
        ValueError: it isn't what the spool says that a part is.
        KeyError: a tensor is missing.
    """
    import torch

    if request.ndim != 1 or request.dtype != torch.int64 or not 0 < len(set(numbers)) == len(numbers) <= len(request):
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
    return {name: StateShape(dtypes[name], shape[1]) for name, shape in states.items()}, share


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
