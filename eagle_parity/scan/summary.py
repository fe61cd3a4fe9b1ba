"""The summary of a scan as a file: the state itself, so that it can be gone on from and compared with later.

One safetensors file: the tensors of the state, and everything else as JSON in its metadata.

Shape letters: N sequences, S states, H hidden size, G groups, R ranges with files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from eagle_parity.errors import InputError
from eagle_parity.files import write_atomically
from eagle_parity.numerics.row_sample import RowSample
from eagle_parity.numerics.set_moments import GROUPS, RANGES, SetMoments, Sums
from eagle_parity.readers import SUMMARY_KEY
from eagle_parity.scan.set_state import (
    DIGEST_BYTES,
    MAX_LAYOUTS,
    STAMP_BYTES,
    Counts,
    LayoutKey,
    LayoutState,
    Problem,
    SetState,
)

if TYPE_CHECKING:
    import numpy.typing as npt

SCHEMA_VERSION = 1
KIND = "eagle-parity scan summary"
EXPECTED = "a summary that `eagle-parity scan --summary` wrote"
MAX_METADATA_BYTES = 16 * 1024 * 1024
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a scan has come, and of what.

    Attributes:
        root: of the set, as it was given.
        rows: of each sequence that were looked at; None for all.
        first_token: as it was given.
        parts: that are done, from the first on.
        files: that these have, from the first on.
        listed: a digest of the list of files.
        complete: whether that is all of them.
    """

    root: str
    rows: Annotated[int, msgspec.Meta(ge=1)] | None
    first_token: int | None
    parts: _Count
    files: _Count
    listed: str
    complete: bool


class _Layout(msgspec.Struct, frozen=True, kw_only=True):
    key: LayoutKey
    example: str
    files: _Count
    seen: _Count
    group_files: list[_Count]
    group_rows: list[_Count]
    ranges: list[tuple[Annotated[int, msgspec.Meta(ge=0, lt=RANGES)], _Count, _Count]]


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int
    kind: str
    progress: Progress
    counts: dict[str, _Count]
    shortest: _Count | None
    longest: _Count | None
    problems: dict[str, tuple[_Count, list[tuple[str, str]]]]
    layouts: Annotated[list[_Layout], msgspec.Meta(max_length=MAX_LAYOUTS)]
    other_layouts: _Count


def write_summary(path: str | Path, state: SetState, progress: Progress) -> None:
    """Writes a summary in one step; it holds rows of states and digests of texts, so it is readable by its owner only.

    Raises:
        InputError: it can't be written.
    """
    tensors: dict[str, npt.NDArray[Any]] = {
        "digests": np.frombuffer(b"".join(state.digests), np.uint8).reshape(-1, DIGEST_BYTES),
        "places": state.places_N2,
        "stamps": np.frombuffer(b"".join(state.stamps), np.uint8).reshape(-1, STAMP_BYTES),
    }
    layouts = []
    for place, (key, layout) in enumerate(state.layouts.items()):
        moments, sample = layout.moments, layout.sample
        ranges = sorted(moments.ranges.items())
        layouts.append(
            _Layout(
                key=key,
                example=layout.example,
                files=layout.files,
                seen=sample.seen,
                group_files=[group.files for group in moments.groups],
                group_rows=[group.rows for group in moments.groups],
                ranges=[(number, sums.files, sums.rows) for number, sums in ranges],
            )
        )
        none_2SH = np.zeros((0, 2, *moments.least_SH.shape))
        tensors |= {
            f"{place}.groups": np.stack([group.sums_2SH for group in moments.groups]),
            f"{place}.ranges": np.stack([sums.sums_2SH for _, sums in ranges]) if ranges else none_2SH,
            f"{place}.extremes": np.stack([moments.least_SH, moments.greatest_SH]),
            f"{place}.sample": sample.rows_NSH,
            f"{place}.priorities": sample.priorities_N,
        }
    content = _Content(
        schema_version=SCHEMA_VERSION,
        kind=KIND,
        progress=progress,
        counts=dict(vars(state.counts)),
        shortest=state.shortest,
        longest=state.longest,
        problems={kind: (problem.count, problem.examples) for kind, problem in state.problems.items()},
        layouts=layouts,
        other_layouts=state.other_layouts,
    )
    data = save(tensors, metadata={SUMMARY_KEY: msgspec.json.encode(content).decode()})
    write_atomically(path, data, private=True)


