"""An object of hs-connectors' Mooncake store, saved with the ``kv_transfer_params`` of its response.

Sources: hs-connectors 0.9.0, ``mooncake_store.py``. The object has the tensors of vLLM's connector files, so what those
can't say it can't either. Releases before 0.9 kept an object a tensor (``KEY:hidden_states``): those aren't read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.readers.reader import Reader, Recognised
from eagle_parity.readers.stacked import MOONCAKE_CONTAINER, STATES, is_quantised, stacked
from eagle_parity.readers.stacked_fp8 import quantised

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.tensor_table import TensorTable

_WRITER = "an object of hs-connectors' Mooncake store"


def _recognise(table: TensorTable, companions: Companions) -> Recognised | None:
    if table.container != MOONCAKE_CONTAINER or STATES not in table.tensors:
        return None
    read = quantised if is_quantised(table) else stacked
    return read(table, companions, format="mooncake", writer=_WRITER)


MOONCAKE = Reader("mooncake", "hs-connectors 0.9.0, Mooncake store", _recognise)
