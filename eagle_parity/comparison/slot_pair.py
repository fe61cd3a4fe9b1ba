"""A trained slot against the live slot of the same position, over any number of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from eagle_parity.comparison.measurements import Dimension, PairMeasurement
from eagle_parity.comparison.states import json_number
from eagle_parity.numerics.histogram import ErrorHistograms

if TYPE_CHECKING:
    from eagle_parity.numerics.moments import PairMoments

WORST_DIMENSIONS = 5
NO_SPREAD = 1e-12
"""Keeps a dimension that never moves from being infinitely bad."""


_KINDS = 3
ERRORS, NOISE, SINKS = range(_KINDS)
"""A pair's histograms: of the errors of its rows, of those of a second live capture, and of sinks."""


@dataclass
class SlotPair:
    """A trained slot against the live slot of the same position, as a state that merges.

    Attributes:
        moments: sums of each dimension.
        histograms: ``ERRORS``, ``NOISE`` and ``SINKS``.
        worst: the sequence with the greatest median, and that.
        sequences, bad_sequences, bad_sinks: how many there are, how many have a bad row, and how many sinks are bad.
    """

    moments: PairMoments
    histograms: ErrorHistograms = field(default_factory=lambda: ErrorHistograms(_KINDS))
    worst: tuple[str, float] | None = None
    bad_sequences: int = 0
    bad_sinks: int = 0
    sequences: int = 0

    def tell_sequence(self, name: str, median: float, *, bad: bool) -> None:
        """Remembers the sequence with the greatest median, and counts those with a bad row.

        Args:
            name: the sequence's.
            median: of its rows' errors, NaN where none could be compared.
            bad: whether a row of it is.
        """
        if math.isnan(median):
            return
        self.sequences += 1
        self.bad_sequences += int(bad)
        # As it is stored, so that those beyond all numbers are equal here and in a merge.
        stored = json_number(median)
        if self.worst is None or stored > self.worst[1]:
            self.worst = (name, stored)

    def merge(self, other: SlotPair) -> SlotPair:
        """Adds what another has seen."""
        self.moments.merge(other.moments)
        self.histograms.merge(other.histograms)
        self.bad_sequences += other.bad_sequences
        self.bad_sinks += other.bad_sinks
        self.sequences += other.sequences
        if other.worst is not None and (self.worst is None or other.worst[1] > self.worst[1]):
            self.worst = other.worst
        return self

    def compute(self) -> PairMeasurement | None:
        """The measurement; None when no row could be compared."""
        errors = self.histograms.quantiles(ERRORS)
        if errors.count == 0:
            return None
        sinks = self.histograms.quantiles(SINKS)
        noise = self.histograms.quantiles(NOISE)
        statistics = self.moments.compute()
        spread_D = torch.maximum(statistics.std_x_D, statistics.std_y_D).clamp_min(NO_SPREAD)
        order = torch.argsort(statistics.rms_difference_D / spread_D, descending=True)[:WORST_DIMENSIONS].tolist()
        return PairMeasurement(
            rows=errors.count,
            distance=json_number(errors.median),
            p90=json_number(errors.p90),
            p99=json_number(errors.p99),
            largest=json_number(errors.largest),
            errors=[(json_number(edge), count) for edge, count in self.histograms.survival(ERRORS)],
            worst_sequence=self.worst,
            sink_rows=sinks.count,
            sink_distance=json_number(sinks.largest) if sinks.count else None,
            mean_correlation=float(statistics.correlation_D.mean()),
            worst_dimensions=[
                Dimension(
                    index=index,
                    mean_trained=float(statistics.mean_x_D[index]),
                    mean_live=float(statistics.mean_y_D[index]),
                    std_trained=float(statistics.std_x_D[index]),
                    std_live=float(statistics.std_y_D[index]),
                    max_difference=float(statistics.max_difference_D[index]),
                    rms_difference=float(statistics.rms_difference_D[index]),
                )
                for index in order
            ],
            spread_trained=float(statistics.std_x_D.max()),
            spread_live=float(statistics.std_y_D.max()),
            bad_sequences=self.bad_sequences,
            bad_sinks=self.bad_sinks,
            sequences=self.sequences,
            noise=json_number(noise.median) if noise.count else None,
        )
