"""Is each text once in a set?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.findings import DUPLICATE_SEQUENCE
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.scan.measurements import SetMeasurements


def run(found: SetMeasurements) -> Outcomes:
    """One finding for all texts."""
    duplicates = found.duplicates
    if duplicates is None:
        yield Skip(check=CHECK.name, reason="no sequence has token ids, by which texts are told apart")
    elif duplicates.texts:
        names = " = ".join(duplicates.examples[0])
        yield DUPLICATE_SEQUENCE.finding(
            f"{duplicates.texts:,} texts are there more than once, {duplicates.sequences:,} of {found.sequences:,} "
            f"sequences too many: {names}",
            evidence={
                "texts": duplicates.texts,
                "sequences": duplicates.sequences,
                "of": found.sequences,
                "examples": duplicates.examples,
            },
        )


CHECK = Check(
    name="set-duplicates",
    question="Is each text in the set once?",
    emits=(DUPLICATE_SEQUENCE,),
    needs="a training set with token ids",
    run=run,
)
