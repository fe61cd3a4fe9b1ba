"""The comparison as a whole: two sides, and what else was given, to a result."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.comparison.alignment import Aligner, boundary_candidate
from eagle_parity.comparison.explain import explain_slots
from eagle_parity.comparison.judge import identified, judge
from eagle_parity.comparison.last_state import settle_last_states
from eagle_parity.comparison.measure import MAX_EXAMPLES, measure_pairs
from eagle_parity.comparison.measurements import (
    EMBEDDING_ROWS,
    Beside,
    Candidate,
    Measurements,
    SequenceTally,
)
from eagle_parity.comparison.pairing import PrefixIndex, pair_sequences, read_ids
from eagle_parity.comparison.rank_combinations import combine_ranks
from eagle_parity.comparison.record import measure_recording
from eagle_parity.comparison.remedies import id_lists, with_id_lists
from eagle_parity.comparison.sides import boundaries_of_reference, check_hidden_sizes, describe_side, with_measured
from eagle_parity.comparison.thresholds import Thresholds
from eagle_parity.comparison.views import look_at
from eagle_parity.readers.live_capture import open_live
from eagle_parity.results import FailOn, Input, conclude

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eagle_parity.comparison.pairing import Pairing
    from eagle_parity.comparison.recording import Recording
    from eagle_parity.hidden_states import HiddenStates, Unreadable
    from eagle_parity.results import Result
    from eagle_parity.targets import Target
    from eagle_parity.wiring import BoundaryEntry


@dataclass(frozen=True)
class DiffInputs:
    """What a comparison is made of.

    Attributes:
        trained, live: the two sides.
        reference: a capture of all (or some) boundaries over the same tokens.
        noise: a second capture of the live side.
        target: for the embedding's rows, the final norm and the number of layers.
        trained_boundaries, live_boundaries, reference_boundaries: what the files can't say and the user can; one entry
            more than slots names the last state.
    """

    trained: HiddenStates
    live: HiddenStates
    reference: HiddenStates | None = None
    noise: HiddenStates | None = None
    target: Target | None = None
    trained_boundaries: tuple[BoundaryEntry, ...] | None = None
    live_boundaries: tuple[BoundaryEntry, ...] | None = None
    reference_boundaries: tuple[BoundaryEntry, ...] | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)


def diff_captures(
    inputs: DiffInputs,
    *,
    fail_on: FailOn = FailOn.ERROR,
    progress: Callable[[str], None] = lambda _name: None,
    device: str = "cpu",
) -> Result:
    """Compares two sides and draws the verdict.

    Args:
        inputs: the sides, and what is beside them.
        fail_on: the severity from which a finding fails the run.
        progress: called with the name of each pair that is begun, from any thread.
        device: where the pass over the states is computed, as torch names it.

    Raises:
        UsageError: a list of boundaries doesn't fit its side.
        InputError: the reference doesn't say which boundaries it holds, or is of another hidden size.
    """
    measurements, inputs, tokens = measure_diff(inputs, progress, device)
    judgement = judge(measurements, inputs.thresholds)
    lists = id_lists(judgement.wiring.trained, inputs.target)
    return conclude(
        "diff-captures",
        outcomes=with_id_lists(judgement.outcomes, judgement.wiring.trained, lists),
        judged=judgement.judged,
        fail_on=fail_on,
        inputs=_describe_inputs(inputs, tokens),
        wiring=judgement.wiring,
        measurements={
            **_plain(measurements),
            **_acceptance(inputs.live),
            "identified": identified(judgement.comparison),
            "id_lists": lists,
        },
    )


def _acceptance(states: HiddenStates) -> dict[str, Any]:
    """What the server counted while it was captured, so that a result has symptom and cause together."""
    live = open_live(states)
    if live is None or live.live.acceptance is None:
        return {}
    return {"acceptance": live.live.acceptance.told()}


def measure_diff(
    inputs: DiffInputs, progress: Callable[[str], None], device: str = "cpu"
) -> tuple[Measurements, DiffInputs, dict[str, dict[str, int]]]:
    """The numbers of a comparison, the inputs with their last states settled, and what is known of sequences' tokens.

    Returns:
        The last one by role and the sequence's name: so that no file is opened again to count them.
    """
    started = time.perf_counter()
    check_hidden_sizes(inputs)
    reference_boundaries = boundaries_of_reference(inputs)
    num_layers = inputs.target.num_layers if inputs.target else _fact(inputs, "num_layers")
    pairing = pair_sequences(inputs.trained, inputs.live)
    aligner, unreadable_beside = _aligner(inputs, reference_boundaries)
    trained_states, live_states, notes = settle_last_states(
        aligner, pairing, inputs.trained_boundaries, inputs.live_boundaries, num_layers
    )
    inputs = replace(inputs, trained=trained_states, live=live_states)
    aligner = replace(aligner, trained=inputs.trained, live=inputs.live)
    trained = describe_side(
        inputs.trained,
        "trained",
        inputs.trained_boundaries,
        settled=notes.get("trained"),
        num_layers=num_layers,
    )
    live = describe_side(inputs.live, "live", inputs.live_boundaries, settled=notes.get("live"), num_layers=num_layers)
    recording = _recording(inputs, aligner, pairing)
    tally = _tally(pairing)
    comparable = trained.hidden_size == live.hidden_size
    measured = measure_pairs(
        pairing.pairs if comparable else [],
        aligner,
        _known(aligner),
        inputs.thresholds.bad_row_distance,
        progress,
        device=device,
    )
    measurements = Measurements(
        thresholds=inputs.thresholds,
        num_layers=num_layers,
        tokens=measured.tokens,
        sequences=msgspec.structs.replace(
            tally,
            with_reference=measured.with_reference,
            truncated=measured.truncated[:MAX_EXAMPLES],
            truncated_count=len(measured.truncated),
        ),
        trained=with_measured(trained, measured.trained_last, pairing.unreadable_trained, measured),
        live=with_measured(live, measured.live_last, pairing.unreadable_live, measured),
        slots=measured.slots,
        reference_boundaries=None if inputs.reference is None else list(reference_boundaries),
        embedding_rows=aligner.embedding is not None,
        seconds=0.0,
        beside=Beside(
            noise=inputs.noise is not None,
            target=inputs.target is not None,
            unreadable=[(role, file.name, file.reason) for role, file in unreadable_beside],
        ),
        recording=recording,
    )
    comparison = look_at(measurements, inputs.thresholds)
    unexplained = [] if comparison.displaced else [*comparison.open_views, *comparison.drifted_views]
    slots = (
        explain_slots(measurements.slots, unexplained, pairing, aligner, inputs) if unexplained else measurements.slots
    )
    seconds = round(time.perf_counter() - started, 3)
    tokens = {"trained": pairing.tokens("trained"), "live": pairing.tokens("live")}
    return msgspec.structs.replace(measurements, slots=slots, seconds=seconds), inputs, tokens


# Sequences ----------------------------------------------------------------------------------------------------------


def _aligner(
    inputs: DiffInputs, reference_boundaries: tuple[BoundaryEntry, ...]
) -> tuple[Aligner, list[tuple[str, Unreadable]]]:
    """What opens the pairs, and which files of the reference and the second capture couldn't be read."""
    from eagle_parity.target_weights import find_embedding

    unreadable: list[tuple[str, Unreadable]] = []

    def index(role: str, states: HiddenStates | None) -> PrefixIndex | None:
        if states is None:
            return None
        readable, broken = read_ids(states)
        unreadable.extend((role, file) for file in broken)
        return PrefixIndex(readable)

    aligner = Aligner(
        trained=inputs.trained,
        live=inputs.live,
        reference=inputs.reference,
        reference_index=index("reference", inputs.reference),
        reference_boundaries=reference_boundaries,
        noise=inputs.noise,
        noise_index=index("noise", inputs.noise),
        embedding=find_embedding(inputs.target) if inputs.target else None,
    )
    return aligner, unreadable


