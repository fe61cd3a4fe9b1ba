"""What ranks generated: the first token that differs has a sequence and a position, states are compared up to there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from live_captures import RankedSequence, Server, rank, write_condition, write_live
from safetensors.torch import load_file, save_file

from eagle_parity.capture.manifest_file import read_manifest
from eagle_parity.capture.writer import RankIds
from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.comparison.judge import rejudge
from eagle_parity.comparison.record import judge_recording
from eagle_parity.comparison.recording import Recording
from eagle_parity.findings import Finding
from eagle_parity.readers import open_hidden_states
from eagle_parity.reporters.sections.recording import recording_blocks
from eagle_parity.results import Skip, decode_result, encode_result

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eagle_parity.reporters.document import Entries

HIDDEN, PROMPT, GENERATED = 16, 30, 12


def prompts(ranks: tuple[str, ...] = ("tp0", "tp1")) -> list[RankedSequence]:
    generator = torch.Generator().manual_seed(0)
    sequences = []
    for name in ("a", "b", "c"):
        ids = torch.randint(0, 300, (PROMPT,), generator=generator)
        slots = [torch.randn(PROMPT, HIDDEN, generator=generator) for _ in range(3)]
        sequences.append(RankedSequence(name, ids, {rank: [slot.clone() for slot in slots] for rank in ranks}))
    return sequences


def generated(
    name: str, chosen: Mapping[str, list[int]], *, spoilt: Mapping[str, list[int]] | None = None
) -> RankedSequence:
    """The rows that follow from what each rank chose: a state depends on all tokens up to its own."""
    states, ids = {}, {}
    for rank_name, tokens in chosen.items():
        history = torch.tensor(tokens[:-1]).double().cumsum(0)[:, None]
        rows = [torch.sin(history * (slot + 1) + torch.arange(HIDDEN)).float() for slot in range(3)]
        for row in (spoilt or {}).get(rank_name, []):
            rows[1][row] *= -1
        states[rank_name] = rows
        ids[rank_name] = RankIds(torch.tensor(tokens[:-1]), torch.tensor(tokens[1:]))
    first = next(iter(ids.values())).token_ids
    return RankedSequence(name, first, states, first_position=PROMPT, rank_ids=ids)


def same(name: str, ranks: tuple[str, ...] = ("tp0", "tp1")) -> RankedSequence:
    return generated(name, {rank: list(range(GENERATED)) for rank in ranks})


def other(name: str, changes: Mapping[int, int], length: int = GENERATED) -> RankedSequence:
    tokens = list(range(GENERATED))
    return generated(name, {"tp0": tokens, "tp1": [changes.get(i, token) for i, token in enumerate(tokens)][:length]})


def capture(
    folder: Path,
    sequences: list[RankedSequence],
    *,
    temperature: float | None = 0.6,
    main: list[RankedSequence] | None = None,
    server: Server | None = None,
) -> Path:
    server = server or Server()
    server.settings = {} if temperature is None else {"temperature": temperature}
    write_live(folder, main or prompts(), server)
    write_condition(folder, "generate", sequences)
    return folder


def judge(folder: Path) -> tuple[list[Finding], list[Skip]]:
    outcomes = judge_recording(open_hidden_states(folder, role="live"))
    return (
        [outcome for outcome in outcomes if isinstance(outcome, Finding)],
        [outcome for outcome in outcomes if isinstance(outcome, Skip)],
    )


def only(folder: Path) -> Finding:
    findings, _ = judge(folder)
    assert [finding.name for finding in findings] == ["rank-divergence"], findings
    return findings[0]


def line(folder: Path) -> str:
    states = open_hidden_states(folder, role="live")
    recording = diff_captures(DiffInputs(trained=states, live=states)).measurements["recording"]
    entries: Entries = recording_blocks(msgspec.convert(recording, Recording), None)[0]  # type: ignore[assignment]  # as it is
    (told,) = [entry for entry in entries.entries if entry.label.text == "while generating"]
    return str(told.text)


def test_ranks_that_chose_the_same_are_silent(tmp_path: Path) -> None:
    folder = capture(tmp_path / "c", [same("a"), same("b"), same("c")])
    findings, skipped = judge(folder)
    assert findings == []
    assert not any(skip.check == "rank-states" for skip in skipped)
    assert line(folder) == f"ranks chose the same {3 * GENERATED} tokens, {3 * 3 * (GENERATED - 1)} rows of slots equal"


def test_the_first_request_and_position_are_named(tmp_path: Path) -> None:
    folder = capture(tmp_path / "c", [same("a"), other("b", {4: 77, 7: 78}), other("c", {0: 79})])
    finding = only(folder)
    assert finding.message == (
        "while generating at temperature 0.6: rank tp1 chose token 77 where rank tp0 chose token 4, first in b at"
        f" position {PROMPT + 4} (generated token 5); in 2 of 3 sequences, 3 of {3 * GENERATED} tokens differ; on the"
        " prompts' rows the ranks agree"
    )
    told = finding.evidence["generated"]
    assert [(place["sequence"], place["position"]) for place in told["first"]] == [("b", PROMPT + 4), ("c", PROMPT)]
    # Rows of b before its fifth token, none of c; what follows is another text, and no finding of its own.
    assert [entry["rows"] for entry in finding.evidence["ranks"]] == [GENERATED - 1 + 4] * 3
    assert told["rows_behind"] == 2 * (GENERATED - 1) - 4
    assert [entry["differing"] for entry in finding.evidence["ranks"]] == [0] * 3
    assert finding.rank == 1
    assert "17498" in finding.remedy
    assert line(folder) == f"ranks chose other tokens in 2 of 3 sequences, 3 of {3 * GENERATED} tokens"


def test_files_that_can_t_be_read_are_counted_however_many_are_named(tmp_path: Path) -> None:
    folder = capture(tmp_path / "c", [same(name) for name in "abcdefgh"])
    for index in range(1, 8):
        (folder / f"conditions/generate/ranks/tp1/sequence_{index:06d}.safetensors").write_bytes(b"no states")
    findings, skipped = judge(folder)
    assert findings == []
    (skip,) = [one for one in skipped if one.check == "rank-states"]
    assert skip.blocks_verdict
    assert skip.reason.startswith("generate: 7 file(s) of ranks can't be read")


@pytest.mark.parametrize("at", [1, GENERATED - 1])
def test_the_ends(tmp_path: Path, at: int) -> None:
    finding = only(capture(tmp_path / "c", [other("a", {at: 77}, at + 1)]))
    assert f"first in a at position {PROMPT + at} (generated token {at + 1})" in finding.message
    assert finding.evidence["ranks"][0]["rows"] == at


def test_greedily_it_is_told_so(tmp_path: Path) -> None:
    finding = only(capture(tmp_path / "c", [other("a", {4: 77})], temperature=0))
    assert finding.message.startswith("while generating, greedily: rank tp1 chose")
    assert "17498" not in finding.remedy
    unknown = only(capture(tmp_path / "d", [other("a", {4: 77})], temperature=None))
    assert unknown.message.startswith("while generating: rank tp1 chose")


def test_states_that_differ_where_the_tokens_do_not(tmp_path: Path) -> None:
    tokens = {rank: list(range(GENERATED)) for rank in ("tp0", "tp1")}
    folder = capture(tmp_path / "c", [same("a"), generated("b", tokens, spoilt={"tp1": [6, 8]})])
    finding = only(folder)
    assert f"slot 1: 2 of {2 * (GENERATED - 1)} rows of the same tokens differ" in finding.message
    assert f"first in b, position {PROMPT + 6}" in finding.message
    assert "chose" not in finding.message
    assert "2 of 66 rows of slots differ" in line(folder)


def test_rounding_is_a_warning(tmp_path: Path) -> None:
    sequence = same("a")
    slots = [slot.clone() for slot in sequence.ranks["tp1"]]
    slots[0][3] = torch.nextafter(slots[0][3], torch.tensor(9.0))
    finding = only(capture(tmp_path / "c", [replace(sequence, ranks={**sequence.ranks, "tp1": slots})]))
    assert finding.severity.value == "warning"
    assert f"position {PROMPT + 3}" in finding.message


def test_one_cause_is_one_error(tmp_path: Path) -> None:
    main = prompts()
    main[1].ranks["tp1"][0][20] *= -1
    finding = only(capture(tmp_path / "c", [other("a", {4: 77})], main=main))
    assert finding.message.startswith("slot 0: 1 of")
    assert finding.evidence["generated"]["diverged_sequences"] == 1


def test_groups_are_not_compared(tmp_path: Path) -> None:
    server = Server(ranks=[rank("tp0", group_size=1), rank("tp1", group="dp1", group_size=1)])
    folder = tmp_path / "c"
    capture(folder, [other("a", {4: 77})], main=prompts(("tp0",)), server=server)
    write_live(folder / "other", [other("a", {4: 77})], server)
    (folder / "conditions" / "generate" / "manifest.json").write_bytes(
        (folder / "other" / "manifest.json").read_bytes()
    )
    findings, skipped = judge(folder)
    assert findings == []
    assert any("generate: no sequence of it was recorded by two ranks" in skip.reason for skip in skipped)


def test_a_refusal_is_a_skip(tmp_path: Path) -> None:
    write_live(tmp_path / "c", prompts(), Server(skipped_conditions={"generate": "the hook doesn't"}))
    _, skipped = judge(tmp_path / "c")
    assert [(s.check, s.reason) for s in skipped if "generate" in s.reason] == [
        ("rank-states", "generate: the hook doesn't")
    ]


@pytest.mark.parametrize("change", ["absent", "short", "floats", "matrix", "no states"])
@pytest.mark.parametrize("rank_name", ["tp0", "tp1"])
def test_files_of_another_kind_are_told(tmp_path: Path, change: str, rank_name: str) -> None:
    folder = capture(tmp_path / "c", [same("a"), other("b", {4: 77})])
    place = folder / "conditions" / "generate"
    path = (place if rank_name == "tp0" else place / "ranks" / "tp1") / read_manifest(place).sequences[1].file
    tensors = load_file(path)
    sampled = tensors.pop("sampled_ids")
    changed: dict[str, Any] = {
        "absent": {},
        "short": {"sampled_ids": sampled[:-1].clone()},
        "floats": {"sampled_ids": sampled.float()},
        "matrix": {"sampled_ids": sampled[:, None].repeat(1, 3)},
        "no states": {"sampled_ids": sampled},
    }[change]
    if change == "no states":
        tensors = {"token_ids": tensors["token_ids"]}
    save_file(tensors | changed, path)
    findings, skipped = judge(folder)
    assert findings == []
    assert any(skip.check == "rank-states" and "can't be read" in skip.reason for skip in skipped), skipped


def test_a_saved_result_is_judged_again(tmp_path: Path) -> None:
    folder = capture(tmp_path / "c", [other("a", {4: 77})])
    states = open_hidden_states(folder, role="live")
    result = diff_captures(DiffInputs(trained=states, live=states))
    assert [finding.name for finding in result.findings] == ["rank-divergence"]
    again = rejudge(decode_result(encode_result(result), path="memory"), [])
    assert [(finding.name, finding.message) for finding in again.findings] == [
        (finding.name, finding.message) for finding in result.findings
    ]
