"""What a set's states are, by a reference: a few of its sequences are compared with the reference's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.findings import MISDECLARED_WIRING
from eagle_parity.readers import open_hidden_states
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.findings import Finding
    from eagle_parity.results import WiringSummary
    from eagle_parity.targets import Target
    from eagle_parity.wiring import BoundaryEntry

SAMPLE_FILES = 256
"""Where no name of the set is one of the reference's, so many files at even distances are looked into."""
SAMPLE_SEQUENCES = 16


@dataclass(frozen=True)
class SetWiring:
    """What was measured of some sequences.

    Attributes:
        wiring: the trained one.
        outcomes: where it isn't the declared one, and why it couldn't be measured.
    """

    wiring: WiringSummary | None
    outcomes: list[Finding | Skip]


def measure_wiring(
    path: str,
    reference: str,
    *,
    target: Target | None,
    trained_boundaries: tuple[BoundaryEntry, ...] | None,
    reference_boundaries: tuple[BoundaryEntry, ...] | None,
    first_token: int | None,
) -> SetWiring:
    """Identifies every slot of the set among the reference's boundaries.

    Args:
        path: the set.
        reference: a capture of all boundaries over some of its sequences.
        target: its config, for the number of layers.
        trained_boundaries: what the slots are said to be.
        reference_boundaries: what the reference holds, where it doesn't say so itself.
        first_token: see ``open_hidden_states``.

    Raises:
        InputError, UsageError: as ``diff-captures``.
    """
    shards = open_hidden_states(path, role="trained", first_token=first_token, max_files=SAMPLE_FILES)
    known = open_hidden_states(reference, role="reference")
    named = [name for name in shards.names if name in set(known.names)]
    stride = max(1, len(shards.names) // SAMPLE_FILES)
    chosen = shards.select(named[:SAMPLE_SEQUENCES] or list(shards.names[::stride]))
    result = diff_captures(
        DiffInputs(
            trained=chosen,
            live=chosen,  # the set against itself: what counts is what each side is by the reference
            reference=known,
            target=target,
            trained_boundaries=trained_boundaries,
            live_boundaries=trained_boundaries,
            reference_boundaries=reference_boundaries,
        )
    )
    compared = result.measurements["sequences"]["with_reference"]
    if not compared:
        reason = (
            f"none of {len(chosen.names)} sequences of the set is one of the reference's: record it with"
            " `eagle-parity capture transformers --replay SHARDS`"
        )
        return SetWiring(None, [Skip(check="set-wiring", reason=reason, blocks_verdict=True)])
    wrong = [
        finding
        for finding in result.findings
        if finding.name == MISDECLARED_WIRING.name and finding.evidence.get("side") == "trained"
    ]
    skipped: list[Finding | Skip] = []
    if any(boundary is None for boundary in result.wiring.trained or [None]):
        skipped.append(Skip(check="set-wiring", reason="not every slot is one of the reference's boundaries by margin"))
    return SetWiring(result.wiring, [*wrong, *skipped])