def _recording(inputs: DiffInputs, aligner: Aligner, pairing: Pairing) -> Recording | None:
    """The live side by itself, where it is a capture of a running server, with what its ranks make together."""
    bad_row_distance = inputs.thresholds.bad_row_distance
    measured = measure_recording(inputs.live, inputs.target, bad_row_distance=bad_row_distance)
    if measured is None:
        return None
    live, recording = measured
    rank_slots = combine_ranks(
        recording.rank_slots, live, aligner, pairing.pairs, _known(aligner), bad_row_distance=bad_row_distance
    )
    return msgspec.structs.replace(recording, rank_slots=rank_slots)


def _known(aligner: Aligner) -> list[Candidate]:
    known = [boundary_candidate(boundary) for boundary in aligner.reference_boundaries if boundary is not None]
    if aligner.embedding is not None:
        known.append(Candidate(label=EMBEDDING_ROWS, boundary=0, distance=0.0))
    return known


def _tally(pairing: Pairing) -> SequenceTally:
    by_how = {how: sum(pair.how == how for pair in pairing.pairs) for how in ("equal", "prefix", "suffix", "name")}
    mismatched = []
    partial = 0
    for pair in pairing.pairs:
        trained, live = pair.trained.ids, pair.live.ids
        if pair.how == "prefix" and pair.length < min(len(trained), len(live)):
            partial += 1
        elif pair.how == "name":
            overlap = min(len(trained), len(live))
            different = (trained[:overlap] != live[:overlap]).nonzero().flatten()
            first = int(different[0])
            mismatched.append(
                f"{pair.trained.name}: from position {first} on (id {int(trained[first])} trained, "
                f"{int(live[first])} live), {len(different)} of {overlap} ids"
            )
    return SequenceTally(
        paired=by_how["equal"],
        by_prefix=by_how["prefix"],
        by_suffix=by_how["suffix"],
        by_name=by_how["name"],
        unpaired_trained=len(pairing.unpaired_trained),
        unpaired_live=len(pairing.unpaired_live),
        partial=partial,
        contexts=PrefixIndex(pair.trained for pair in pairing.pairs).contexts(),
        padded=sum(pair.padded for pair in pairing.pairs),
        mismatched=mismatched[:MAX_EXAMPLES],
        mismatched_count=len(mismatched),
    )


