"""``hidden_states [T, S, H]`` in float8 with a scale a token: hs-connectors 0.9.0.

``fp8_hidden_states_connector.py`` divides each token's states by one scale, ``hidden_states_scales [T, 1, 1]``, which
the largest of them sets. A last state with large values takes precision from the slots of early layers. Otherwise the
files are those of vLLM's connector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.readers.containers.stored_tensor import QUANTISED_DTYPES, STATE_DTYPES, UnreadableFileError
from eagle_parity.readers.reader import Reader, Recognised
from eagle_parity.readers.stacked import MOONCAKE_CONTAINER, SCALES, STATES, TOKEN_IDS, is_quantised, stacked

if TYPE_CHECKING:
    from eagle_parity.readers.companions import Companions
    from eagle_parity.readers.containers.stored_tensor import StoredTensor
    from eagle_parity.readers.containers.tensor_table import TensorTable

_RANK = 3


def _recognise(table: TensorTable, companions: Companions) -> Recognised | None:
    if table.container == MOONCAKE_CONTAINER:
        return None
    return quantised(table, companions, format="stacked-fp8", writer="hs-connectors 0.9.0 in FP8")


def quantised(
    table: TensorTable,
    companions: Companions,
    *,
    format: str,  # noqa: A002  as Layout calls it
    writer: str,
) -> Recognised | None:
    """The file as stacked states with scales; None where it has none.

    Raises:
        UnreadableFileError: states and scales don't belong together.
    """
    states = table.tensors.get(STATES)
    if states is None or TOKEN_IDS not in table.tensors or not is_quantised(table):
        return None
    if states.dtype not in QUANTISED_DTYPES or len(states.shape) != _RANK or not states.shape[-1]:
        raise UnreadableFileError(f"{STATES} is {states} with {SCALES} beside it; expected float8 [T, S, H]")
    scales = table.tensors.get(SCALES)
    if scales is None:
        raise UnreadableFileError(f"{STATES} is {states} without {SCALES}, which say what the float8 numbers are")
    return stacked(table, companions, format=format, writer=writer, scales=_scale_vector(scales, states.shape[0]))


def _scale_vector(scales: StoredTensor, tokens: int) -> StoredTensor:
    """``[T]`` from ``[T, 1, 1]``."""
    vector = scales
    while len(vector.shape) > 1 and vector.shape[-1] == 1:
        vector = vector.at(len(vector.shape) - 1, 0)
    if vector.dtype not in STATE_DTYPES or vector.shape != (tokens,):
        raise UnreadableFileError(f"{SCALES} is {scales}; expected floats [{tokens}, 1, 1], one a token")
    return vector


STACKED_FP8 = Reader("stacked-fp8", "hs-connectors 0.9.0, FP8HiddenStatesConnector", _recognise)
