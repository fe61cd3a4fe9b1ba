"""Does a head of a smaller vocabulary say which of the target's tokens its own are?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.drafts import VOCAB_MAP
from eagle_parity.engines.vocab_map import has_smaller_vocabulary, lacks_vocab_map
from eagle_parity.findings import VOCAB_MAP_MISSING
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject
    from eagle_parity.engines.vocab_map import VocabMapRule

NAME = "vocab-map"

CONFIDENCE = 0.9
"""The files don't tell whether the head was trained on the first tokens in their order, as one without a map may be."""


def run(subject: ConfigSubject) -> Outcomes:
    """One error where the map is missing; nothing where no weights lie beside the config."""
    draft, target = subject.draft, subject.target
    rules = _rules(subject)
    if not rules or not has_smaller_vocabulary(draft, target):
        return
    if draft.fc_source is not None and draft.tensors is None:
        yield Skip(check=NAME, reason=f"not all of the draft's weights could be read, any may hold {VOCAB_MAP}")
        return
    if not lacks_vocab_map(draft):
        return
    pruned = sorted({rule.pruned for rule in rules.values()})
    yield VOCAB_MAP_MISSING.finding(
        f"The head chooses from {draft.output_size:,} tokens, the target from {target.vocab_size:,}, and the draft's"
        f" weights hold no {VOCAB_MAP}: {'; or '.join(pruned)}. That is right only for a head that was trained on the"
        f" first {draft.output_size:,} tokens in their order.",
        evidence={
            "draft_vocab_size": draft.output_size,
            "target_vocab_size": target.vocab_size,
            "tensors": len(draft.tensors or ()),
            "engines": {label: rule.source for label, rule in rules.items()},
        },
        confidence=CONFIDENCE,
    )


def _rules(subject: ConfigSubject) -> Mapping[str, VocabMapRule]:
    """The rule of each engine that takes the draft, by the engine as named."""
    return {
        str(evaluation.name): rule
        for evaluation in subject.engines
        if evaluation.judged and evaluation.version is not None
        if (rule := evaluation.engine.vocab_map(evaluation.version)) is not None
    }


CHECK = Check(
    name=NAME,
    question="Does a head of a smaller vocabulary say which of the target's tokens its own are?",
    emits=(VOCAB_MAP_MISSING,),
    needs="--engine, --target and the draft's weights",
    run=run,
)
