"""``{value, meta}``: one tensor of SGLang's dumper; a folder of them is read by ``sglang_dump``.

SGLang 0.5.10 and newer, ``debug_utils/dumper.py`` (``_dump_single``): a file a tensor, forward and rank, named
``step=0___rank=0___dump_index=4___name=input_ids___recompute_status=disabled.pt``. ``meta`` repeats what the name
says and adds the ranks. Alone it can't be compared: token ids, positions and the other states of its rows are in other
files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eagle_parity.readers.containers.stored_tensor import UnreadableFileError
from eagle_parity.readers.reader import Reader, Recognised

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

_KEYS = frozenset({"value", "meta"})
_SUFFIX = ".pt"

_OWN_TAGS = frozenset({"step", "rank", "dump_index", "name", "recompute_status"})
_RANK_TAGS = frozenset({"pp_rank", "tp_rank", "cp_rank", "ep_rank", "etp_rank"})
"""Which ``DUMPER_INCLUDE_PARALLEL_RANK_IN_FILENAME`` adds."""

MAX_NUMBER = 2**62


@dataclass(frozen=True, slots=True)
class DumpName:
    """What the name of a dumper's file says.

    Attributes:
        step: the forward, counted by each rank since its dumper was reset.
        rank: in the world of all ranks.
        index: the tensor, counted likewise.
        name: of the tensor.
        context: whether the tensor was recorded inside something, such as a layer: ``positions`` is recorded once for
            a forward and once for each of its layers.
    """

    step: int
    rank: int
    index: int
    name: str
    context: bool


def parse_name(base: str) -> DumpName | None:
    """The parts of a file's name without its folder; None where it isn't the dumper's."""
    if not base.endswith(_SUFFIX):
        return None
    tags: dict[str, str] = {}
    for part in base[: -len(_SUFFIX)].split("___"):
        key, equals, value = part.partition("=")
        if not equals or key in tags:
            return None
        tags[key] = value
    if not tags.keys() >= {"step", "rank", "dump_index", "name"}:
        return None
    numbers = [tags[key] for key in ("step", "rank", "dump_index")]
    if not all(number.isascii() and number.isdigit() and len(number) < len(str(MAX_NUMBER)) for number in numbers):
        return None
    step, rank, index = (int(number) for number in numbers)
    return DumpName(step, rank, index, tags["name"], bool(tags.keys() - _OWN_TAGS - _RANK_TAGS))


def is_dumped(table: TensorTable) -> bool:
    """Whether a file is the dumper's, by its content."""
    return {*table.tensors, *table.lists, *table.others} == _KEYS and "meta" in table.others


def meta_of(table: TensorTable) -> Mapping[Any, Any]:
    """What it says of itself; a stranger wrote it."""
    meta = table.objects.get("meta")
    return meta if isinstance(meta, dict) else {}


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    if not is_dumped(table):
        return None
    value = table.tensors.get("value", "no tensor")
    raise UnreadableFileError(
        f"one tensor of SGLang's dumper ({value}): a file a tensor, forward and rank. Token ids, positions and the"
        " other states of its rows are in other files, so its rows belong to no known tokens: pass the folder with all"
        " of them"
    )


SGLANG_DUMPER = Reader("sglang-dumper", "SGLang's dumper (debug_utils)", _recognise)
