"""What a scan found, as plain numbers: what the checks judge and the report shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eagle_parity.scan.drift import PartDrift, measure_drift
from eagle_parity.wiring import BoundaryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.scan.set_state import LayoutKey, LayoutState, SetState

MAX_EXAMPLES = 5
OUTLIER_RATIO = 6.0
"""A dimension whose root mean square is so many times the median dimension's stands out. On SmolLM2-135M, first tokens
left out, none of 576 does at boundary 0 and 3 to 10 do behind it."""
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


class SetProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of problem.

    Attributes:
        count: files or sequences that have it.
        examples: the first ones: name and reason.
    """

    count: int
    examples: list[tuple[str, str]]


class SetLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Files that can be read together.

    Attributes:
        format: the reader's name.
        slots, hidden_size, dtype: of the states.
        last_state: ``absent``, ``stored`` or ``undecided``.
        declared: the wiring that the files state, in words.
        files: how many.
        example: the first of them.
    """

    format: str
    slots: int
    hidden_size: int
    dtype: str
    last_state: str
    declared: str | None
    files: int
    example: str


class Duplicates(msgspec.Struct, frozen=True, kw_only=True):
    """Sequences that have equal token ids.

    Attributes:
        texts: that are there more than once.
        sequences: that are too many.
        examples: names of some sequences of one text.
    """

    texts: int
    sequences: int
    examples: list[list[str]]


class SetStateNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """One state (a slot, or the last state) over the rows that were looked at, sinks left out.

    Attributes:
        state: ``slot 0``, ``last_state``.
        rms: root mean square of all numbers.
        least, greatest: of all numbers.
        dead_dimensions: that are one number throughout.
        outlier_dimensions: dimension, and its root mean square in units of the median dimension's; the greatest first.
        quantiles: of all dimensions' medians over rows, at ``QUANTILES`` of the dimensions.
    """

    state: str
    rms: float
    least: float
    greatest: float
    dead_dimensions: int
    outlier_dimensions: list[tuple[int, float]]
    outlier_count: int
    quantiles: list[float]


class SetWiring(msgspec.Struct, frozen=True, kw_only=True):
    """What the set's slots are by a reference.

    Attributes:
        looked_into: sequences of the set.
        compared: those of them that the reference has too.
        measured: a boundary a slot; None where nothing was measured.
        declared: what the files or the call say.
        declared_by: which of them.
        wrong: slots that are another boundary, with the distances that say so.
        left_open: what kept the comparison from a verdict.
    """

    looked_into: int
    compared: int
    measured: list[BoundaryEntry] | None
    declared: list[BoundaryEntry]
    declared_by: str | None
    wrong: list[dict[str, Any]]
    left_open: list[str]


class SetMeasurements(msgspec.Struct, frozen=True, kw_only=True):
    """A whole set.

    Attributes:
        root: as it was given.
        files, bytes, sequences, tokens, rows: of it.
        sampled_rows, sink_rows, bad_rows: see ``scan.set_state.Counts``.
        masked_tokens, mask_tokens: likewise.
        shortest, longest: tokens of a sequence.
        closed: some of the folders that can't be listed, with the reason.
        closed_count: all of them.
        problems: by kind.
        layouts: most files first.
        other_layouts: files of further layouts, where there are more than are told apart.
        duplicates: of token ids; None where no sequence has any.
        states: of the layout that most files have.
        quantile_error: by how much the rank of the states' quantiles is off at most, but for one in a hundred.
        drift: of its parts; empty where they can't be told from chance.
        no_drift: why there is none.
        rows_of_each: rows of each sequence that were looked at; None for all.
        wiring: by a reference; None without one.
    """

    root: str
    files: int
    bytes: int
    sequences: int
    tokens: int
    rows: int
    sampled_rows: int
    sink_rows: int
    bad_rows: int
    masked_tokens: int
    mask_tokens: int
    shortest: int | None
    longest: int | None
    closed: list[tuple[str, str]]
    closed_count: int
    problems: dict[str, SetProblem]
    layouts: list[SetLayout]
    other_layouts: int
    duplicates: Duplicates | None
    states: list[SetStateNumbers]
    quantile_error: float | None
    drift: list[PartDrift]
    no_drift: str | None
    rows_of_each: int | None
    wiring: SetWiring | None = None


def measure_set(
    state: SetState,
    names: Sequence[str],
    *,
    root: str,
    rows: int | None,
    closed: Sequence[tuple[str, str]] = (),
) -> SetMeasurements:
    """The numbers of a set.

    Args:
        state: of its files.
        names: of the files, as they were listed.
        root: as it was given.
        rows: see ``rows_of_each``.
        closed: see there.
    """
    counts = state.counts
    main = main_layout(state)
    drift, no_drift = ([], "no file of it can be read") if main is None else measure_drift(main[1], names)
    return SetMeasurements(
        root=root,
        files=counts.files,
        bytes=counts.bytes,
        sequences=counts.sequences,
        tokens=counts.tokens,
        rows=counts.rows,
        sampled_rows=counts.sampled_rows,
        sink_rows=counts.sink_rows,
        bad_rows=counts.bad_rows,
        masked_tokens=counts.masked_tokens,
        mask_tokens=counts.mask_tokens,
        shortest=state.shortest,
        longest=state.longest,
        closed=list(closed[:MAX_EXAMPLES]),
        closed_count=len(closed),
        other_layouts=state.other_layouts,
        problems={
            kind: SetProblem(count=problem.count, examples=problem.examples)
            for kind, problem in sorted(state.problems.items())
        },
        layouts=[
            SetLayout(**key._asdict(), files=layout.files, example=layout.example)
            for key, layout in sorted(state.layouts.items(), key=lambda entry: -entry[1].files)
        ],
        duplicates=_duplicates(state, names),
        states=[] if main is None else _states(*main),
        quantile_error=None if main is None else main[1].sample.rank_error(),
        drift=drift,
        no_drift=no_drift,
        rows_of_each=rows,
    )


def main_layout(state: SetState) -> tuple[LayoutKey, LayoutState] | None:
    """The one that most files have; of equally many the first that was met."""
    return max(state.layouts.items(), key=lambda entry: entry[1].files, default=None)


def _duplicates(state: SetState, names: Sequence[str]) -> Duplicates | None:
    digests_N, places_N2 = state.digests_N, state.places_N2
    if not len(digests_N):
        return None
    order_N = np.argsort(digests_N, kind="stable")  # stable: of one text, the first in the list comes first
    ordered_N = digests_N[order_N]
    begins_N = np.append(True, ordered_N[1:] != ordered_N[:-1])
    starts = np.flatnonzero(begins_N)
    lengths = np.diff(np.append(starts, len(ordered_N)))
    repeated = np.flatnonzero(lengths > 1)
    first_places = order_N[starts[repeated]]
    chosen = repeated[np.argsort(first_places, kind="stable")[:MAX_EXAMPLES]]
    several = np.unique(places_N2[places_N2[:, 1] > 0, 0])

    def name_of(sequence: int) -> str:
        file, place = places_N2[sequence].tolist()
        return f"{names[file]}#{place}" if file in several else str(names[file])

    return Duplicates(
        texts=len(repeated),
        sequences=int(lengths[repeated].sum() - len(repeated)),
        examples=[
            [name_of(sequence) for sequence in order_N[starts[at] : starts[at] + min(lengths[at], MAX_EXAMPLES)]]
            for at in chosen
        ],
    )


def _states(key: LayoutKey, layout: LayoutState) -> list[SetStateNumbers]:
    moments, sample = layout.moments, layout.sample
    total = moments.total()
    if not total.rows:
        return []
    rms_SH = np.sqrt(total.sums_2SH[1] / total.rows)
    medians_SH = sample.quantiles([0.5])[0]
    found = []
    for place in range(len(rms_SH)):
        rms_H = rms_SH[place]
        usual = float(np.median(rms_H))
        ratios_H = rms_H / usual if usual else np.zeros_like(rms_H)
        outliers = np.flatnonzero(ratios_H > OUTLIER_RATIO)
        outliers = outliers[np.argsort(-ratios_H[outliers], kind="stable")]
        found.append(
            SetStateNumbers(
                state=f"slot {place}" if place < key.slots else "last_state",
                rms=float(np.sqrt((rms_H**2).mean())),
                least=float(moments.least_SH[place].min()),
                greatest=float(moments.greatest_SH[place].max()),
                dead_dimensions=int((moments.least_SH[place] == moments.greatest_SH[place]).sum()),
                outlier_dimensions=[(int(at), float(ratios_H[at])) for at in outliers[:MAX_EXAMPLES]],
                outlier_count=len(outliers),
                quantiles=[float(value) for value in np.quantile(medians_SH[place], QUANTILES)],
            )
        )
    return found
