"""What a running server's capture tells by itself: what is missing, the head's input, the layer set, conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from live_captures import RankedSequence, Server, rank, write_condition, write_live
from states_in_memory import TensorRows

from eagle_parity.capture.live_recording import IncompleteSequence
from eagle_parity.capture.manifest_file import read_manifest, write_manifest
from eagle_parity.checks import capture_complete
from eagle_parity.checks.recording_subject import RecordingSubject
from eagle_parity.comparison.conditions import ConditionPair, runs_of
from eagle_parity.comparison.draft_inputs import ChunkPair
from eagle_parity.comparison.record import judge_recording, measure_recording
from eagle_parity.comparison.thresholds import Thresholds
from eagle_parity.drafts import IDS
from eagle_parity.findings import Finding
from eagle_parity.readers import open_hidden_states
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN = 16
LENGTHS = (40, 25, 33)


def states(count: int = 3, *, seed: int = 0) -> list[RankedSequence]:
    generator = torch.Generator().manual_seed(seed)
    sequences = []
    for i, length in enumerate(LENGTHS[:count]):
        ids = torch.randint(0, 300, (length,), generator=generator)
        slots = [torch.randn(length, HIDDEN, generator=generator) for _ in range(3)]
        sequences.append(RankedSequence(f"s{i}", ids, {"tp0": slots, "tp1": [slot.clone() for slot in slots]}))
    return sequences


def changed(sequence: RankedSequence, **changes: Any) -> RankedSequence:
    return replace(sequence, **changes)


def slots_of(sequence: RankedSequence) -> list[torch.Tensor]:
    return list(sequence.ranks["tp0"])


def judge(folder: Path) -> tuple[list[Finding], list[Skip]]:
    outcomes = judge_recording(open_hidden_states(folder, role="live"))
    return (
        [outcome for outcome in outcomes if isinstance(outcome, Finding)],
        [outcome for outcome in outcomes if isinstance(outcome, Skip)],
    )


def only(folder: Path, name: str) -> Finding:
    findings, _ = judge(folder)
    assert [finding.name for finding in findings] == [name], findings
    return findings[0]


def test_a_good_capture_is_silent(tmp_path: Path) -> None:
    findings, skipped = judge(write_live(tmp_path / "c", states()))
    assert findings == []
    assert [(skip.check, skip.blocks_verdict) for skip in skipped] == [("live-conditions", False)]


# capture-incomplete -------------------------------------------------------------------------------------------------


def test_missing_sequences_are_a_warning_with_their_reason(tmp_path: Path) -> None:
    server = Server(incomplete=[IncompleteSequence(name="lost", reason="the first 8 rows came from the prefix cache")])
    folder = write_live(tmp_path / "c", states(), server)
    finding = only(folder, "capture-incomplete")
    assert finding.severity.value == "warning"
    assert (finding.evidence["missing"], finding.evidence["sequences"]) == (1, 3)
    assert "prefix cache" in finding.message


def test_more_missing_than_there_is_leaves_the_verdict_open(tmp_path: Path) -> None:
    lost = [IncompleteSequence(name=f"lost {i}", reason="no rank recorded it") for i in range(4)]
    folder = write_live(tmp_path / "c", states(), Server(incomplete=lost))
    thresholds = Thresholds()
    opened = open_hidden_states(folder, role="live")
    measured = measure_recording(opened, None, bad_row_distance=thresholds.bad_row_distance)
    assert measured is not None
    outcomes = capture_complete.CHECK.run(RecordingSubject(measured[1], thresholds))
    (skip,) = [outcome for outcome in outcomes if isinstance(outcome, Skip)]
    assert skip.blocks_verdict
    assert "(4) than there are (3)" in skip.reason


@pytest.mark.parametrize("count", [1, 4])
def test_at_a_captures_end_what_is_missing_is_told_once(tmp_path: Path, count: int) -> None:
    lost = [IncompleteSequence(name=f"lost {i}", reason="no rank recorded it") for i in range(count)]
    findings, skipped = judge(write_live(tmp_path / "c", states(), Server(incomplete=lost)))
    assert [finding.name for finding in findings] == ["capture-incomplete"]
    (skip,) = [skip for skip in skipped if skip.check == "capture-complete"]
    assert (skip.blocks_verdict, skip.reason) == (True, "nothing can be concluded of what capture-incomplete names")


def test_a_failed_hook_is_an_error(tmp_path: Path) -> None:
    server = Server(ranks=[rank("tp0"), rank("tp1", failures=["RuntimeError: no room"])])
    finding = only(write_live(tmp_path / "c", states(), server), "capture-incomplete")
    assert finding.severity.value == "error"
    assert finding.evidence["failures"] == {"tp1": ["RuntimeError: no room"]}


def test_a_limit_and_an_interruption_are_told(tmp_path: Path) -> None:
    server = Server(ranks=[rank("tp0", limit="max_tokens=64"), rank("tp1")])
    assert "max_tokens=64" in only(write_live(tmp_path / "limit", states(), server), "capture-incomplete").message
    folder = write_live(tmp_path / "cut", states())
    write_manifest(folder, msgspec.structs.replace(read_manifest(folder), complete=False))
    assert "interrupted" in only(folder, "capture-incomplete").message


# draft-input-mismatch -----------------------------------------------------------------------------------------------


def test_swapped_chunks_are_named(tmp_path: Path) -> None:
    sequences = [
        changed(s, draft_input=torch.cat([slots_of(s)[1], slots_of(s)[0], slots_of(s)[2]], 1), draft_input_is="differs")
        for s in states()
    ]
    finding = only(write_live(tmp_path / "c", sequences), "draft-input-mismatch")
    assert [chunk["equals_slot"] for chunk in finding.evidence["chunks"]] == [1, 0, None]
    assert "chunk 0 is slot 1" in finding.message


def test_a_few_rows_of_one_chunk(tmp_path: Path) -> None:
    first, *others = states()
    given = torch.cat(slots_of(first), 1)
    given[20, HIDDEN : 2 * HIDDEN] += 1
    sequences = [changed(first, draft_input=given, draft_input_is="differs"), *others]
    finding = only(write_live(tmp_path / "c", sequences), "draft-input-mismatch")
    assert [(c["differing"], c["first_position"]) for c in finding.evidence["chunks"]] == [
        (0, None),
        (1, 20),
        (0, None),
    ]
    assert (finding.slot, finding.evidence["sequences"], finding.evidence["of"]) == (1, 1, 3)


def test_another_width_and_a_missing_tensor_are_told(tmp_path: Path) -> None:
    first, *others = states()
    narrow = changed(first, draft_input=slots_of(first)[0], draft_input_is="differs")
    finding = only(write_live(tmp_path / "narrow", [narrow, *others]), "draft-input-mismatch")
    assert finding.evidence["shapes"] == {f"[40, {HIDDEN}] for [40, {3 * HIDDEN}]": 1}
    absent = changed(first, draft_input_is="differs")
    assert "can't be read" in only(write_live(tmp_path / "absent", [absent, *others]), "draft-input-mismatch").message


@pytest.mark.parametrize("state", ["normed", "absent"])
def test_an_input_that_was_not_seen_is_a_skip(tmp_path: Path, state: Any) -> None:
    findings, skipped = judge(write_live(tmp_path / "c", [changed(s, draft_input_is=state) for s in states()]))
    assert findings == []
    assert any(skip.check == "draft-input" and skip.reason.startswith("3 sequence(s)") for skip in skipped)


# rule-contradicted --------------------------------------------------------------------------------------------------


def test_another_layer_set_contradicts_the_rule(tmp_path: Path) -> None:
    server = Server(layer_set={"list": [2, 15, 27]})
    finding = only(write_live(tmp_path / "c", states(), server), "rule-contradicted")
    assert (finding.evidence["live"], finding.evidence["rule"][0]["boundaries"]) == ([2, 15, 27], [3, 16, 28])
    assert finding.engine == "sglang@0.5.23"


def test_a_release_that_would_fail_and_runs_contradicts_the_rule(tmp_path: Path) -> None:
    section = {"use_aux_hidden_state": True, IDS: [-1, 2, 27]}
    draft = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": HIDDEN, "eagle_config": section}
    server = Server(engine="sglang@0.5.12", layer_set={"list": [0, 3, 28]}, draft_config=draft)
    finding = only(write_live(tmp_path / "c", states(), server), "rule-contradicted")
    assert "TypeError" in finding.message
    # Named as the patched build that it is, the rule holds.
    named = Server(engine="sglang@0.5.12:embedding-capture=patched", layer_set={"list": [0, 3, 28]}, draft_config=draft)
    assert judge(write_live(tmp_path / "named", states(), named))[0] == []


@pytest.mark.parametrize(
    ("implementation", "holds", "agrees"),
    [("native", [3, 16, 28], True), ("transformers", [28, 3, 16], True), ("transformers", [3, 16, 28], False)],
)
def test_the_options_of_a_worker_choose_the_rule(
    tmp_path: Path, implementation: str, holds: list[int], *, agrees: bool
) -> None:
    server = Server(
        engine="vllm@0.32.0",
        layer_set={"list": holds},
        draft_config={"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": HIDDEN, IDS: [28, 3, 16]},
        settings={"runner": "v1", "implementation": implementation},
    )
    findings, _ = judge(write_live(tmp_path / "c", states(), server))
    assert [finding.name for finding in findings] == ([] if agrees else ["rule-contradicted"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layer_set": None}, "no layer set"),
        ({"draft_config": None}, "running draft's config"),
        ({"engine": "sglang@0.9.9"}, "don't know"),
        ({"engine": "transformers@5.19.0"}, "transformers"),
        ({"architectures": ["NobodysForCausalLM"]}, "no rule for the target class"),
        ({"draft_config": {"architectures": ["Nobody"]}}, "no key of a draft"),
    ],
)
def test_what_the_rule_cannot_be_held_against_is_a_skip(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    findings, skipped = judge(write_live(tmp_path / "c", states(), Server(**changes)))
    assert findings == []
    assert any(skip.check == "live-rule" and reason in skip.reason for skip in skipped), skipped


# prefix-dependent ---------------------------------------------------------------------------------------------------


def rounded(sequence: RankedSequence) -> RankedSequence:
    generator = torch.Generator().manual_seed(9)
    slots = [s * (1 + 0.004 * torch.randn(s.shape, generator=generator)) for s in slots_of(sequence)]
    return changed(sequence, ranks={"tp0": slots})


def test_rounding_in_a_batch_is_no_dependence(tmp_path: Path) -> None:
    folder = write_live(tmp_path / "c", states())
    write_condition(folder, "batch", [rounded(sequence) for sequence in states()])
    assert judge(folder) == ([], [])


def test_rows_behind_a_chunks_end_are_told_with_their_places(tmp_path: Path) -> None:
    folder = write_live(tmp_path / "c", states())
    chunked = []
    for sequence in states():
        slots = slots_of(rounded(sequence))
        slots[1][16:18] = 0
        chunked.append(changed(sequence, ranks={"tp0": slots}))
    write_condition(folder, "chunk", chunked)
    finding = only(folder, "prefix-dependent")
    (slot,) = finding.evidence["slots"]
    assert (slot["slot"], slot["bad_rows"], slot["bad_sequences"]) == (1, 6, 3)
    assert slot["places"][0] == {"sequence": "s0", "first": 16, "last": 17, "rows": 2}
    assert finding.evidence["condition"] == "chunk"


def test_rows_behind_a_warm_prefix_are_held_against_their_positions(tmp_path: Path) -> None:
    def behind(sequence: RankedSequence, start: int, shift: int = 0) -> RankedSequence:
        slots = [slot[start - shift : len(slot) - shift] for slot in slots_of(sequence)]
        return changed(sequence, token_ids=sequence.token_ids[start:], ranks={"tp0": slots}, first_position=start)

    right = write_live(tmp_path / "right", states())
    write_condition(right, "prefix", [behind(sequence, 16) for sequence in states()])
    assert judge(right) == ([], [])
    wrong = write_live(tmp_path / "wrong", states())
    write_condition(wrong, "prefix", [behind(sequence, 16, 1) for sequence in states()])
    finding = only(wrong, "prefix-dependent")
    assert finding.evidence["slots"][0]["places"][0]["first"] == 16


def test_conditions_that_cannot_be_compared_are_told(tmp_path: Path) -> None:
    folder = write_live(
        tmp_path / "c", states(), Server(skipped_conditions={"chunk": "the scheduler split no sequence"})
    )
    write_condition(folder, "batch", states(seed=5))
    findings, skipped = judge(folder)
    assert findings == []
    reasons = [skip.reason for skip in skipped if skip.check == "live-conditions"]
    assert reasons == [
        "chunk: the scheduler split no sequence",
        "batch: no sequence of it has the token ids of one of the main capture",
    ]


@pytest.mark.parametrize("name", ["..", "../c", "/etc", "nothing"])
def test_names_of_conditions_lead_nowhere(tmp_path: Path, name: str) -> None:
    folder = write_live(tmp_path / "c", states(), Server(conditions=[name]))
    findings, skipped = judge(folder)
    assert findings == []
    assert any(skip.check == "live-conditions" for skip in skipped)


# States that merge --------------------------------------------------------------------------------------------------


def test_the_states_of_conditions_merge() -> None:
    main = [slots_of(sequence)[0] for sequence in states()]
    other = [rows.clone() for rows in main]
    other[1][3:9] = 0

    def measure(which: list[int]) -> ConditionPair:
        pair = ConditionPair(0, 0.15)
        for i in which:
            pair.update(f"s{i}", 0, TensorRows(main[i]), TensorRows(other[i]))
        return pair

    assert measure([0]).merge(measure([1])).merge(measure([2])).compute() == measure([0, 1, 2]).compute()
    assert runs_of([3, 4, 5, 9, 11, 12]) == [(3, 5, 3), (9, 9, 1), (11, 12, 2)]
    assert runs_of([]) == []


def test_the_states_of_chunks_merge() -> None:
    slots = slots_of(states()[0])

    def measure(low: int, high: int) -> ChunkPair:
        pair = ChunkPair(0, 3)
        pair.update("s", low, slots[1][low:high], [slot[low:high] for slot in slots])
        return pair

    merged = measure(0, 10).merge(measure(10, 40)).compute()
    assert merged == measure(0, 40).compute()
    assert (merged.equals, merged.differing) == (1, 40)
