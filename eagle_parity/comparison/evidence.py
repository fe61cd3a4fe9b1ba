"""How measured numbers and labels are put into findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.comparison.identity import is_embedding
from eagle_parity.comparison.measurements import LARGEST
from eagle_parity.comparison.views import settled
from eagle_parity.wiring import POST_NORM, BoundaryEntry, Label, describe_boundary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.comparison.views import SlotView


def identity_evidence(view: SlotView) -> dict[str, Any]:
    """What a live slot was found to be, as evidence."""
    identity = view.live if settled(view.live) else (view.live_among_trained or view.live)
    evidence: dict[str, Any] = dict(identity.evidence()) if identity else {}
    state = view.measurement.live
    if state is not None and is_embedding(state) and state.repeated_tokens is not None:
        if not settled(identity):
            # No embedding rows were there to compare with: what names the state is that a token's row never changes.
            evidence = {
                "nearest": "the embedding: one row a token",
                "distance": rounded(state.repeated_tokens.distance),
            }
        evidence["repeated_token_pairs"] = state.repeated_tokens.pairs
        evidence["repeated_token_distance"] = rounded(state.repeated_tokens.distance)
    return evidence


def format_labels(labels: Sequence[Label | None]) -> str:
    """``(3, trained slot 1, ?)``."""
    return "(" + ", ".join("?" if label is None else str(label) for label in labels) + ")"


def describe_label(label: Label | None, num_layers: int | None) -> str:
    """A label in words."""
    if isinstance(label, str) and label != POST_NORM:
        return label
    return describe_boundary(label_boundary(label), num_layers)


def label_boundary(label: Label | None) -> BoundaryEntry:
    """The boundary that a label is, if it is one."""
    if label == POST_NORM:
        return POST_NORM
    return label if isinstance(label, int) else None


def told_distance(distance: float) -> str:
    """A distance for a message; against rows of zeros it is infinite."""
    return f"{distance:.3g}" if distance < LARGEST else "infinity (rows of zeros)"


def rounded(value: float) -> float:
    """Six significant digits: what a measurement of noise is good for."""
    return float(f"{value:.6g}")