def read_summary(path: str | Path) -> tuple[SetState, Progress]:
    """Reads a summary, complete or not.

    Raises:
        InputError: it is none, or is damaged.
    """
    path = Path(path)
    try:
        with safe_open(path, "numpy") as file:
            text = (file.metadata() or {}).get(SUMMARY_KEY)
            if text is None or len(text) > MAX_METADATA_BYTES:
                raise InputError(path, "no summary of a scan", expected=EXPECTED)
            content = _read_content(path, text)
            digests, places, stamps = (file.get_tensor(name) for name in ("digests", "places", "stamps"))
            _check(
                content.kind == KIND
                and _is(digests, np.uint8, (len(places), DIGEST_BYTES))
                and _is(places, np.int64, (len(digests), 2))
                and _is(stamps, np.uint8, (content.progress.files, STAMP_BYTES))
                and (not len(places) or 0 <= places[:, 0].min() <= places[:, 0].max() < content.progress.files),
                "sequences",
            )
            state = SetState(
                counts=Counts(**content.counts),
                shortest=content.shortest,
                longest=content.longest,
                problems={kind: Problem(count, examples) for kind, (count, examples) in content.problems.items()},
                digests=[digests.tobytes()],
                places=[places],
                stamps=[bytes(stamp) for stamp in stamps],
                other_layouts=content.other_layouts,
            )
            for place, told in enumerate(content.layouts):
                state.layouts[told.key] = LayoutState(told.example, told.files, *_measured(file, place, told))
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError(path, f"no summary that can be read ({str(error)[:100]})", expected=EXPECTED) from error
    return state, content.progress


def _is(tensor: npt.NDArray[Any], dtype: npt.DTypeLike, shape: tuple[int, ...]) -> bool:
    return tensor.dtype == dtype and tensor.shape == shape


def _check(fits: bool, what: str) -> None:  # noqa: FBT001  a condition
    if not fits:
        raise ValueError(f"tensors of {what} that don't fit")


def _read_content(path: Path, text: str) -> _Content:
    try:
        version = json.loads(text).get("schema_version")
        if version != SCHEMA_VERSION:
            raise InputError(path, f"schema_version {version!r}", expected=f"{EXPECTED}, schema_version 1")
        return msgspec.json.decode(text, type=_Content)
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(path, f"no summary of a scan ({str(error)[:100]})", expected=EXPECTED) from error


def _measured(file: Any, place: int, told: _Layout) -> tuple[SetMoments, RowSample]:
    groups, ranges, extremes, rows, priorities = (
        file.get_tensor(f"{place}.{name}") for name in ("groups", "ranges", "extremes", "sample", "priorities")
    )
    key = told.key
    shape = (key.slots + (key.last_state == "stored"), key.hidden_size)
    _check(
        len(told.group_rows) == len(told.group_files) == GROUPS
        and len({number for number, _, _ in told.ranges}) == len(told.ranges)
        and _is(groups, np.float64, (GROUPS, 2, *shape))
        and _is(ranges, np.float64, (len(told.ranges), 2, *shape))
        and _is(extremes, np.float32, (2, *shape))
        and _is(rows, np.float32, (len(priorities), *shape))
        and _is(priorities, np.uint64, (len(rows),)),
        f"layout {place}",
    )
    moments = SetMoments(
        [Sums(s, f, r) for s, f, r in zip(groups, told.group_files, told.group_rows, strict=True)],
        extremes[0],
        extremes[1],
        {number: Sums(sums, files, count) for sums, (number, files, count) in zip(ranges, told.ranges, strict=True)},
    )
    sample = RowSample(*shape)
    sample.update(priorities, rows, seen=told.seen)
    return moments, sample
