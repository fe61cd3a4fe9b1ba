"""The trainers: what the ids of their drafts and shards mean, as boundaries.

``TRAINERS`` lists them: adding one is one file and one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.drafts import IdList, id_list
from eagle_parity.errors import UsageError
from eagle_parity.quoting import quoted
from eagle_parity.trainers.angelslim import ANGELSLIM
from eagle_parity.trainers.derive import trained_by
from eagle_parity.trainers.dflash import DFLASH
from eagle_parity.trainers.eagle import EAGLE
from eagle_parity.trainers.modelopt import MODELOPT
from eagle_parity.trainers.nemo import NEMO
from eagle_parity.trainers.specforge import SPECFORGE
from eagle_parity.trainers.speculators import SPECULATORS
from eagle_parity.trainers.tensorrt_llm import TENSORRT_LLM
from eagle_parity.trainers.torchspec import TORCHSPEC
from eagle_parity.trainers.trainer import Trainer, is_commit
from eagle_parity.versions import spell_version

if TYPE_CHECKING:
    from eagle_parity.drafts import Draft
    from eagle_parity.targets import Target
    from eagle_parity.trained_wiring import TrainedWiring

TRAINERS: tuple[Trainer, ...] = (
    SPECFORGE,
    SPECULATORS,
    MODELOPT,
    TORCHSPEC,
    NEMO,
    ANGELSLIM,
    TENSORRT_LLM,
    EAGLE,
    DFLASH,
)

STATED_IDS = "ids"
"""The option that states the ids that a trainer was run with, where no file keeps them: ``ids=1+29+57``."""


def trained_with(text: str, draft: Draft, target: Target) -> TrainedWiring:
    """The wiring that ``--trained-with specforge@0.2.0`` means for this draft and target.

    A trainer is named with its release, or with the commit whose sources were read, and with options behind a colon:
    ``modelopt@a2fbac7:dump=vllm,ids=1+29+57``.

    Raises:
        UsageError: trainer, version or option isn't known, or it would not have trained this draft.
    """
    name, at, rest = text.partition("@")
    trainer = next((t for t in TRAINERS if t.name == name.strip().lower()), None)
    known = ", ".join(t.name for t in TRAINERS)
    if trainer is None:
        raise UsageError(f"--trained-with {quoted(text)}: no trainer {quoted(name)}; known: {known}")
    version, _, tail = rest.partition(":")
    version = version.strip().lower()
    if not trainer.refusal and (not at or not version):
        newest = trainer.rules[-1]
        example = f"{trainer.name}@{newest.last or newest.commits[0]}"
        raise UsageError(f"--trained-with {quoted(text)}: no version; expected one such as {example}")
    if version and not is_commit(version):
        version = spell_version(version)
    way: str | None = None
    ids: IdList | None = None
    for entry in filter(None, tail.split(",")):
        key, _, value = (part.strip() for part in entry.partition("="))
        if key == STATED_IDS:
            ids = _stated(value, text)
        elif trainer.option is not None and key == trainer.option.name:
            if value not in trainer.option.values:
                values = ", ".join(trainer.option.values)
                raise UsageError(f"--trained-with {quoted(text)}: {key} can't be {quoted(value)}; known: {values}")
            way = value
        else:
            options = ", ".join(filter(None, (trainer.option.name if trainer.option else "", STATED_IDS)))
            raise UsageError(
                f"--trained-with {quoted(text)}: {trainer.name} has no option {quoted(key)}; known: {options}"
            )
    return trained_by(trainer, version, draft, target, way=way, ids=ids)


def _stated(value: str, text: str) -> IdList:
    try:
        numbers = [int(part) for part in value.split("+")]
    except ValueError:
        raise UsageError(
            f"--trained-with {quoted(text)}: ids={quoted(value)}; expected numbers such as ids=1+29+57"
        ) from None
    found = id_list(f"{STATED_IDS} as stated", numbers)
    if not found.ids:
        raise UsageError(f"--trained-with {quoted(text)}: ids are {found.problem}")
    return found
