"""Did every rank record what its group computed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.findings import RANK_MISSING

if TYPE_CHECKING:
    from eagle_parity.checks.recording_subject import RecordingSubject


def run(subject: RecordingSubject) -> Outcomes:
    """One finding for all groups: ranks that aren't there, and ranks that lack sequences of their group."""
    ranks = subject.recording.ranks
    groups = {rank.group: [other for other in ranks if other.group == rank.group] for rank in ranks}
    short = {name: there for name, there in groups.items() if len(there) < there[0].group_size}
    lacking = {rank.name: rank.missing for rank in ranks if rank.missing}
    if not short and not lacking:
        return
    told = [
        f"of the {there[0].group_size} ranks of {name} only {', '.join(rank.name for rank in there)} recorded anything"
        for name, there in short.items()
    ]
    told += [f"rank {name} lacks {count} sequence(s) that others recorded" for name, count in lacking.items()]
    yield RANK_MISSING.finding(
        "; ".join(told),
        evidence={
            "groups": {
                name: {"ranks": [rank.name for rank in there], "group_size": there[0].group_size}
                for name, there in short.items()
            },
            "sequences_missing": lacking,
        },
    )


CHECK = Check(
    name="rank-groups",
    question="Did every rank record what its group computed?",
    emits=(RANK_MISSING,),
    needs="a capture of a running server",
    run=run,
)
