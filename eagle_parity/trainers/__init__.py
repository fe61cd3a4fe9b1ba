"""The trainers: what the ids of their drafts and shards mean, as boundaries.

``TRAINERS`` lists them: adding one is one file and one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.errors import UsageError
from eagle_parity.quoting import quoted
from eagle_parity.trainers.specforge import SPECFORGE
from eagle_parity.trainers.speculators import SPECULATORS
from eagle_parity.trainers.trainer import Trainer, trained_by
from eagle_parity.versions import spell_version

if TYPE_CHECKING:
    from eagle_parity.drafts import Draft
    from eagle_parity.targets import Target
    from eagle_parity.trained_wiring import TrainedWiring

TRAINERS: tuple[Trainer, ...] = (SPECFORGE, SPECULATORS)


def trained_with(text: str, draft: Draft, target: Target) -> TrainedWiring:
    """The wiring that ``--trained-with specforge@0.2.0`` means for this draft and target.

    Raises:
        UsageError: trainer or version isn't known, or it would not have trained this draft.
    """
    name, at, version = text.partition("@")
    trainer = next((t for t in TRAINERS if t.name == name.strip().lower()), None)
    known = ", ".join(t.name for t in TRAINERS)
    if trainer is None:
        raise UsageError(f"--trained-with {quoted(text)}: no trainer {quoted(name)}; known: {known}")
    if not at or not version:
        example = f"{trainer.name}@{trainer.rules[-1].last}"
        raise UsageError(f"--trained-with {quoted(text)}: no version; expected one such as {example}")
    return trained_by(trainer, spell_version(version), draft, target)
