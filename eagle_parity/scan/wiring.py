"""What a set's states are, by a reference: a few of its sequences are compared with the reference's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.findings import MISDECLARED_WIRING
from eagle_parity.readers import open_hidden_states
from eagle_parity.scan.measurements import SetWiring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.results import WiringSummary
    from eagle_parity.targets import Target
    from eagle_parity.wiring import BoundaryEntry

SAMPLE_FILES = 256
"""Where no name of the set is one of the reference's, so many files at even distances are looked into."""
SAMPLE_SEQUENCES = 16
"""Of those that have a name of the reference's, at even distances."""


@dataclass(frozen=True)
class WiringQuestion:
    """A set and a reference, opened: asked before a scan, answered behind it.

    Attributes:
        shards: the set.
        reference: a capture of all boundaries over some of its sequences.
        target: its config, for the number of layers.
        trained_boundaries: what the slots are said to be.
        reference_boundaries: what the reference holds, where it doesn't say so itself.
    """

    shards: HiddenStates
    reference: HiddenStates
    target: Target | None = None
    trained_boundaries: tuple[BoundaryEntry, ...] | None = None
    reference_boundaries: tuple[BoundaryEntry, ...] | None = None

    def measure(self) -> tuple[SetWiring, WiringSummary]:
        """Identifies every slot of the set among the reference's boundaries.

        Raises:
            InputError, UsageError: as ``diff-captures``.
        """
        chosen = self.shards.select(self._sample())
        result = diff_captures(
            DiffInputs(
                trained=chosen,
                live=chosen,  # the set against itself: what counts is what it is by the reference
                reference=self.reference,
                target=self.target,
                trained_boundaries=self.trained_boundaries,
                live_boundaries=self.trained_boundaries,
                reference_boundaries=self.reference_boundaries,
            )
        )
        wrong = next(
            (
                finding.evidence
                for finding in result.findings
                if finding.name == MISDECLARED_WIRING.name and finding.evidence.get("side") == "trained"
            ),
            {},
        )
        trained = result.measurements["trained"]
        measured = result.wiring.trained if result.wiring.trained_from == "measured" else None
        return SetWiring(
            looked_into=len(chosen.names),
            compared=result.measurements["sequences"]["with_reference"],
            measured=measured,
            declared=list(trained["declared"]),
            declared_by=trained["declared_by"],
            wrong=list(wrong.get("slots", ())),
            left_open=[f"{skip.check}: {skip.reason}" for skip in result.skipped if skip.blocks_verdict],
        ), result.wiring

    def _sample(self) -> list[str]:
        known = set(self.reference.names)
        named = [name for name in self.shards.names if name in known]
        return _thinned(named, SAMPLE_SEQUENCES) if named else _thinned(self.shards.names, SAMPLE_FILES)


def ask_wiring(
    path: str,
    reference: str,
    *,
    target: Target | None = None,
    trained_boundaries: tuple[BoundaryEntry, ...] | None = None,
    reference_boundaries: tuple[BoundaryEntry, ...] | None = None,
    first_token: int | None = None,
) -> WiringQuestion:
    """Opens a set and a reference.

    Args:
        path: the set.
        reference: see ``WiringQuestion``, as the others.
        target: its config.
        trained_boundaries: of the set.
        reference_boundaries: of the reference.
        first_token: see ``open_hidden_states``.

    Raises:
        InputError: one of them can't be opened.
    """
    known = open_hidden_states(reference, role="reference")
    shards = open_hidden_states(path, role="trained", first_token=first_token)
    return WiringQuestion(shards, known, target, trained_boundaries, reference_boundaries)


def _thinned(names: Sequence[str], count: int) -> list[str]:
    return list(names[:: max(1, -(-len(names) // count))])
