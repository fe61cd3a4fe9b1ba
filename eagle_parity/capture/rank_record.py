"""What a worker wrote about itself into the spool, checked before it is believed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from eagle_parity.capture.format import MAX_HIDDEN_SIZE, encodable
from eagle_parity.capture.spool.files import SPOOL_VERSION
from eagle_parity.errors import InputError
from eagle_parity.input_files import read_bounded
from eagle_parity.quoting import one_line, plain
from eagle_parity.wiring import MAX_BOUNDARIES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_RECORD_BYTES = 4 * 1024 * 1024
_EXPECTED = f"a rank's record, spool_version {SPOOL_VERSION}"

_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=8192)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=65_536)]
_Layer: TypeAlias = Annotated[int, msgspec.Meta(ge=-MAX_BOUNDARIES, lt=MAX_BOUNDARIES)]


class _Engine(msgspec.Struct):
    name: _Text
    version: _Text | None = None


class _Target(msgspec.Struct):
    num_layers: Annotated[int, msgspec.Meta(ge=1, lt=MAX_BOUNDARIES)] | None = None
    hidden_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_HIDDEN_SIZE)] | None = None
    dtype: _Text | None = None
    model_class: _Text | None = None
    config: dict[str, Any] | None = None
    layer_set: dict[_Text, list[_Layer]] | None = None


class _Draft(msgspec.Struct):
    model_class: _Text | None = None
    fc_class: _Text | None = None
    fc_weight: list[_Count] | None = None
    normed_before_fc: bool = False
    config: dict[str, Any] | None = None


class _Facts(msgspec.Struct):
    parallel: dict[_Text, _Rank] = {}
    server: dict[_Text, bool | int | float | _Text | None] = {}
    variants: dict[_Text, _Text] = {}
    tap: _Text = ""
    engine: _Engine | None = None
    target: _Target | None = None
    draft: _Draft | None = None


class _Record(msgspec.Struct):
    """What a record has to be like: what is read of it later on is of these types, whoever wrote it."""

    rank: _Text
    session: _Text
    parts: _Count
    tokens: _Count
    limit: _Text | None
    skipped: dict[_Text, _Count]
    failures: list[_Text]
    facts: _Facts
    seconds: Annotated[float, msgspec.Meta(ge=0, lt=2**53)] | None = None


@dataclass(frozen=True)
class RankRecord:
    """What a worker wrote about itself.

    Attributes:
        rank: its name.
        content: the record, JSON values; ``eagle_parity.capture.spool.session`` has the keys.
        unreadable: parts of this rank that can't be read, with the reason.
    """

    rank: str
    content: Mapping[str, Any]
    unreadable: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """What went wrong in this rank's hook, or with what it wrote."""
        return [*self.content.get("failures", ()), *self.unreadable]

    @property
    def limit(self) -> str | None:
        """The limit that the rank has reached: it stores nothing more of the session."""
        limit: str | None = self.content.get("limit")
        return limit

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
        """The ranks that compute the same rows: those of one data-parallel replica, or of one part of its attention."""
        data = self.parallel.get("attn_dp_rank", 0) or self.parallel.get("dp_rank", 0)
        return f"dp{data}"

    @property
    def group_size(self) -> int:
        """How many ranks such a group has."""
        return max(1, self.parallel.get("attn_tp_size", self.parallel.get("tp_size", 1)))


def _encodable(value: Any) -> Any:
    """JSON values without lone surrogates: of a path in a server's options that is no UTF-8, for one."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    if isinstance(value, dict):
        return {encodable(name): _encodable(one) for name, one in value.items()}
    return value


def read_record(path: Path, rank: str) -> RankRecord:
    """Reads and checks a rank's record.

    Args:
        path: of the file.
        rank: by the file's name.

    Raises:
        InputError: it can't be read, is no record, of another version of the hook, or that of another rank.
    """
    return record_of(read_bounded(path, MAX_RECORD_BYTES, expected=_EXPECTED), path, rank)


def record_of(data: bytes, path: str | Path, rank: str) -> RankRecord:
    """Checks what a rank's record says.

    Args:
        data: the file's content.
        path: of the file, or what else it came from.
        rank: whose it has to be.

    Raises:
        InputError: it is no record, of another version of the hook, or that of another rank.
    """
    expected = _EXPECTED
    try:
        content = _encodable(json.loads(data))
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
    try:
        msgspec.convert(content, _Record)
    except msgspec.ValidationError as error:
        raise InputError(path, f"no rank's record ({one_line(error)})", expected=expected) from error
    if content["rank"] != rank:
        raise InputError(path, f"the record of {plain(content['rank'])}", expected=f"that of {rank}")
    return RankRecord(rank, content)
