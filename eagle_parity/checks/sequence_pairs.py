"""Do the two sides hold the same tokens, and a row for each?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.findings import TOKEN_MISMATCH, TRUNCATED_CAPTURE, Severity
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.comparison.views import Comparison


def run(comparison: Comparison) -> Outcomes:
    """What couldn't be paired, lacks rows, or has other ids."""
    measurements = comparison.measurements
    tally = measurements.sequences
    pairs = tally.pairs
    for role, side in (("trained", measurements.trained), ("live", measurements.live)):
        if side.incomplete and not (role == "live" and measurements.recording is not None):
            yield Skip(
                check=CHECK.name,
                reason=f"the {role} capture was interrupted: what it holds was compared, the rest is not there",
            )
    if pairs == 0:
        yield TOKEN_MISMATCH.finding(
            "no sequence of one side has the token ids of one of the other "
            f"({tally.unpaired_trained} trained, {tally.unpaired_live} live): they are captures of other texts",
            severity=Severity.WARNING,
            evidence={"unpaired_trained": tally.unpaired_trained, "unpaired_live": tally.unpaired_live},
        )
        yield Skip(
            check=CHECK.name,
            reason="nothing to compare: the sides share no token ids; capture the shards' own ids with --replay",
            blocks_verdict=True,
        )
        return
    if tally.truncated_count and not comparison.sharded_rows:
        yield TRUNCATED_CAPTURE.finding(
            f"{tally.truncated_count} of {pairs} sequences lack rows: "
            f"{_examples(tally.truncated, tally.truncated_count)}",
            evidence={"sequences": tally.truncated_count, "of": pairs, "examples": tally.truncated},
        )
    if tally.mismatched_count:
        yield TOKEN_MISMATCH.finding(
            f"{tally.mismatched_count} of {pairs} sequences have other token ids on the two sides: "
            f"{_examples(tally.mismatched, tally.mismatched_count)}. A template or a tokenizer differs",
            evidence={"sequences": tally.mismatched_count, "of": pairs, "examples": tally.mismatched},
        )
    if tally.partial:
        yield TOKEN_MISMATCH.finding(
            f"{tally.partial} of {pairs} pairs of sequences only share their beginning and were compared on that: "
            "other texts after a common prompt, or another template",
            severity=Severity.NOTE,
            evidence={"sequences": tally.partial, "of": pairs},
        )
    for role, count in (("trained", tally.unpaired_trained), ("live", tally.unpaired_live)):
        if count:
            yield Skip(check=CHECK.name, reason=f"{count} {role} sequence(s) have no partner on the other side")
    if measurements.reference_boundaries is not None and tally.with_reference < pairs:
        yield Skip(
            check=CHECK.name,
            reason=f"the reference covers {tally.with_reference} of {pairs} pairs of sequences",
            blocks_verdict=tally.with_reference == 0,
        )


def _examples(lines: list[str], count: int) -> str:
    more = f" and {count - len(lines)} more" if count > len(lines) else ""
    return "; ".join(lines) + more


CHECK = Check(
    name="sequence-pairs",
    question="Do the two sides hold the same tokens, with a row for each?",
    emits=(TOKEN_MISMATCH, TRUNCATED_CAPTURE),
    needs="two captures or sets of shards",
    run=run,
)
