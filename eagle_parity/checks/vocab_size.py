"""Is the draft's vocabulary the target's?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.findings import VOCAB_SIZE
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject

NAME = "vocab-size"


def run(subject: ConfigSubject) -> Outcomes:
    """One error where the vocabularies differ, or the pruned one is larger than the target's."""
    draft, theirs = subject.draft, subject.target.vocab_size
    evidence = {
        "target_vocab_size": theirs,
        "vocab_size": draft.vocab_size,
        "draft_vocab_size": draft.draft_vocab_size,
    }
    whole = theirs or draft.vocab_size
    if draft.vocab_size is not None and theirs is not None and draft.vocab_size != theirs:
        yield VOCAB_SIZE.finding(
            f"The draft's vocab_size is {draft.vocab_size:,}, the target's {theirs:,}.", evidence=evidence
        )
    elif draft.draft_vocab_size is not None and whole is not None and draft.draft_vocab_size > whole:
        yield VOCAB_SIZE.finding(
            f"The draft_vocab_size {draft.draft_vocab_size:,} is larger than the vocabulary, {whole:,}.",
            evidence=evidence,
        )
    elif draft.vocab_size is None or theirs is None:
        side = "draft" if draft.vocab_size is None else "target"
        yield Skip(check=NAME, reason=f"the {side}'s config states no vocab_size")


CHECK = Check(
    name=NAME,
    question="Is the draft's vocabulary the target's?",
    emits=(VOCAB_SIZE,),
    needs="--target",
    run=run,
)
