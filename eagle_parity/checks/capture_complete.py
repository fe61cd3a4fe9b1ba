"""Does the capture of a running server hold everything that was sent?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.findings import CAPTURE_INCOMPLETE, Severity
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.checks.recording_subject import RecordingSubject


def run(subject: RecordingSubject) -> Outcomes:
    """One finding: an error where a hook failed, a warning where what is there is whole and something is missing."""
    recording = subject.recording
    for rank, reason in recording.not_written.items():
        yield Skip(check=CHECK.name, reason=f"rank {rank}, {reason}")
    failed = {rank.name: rank.failures for rank in recording.ranks if rank.failures}
    limits = {rank.name: rank.limit for rank in recording.ranks if rank.limit is not None}
    missing = recording.incomplete_count
    if recording.complete and not (failed or limits or missing):
        return
    told = []
    if missing:
        total = recording.sequences + missing
        first = "".join(f" ({name}: {reason})" for name, reason in recording.incomplete[:1])
        told.append(f"{missing} of {total} sequences were sent and not recorded whole{first}")
    elif not recording.complete:
        told.append("the recording was interrupted: its manifest isn't the last one that was to be written")
    told += [f"rank {name} stopped at its limit ({limit})" for name, limit in list(limits.items())[:1]]
    told += [f"the hook of rank {name} failed ({failures[0]})" for name, failures in list(failed.items())[:1]]
    yield CAPTURE_INCOMPLETE.finding(
        "; ".join(told),
        severity=Severity.ERROR if failed else Severity.WARNING,
        evidence={
            "complete": recording.complete,
            "sequences": recording.sequences,
            "missing": missing,
            "examples": [{"sequence": name, "reason": reason} for name, reason in recording.incomplete],
            "limits": limits,
            "failures": failed,
        },
    )
    # Whoever has just asked for the missing ones has not got them: that is no success.
    if missing and (subject.just_made or missing > recording.sequences):
        yield Skip(
            check=CHECK.name,
            reason=f"nothing can be concluded of what {CAPTURE_INCOMPLETE.name} names"
            if subject.just_made
            else f"more sequences are missing ({missing}) than there are ({recording.sequences})",
            blocks_verdict=True,
        )


CHECK = Check(
    name="capture-complete",
    question="Does the live capture hold everything that was sent to the server?",
    emits=(CAPTURE_INCOMPLETE,),
    needs="a capture of a running server",
    run=run,
)
