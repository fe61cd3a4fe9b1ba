"""Is the draft an EAGLE-3 head? The rules for its layer ids hold for no other kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject

NAME = "draft-family"


def run(subject: ConfigSubject) -> Outcomes:
    """A skip that blocks the verdict where the draft is of another family."""
    if not subject.is_eagle3:
        yield Skip(
            check=NAME,
            reason=f"the draft is of the family {subject.draft.family.value}: EAGLE-3's rules for layer ids don't hold"
            " for it and were not applied",
            blocks_verdict=True,
        )


CHECK = Check(
    name=NAME,
    question="Is the draft an EAGLE-3 head, so that its rules apply?",
    emits=(),
    needs="a draft",
    run=run,
)
