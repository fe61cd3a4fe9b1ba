"""What an engine makes of ``d2t``: a head's map from the tokens of its own vocabulary to the target's.

``d2t[k]`` is what is added to ``k``, the head's own number of a token, to get the target's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eagle_parity.drafts import VOCAB_MAP
from eagle_parity.engines.failures import Failure, FailureKind

if TYPE_CHECKING:
    from eagle_parity.drafts import Draft
    from eagle_parity.targets import Target


class VocabMapRule(msgspec.Struct, frozen=True):
    """What an engine makes of a draft with a map, and without one, in a range of versions.

    Attributes:
        whole: why a draft of the target's whole vocabulary doesn't load with a map, with the error that the engine
            prints; "" where the map is read.
        pruned: what becomes of a draft of a smaller vocabulary without a map, as part of a sentence.
        first, last: versions, inclusive.
        source: where it was read.
    """

    whole: str
    pruned: str
    first: str
    last: str
    source: str


def judge_vocab_map(rule: VocabMapRule | None, draft: Draft, target: Target) -> Failure | None:
    """Why a draft doesn't load because of its map; None where it does, or where the weights' names aren't known."""
    if rule is None or not rule.whole or draft.tensors is None or VOCAB_MAP not in draft.tensors:
        return None
    if draft.output_size is None or draft.output_size != target.vocab_size:
        return None
    return Failure(FailureKind.VOCAB_MAP, at_load=True, words=rule.whole)


def has_smaller_vocabulary(draft: Draft, target: Target) -> bool:
    """Whether a head chooses from fewer tokens than its target."""
    return draft.output_size is not None and target.vocab_size is not None and draft.output_size < target.vocab_size


def lacks_vocab_map(draft: Draft) -> bool:
    """Whether there are weights, those of an EAGLE-3 head, and no map in them."""
    # Engines look for the letters anywhere in a name.
    return (
        draft.tensors is not None
        and draft.fc_shape is not None
        and not any(VOCAB_MAP in name for name in draft.tensors)
    )
