"""Which files couldn't be read or used? The others were."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.comparison.identity import is_noise
from eagle_parity.findings import UNREADABLE_SHARD
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.comparison.views import Comparison

TOLD_FILES = 10
"""Broken files of a side that get a finding each: a result stays readable however many there are."""


def run(comparison: Comparison) -> Outcomes:
    """One finding a file, and from some number on one for all the others of a side."""
    measurements = comparison.measurements
    files = [
        *(("trained", name, reason) for name, reason in measurements.trained.unreadable),
        *(("live", name, reason) for name, reason in measurements.live.unreadable),
        *measurements.beside.unreadable,
    ]
    for role, of_role in groupby(files, key=lambda file: file[0]):
        broken = list(of_role)
        for _, name, reason in broken[:TOLD_FILES]:
            yield UNREADABLE_SHARD.finding(
                f"{role}: {name}: {reason}", evidence={"side": role, "file": name, "reason": reason}
            )
        if len(broken) > TOLD_FILES:
            rest = broken[TOLD_FILES:]
            yield UNREADABLE_SHARD.finding(
                f"{role}: {len(rest)} more files can't be read, such as {rest[0][1]}: {rest[0][2]}",
                evidence={"side": role, "files": len(rest), "example": rest[0][1], "reason": rest[0][2]},
            )
    yield from _unused(comparison)


def _unused(comparison: Comparison) -> Outcomes:
    """What was given beside the sides and couldn't be used."""
    measurements = comparison.measurements
    pairs = [slot.pair for slot in measurements.slots if slot.pair is not None]
    if measurements.beside.noise and pairs:
        noise = [pair for pair in pairs if pair.noise is not None]
        if not noise:
            yield Skip(check=CHECK.name, reason="--noise shares no finite row with the live side: it measured nothing")
        elif any(not is_noise(pair, comparison.thresholds) for pair in noise):
            yield Skip(
                check=CHECK.name,
                reason="--noise differs from the live side like another layer: that is no noise, and was not used",
            )
    if measurements.beside.target and not measurements.embedding_rows and measurements.reference_boundaries is None:
        yield Skip(check=CHECK.name, reason="--target has no readable weights: its embedding rows were no candidate")


CHECK = Check(
    name="unreadable-files",
    question="Could every file be read, and everything that was given be used?",
    emits=(UNREADABLE_SHARD,),
    needs="two captures or sets of shards",
    run=run,
)