# The result ---------------------------------------------------------------------------------------------------------


def _describe_inputs(inputs: DiffInputs, tokens: Mapping[str, Mapping[str, int]]) -> list[Input]:
    described = [
        _describe(role, states, tokens.get(role, {}))
        for role, states in (
            ("trained", inputs.trained),
            ("live", inputs.live),
            ("reference", inputs.reference),
            ("noise", inputs.noise),
        )
        if states is not None
    ]
    if inputs.target is not None:
        described.append(
            Input(role="target", path=inputs.target.path, format="config", hidden_size=inputs.target.hidden_size)
        )
    return described


def _describe(role: str, states: HiddenStates, known: Mapping[str, int]) -> Input:
    found = (known[name] if name in known else states.count_tokens(name) for name in states.names)
    counts = [tokens for tokens in found if isinstance(tokens, int)]
    return Input(
        role=role,
        path=str(states.path),
        format=states.layout.format,
        sequences=len(counts),
        tokens=sum(counts),
        slots=states.layout.slots,
        hidden_size=states.layout.hidden_size,
    )


def _fact(inputs: DiffInputs, name: str) -> int | None:
    for states in (inputs.reference, inputs.live, inputs.trained):
        value = states.layout.facts.get(name) if states is not None else None
        if isinstance(value, int):
            return value
    return None


def _plain(measurements: Measurements) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.to_builtins(measurements)
    return content
