"""``{value, meta}``: one tensor of SGLang's dumper, which is known here and can't be compared.

SGLang 0.5.10 and newer, ``debug_utils/dumper.py``: a file a tensor, step and rank, named ``k=v___k=v.pt``. With all of
a step's files the slots (``logits_processor.inputs.4.K``) and ids could be joined; which rows are whose request's only
the positions tell, and what a prefix cache held is in no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.readers.containers.stored_tensor import UnreadableFileError
from eagle_parity.readers.reader import Reader, Recognised

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

_KEYS = frozenset({"value", "meta"})


def _recognise(table: TensorTable, _: Companions) -> Recognised | None:
    if {*table.tensors, *table.lists, *table.others} != _KEYS or "meta" not in table.others:
        return None
    value = table.tensors.get("value", "no tensor")
    raise UnreadableFileError(
        f"one tensor of SGLang's dumper ({value}): a file a tensor, step and rank. Token ids, positions and the other"
        " states of its rows are in other files of the step, for all requests of the batch together and for target and"
        " draft under the same names; they aren't put together here, so its rows belong to no known tokens. Let the"
        " same prompts be stored in a layout with token ids (docs/formats.md)"
    )


SGLANG_DUMPER = Reader("sglang-dumper", "SGLang's dumper (debug_utils)", _recognise)
