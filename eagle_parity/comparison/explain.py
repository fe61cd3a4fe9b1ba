"""The second look: explanations for the states that are no known state as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eagle_parity.comparison.sample import PairSources, sample_of, sample_pairs
from eagle_parity.explanations import EXPLANATIONS

if TYPE_CHECKING:
    import torch

    from eagle_parity.comparison.alignment import Aligner
    from eagle_parity.comparison.diff import DiffInputs
    from eagle_parity.comparison.measurements import Fit, SlotMeasurement
    from eagle_parity.comparison.pairing import Pairing
    from eagle_parity.comparison.views import SlotView

KEPT_FITS = 8
"""Fits a slot that the result keeps: the explanation, its runners-up, and what else was near."""


def explain_slots(
    slots: list[SlotMeasurement], unexplained: list[SlotView], pairing: Pairing, aligner: Aligner, inputs: DiffInputs
) -> list[SlotMeasurement]:
    """The measurements, with every explanation tried on the slots that need one.

    What is fitted is fitted on one half of a sample and scored on the other; nothing is tried where nothing needs it.
    """
    if not unexplained:
        return slots
    sampled = sample_pairs(pairing.pairs, aligner)
    if not sampled.pairs:
        return slots
    final_norm = _final_norm(inputs)
    explained = list(slots)
    for view in unexplained:
        slot = view.measurement.slot
        fits: list[Fit] = []
        for side in view.sides_to_explain:
            sources = PairSources(sampled, final_norm, side=side)
            sample = sample_of(sampled, slot, side=side)
            for explanation in EXPLANATIONS:
                fits += [msgspec.structs.replace(fit, side=side) for fit in explanation.propose(sample, sources)]
            if any(fit.distance <= inputs.thresholds.parity_distance for fit in fits):
                break
        fits.sort(key=lambda fit: fit.distance)
        kept: list[Fit] = fits[:KEPT_FITS]
        # The best of each kind is kept too: a runner-up is one of another kind.
        for fit in fits:
            if fit.name not in {other.name for other in kept}:
                kept.append(fit)
        finite = [fit for fit in kept if fit.distance < float("inf")]
        explained[slot] = msgspec.structs.replace(slots[slot], fits=finite, tried=True)
    return explained


def _final_norm(inputs: DiffInputs) -> torch.Tensor | None:
    from eagle_parity.target_weights import read_final_norm

    return None if inputs.target is None else read_final_norm(inputs.target)
