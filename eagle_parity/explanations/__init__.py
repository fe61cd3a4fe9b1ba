"""The explanations: one hypothesis a file, tried on states that are no known state as they stand.

That a slot holds another boundary, another slot, the last state or the embedding needs no hypothesis: the measurement
compares with all of them. What is listed here transforms a state. Adding one is one file and one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.explanations.missing_residual import WITHOUT_RESIDUAL
from eagle_parity.explanations.norm_stage import NORMED_STATE
from eagle_parity.explanations.scaled import SCALED_STATE
from eagle_parity.explanations.token_shift import SHIFTED_TOKENS

if TYPE_CHECKING:
    from eagle_parity.explanations.explanation import Explanation

EXPLANATIONS: tuple[Explanation, ...] = (SHIFTED_TOKENS, SCALED_STATE, WITHOUT_RESIDUAL, NORMED_STATE)
