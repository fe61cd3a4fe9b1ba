"""Ranks of a real target's states: what each fault of theirs is called, and that good ones are called nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from live_captures import RankedSequence, Server, rank, write_condition, write_live
from real_states import TRAINED
from states_in_memory import TensorRows

from eagle_parity.capture.transformers import ReferenceForward
from eagle_parity.capture.writer import RankIds
from eagle_parity.comparison.diff import DiffInputs, diff_captures
from eagle_parity.comparison.judge import rejudge
from eagle_parity.comparison.ranks import RankPair
from eagle_parity.comparison.record import judge_recording
from eagle_parity.findings import Finding, Severity
from eagle_parity.readers import open_hidden_states
from eagle_parity.results import Result, Verdict, decode_result, encode_result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from real_states import RealStates

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = (0, 1)
"""Two sequences show what four would."""


def write(folder: Path, real: RealStates, split: Any, server: Server | None = None, *, kind: str = "bfloat16") -> Path:
    sequences = [
        RankedSequence(f"text {i}", ids, split(i, [states[b].clone() for b in TRAINED]))
        for i, ids, states in ((i, real.token_ids[i], real.states[kind][i]) for i in TEXTS)
    ]
    return write_live(folder, sequences, server)


def compare(real: RealStates, folder: Path, *, reference: bool = True) -> Result:
    return diff_captures(
        DiffInputs(
            trained=real.side(texts=TEXTS),
            live=open_hidden_states(folder, role="live"),
            reference=real.reference if reference else None,
        )
    )


def both(_text: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
    return {"tp0": slots, "tp1": [slot.clone() for slot in slots]}


def names(result: Result) -> list[str]:
    return [finding.name for finding in result.findings]


def only(result: Result, name: str) -> Finding:
    assert names(result) == [name], [(f.name, f.message) for f in result.findings]
    assert result.verdict is Verdict.FAIL
    return result.findings[0]


def test_two_ranks_that_agree_are_silent(real: RealStates, tmp_path: Path) -> None:
    result = compare(real, write(tmp_path / "c", real, both))
    assert (names(result), result.verdict) == ([], Verdict.PASS)
    slots = result.measurements["recording"]["rank_slots"]
    assert [slot["ranks"][0]["differing"] for slot in slots] == [0, 0, 0]
    assert all(slot["ranks"][0]["rows"] == sum(len(real.token_ids[i]) for i in TEXTS) for slot in slots)
    assert not any(skip.check == "rank-states" for skip in result.skipped)


def test_one_rank_is_a_skip_with_its_reason(real: RealStates, tmp_path: Path) -> None:
    server = Server(ranks=[rank("tp0", group_size=1)])
    result = compare(real, write(tmp_path / "c", real, lambda _, slots: {"tp0": slots}, server))
    assert names(result) == []
    assert ("rank-states", "the capture has one rank") in [(s.check, s.reason) for s in result.skipped]


def test_a_side_that_is_no_live_capture_says_so(real: RealStates) -> None:
    result = diff_captures(DiffInputs(trained=real.side(), live=real.side(kind="bfloat16")))
    assert names(result) == []
    assert any("no capture of a running server" in skip.reason for skip in result.skipped)


# Parts of a state ---------------------------------------------------------------------------------------------------


def halves(slots: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each state as the sum of two parts, both of about its size."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for slot in slots:
        scale = slot.float().norm(dim=1, keepdim=True)
        noise = torch.nn.functional.normalize(torch.randn(slot.shape, generator=generator), dim=1) * scale
        first = (slot.float() / 2 + noise).to(slot.dtype)
        parts.append((first, (slot.float() - first.float()).to(slot.dtype)))
    return parts


@pytest.mark.parametrize("reference", [True, False])
def test_partial_sums(real: RealStates, tmp_path: Path, *, reference: bool) -> None:
    def split(_: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        parts = halves(slots)
        return {"tp0": [a for a, _ in parts], "tp1": [b for _, b in parts]}

    result = compare(real, write(tmp_path / "c", real, split), reference=reference)
    finding = only(result, "rank-partial")
    assert finding.evidence["combination"] == "sum"
    assert finding.evidence["with_residual"] is False
    assert result.wiring.live == (list(TRAINED) if reference else [None, None, None])
    again = rejudge(decode_result(encode_result(result), path="memory"), [])
    assert [f.message for f in again.findings] == [finding.message]


@pytest.fixture(scope="module")
def layer_parts(real: RealStates) -> Any:
    """For a boundary and a number of ranks, what each rank has before its MLP's all-reduce: ``[text][rank]``."""
    forward = ReferenceForward(real.target, dtype="float32", device="cpu")
    seen: dict[tuple[str, int], torch.Tensor] = {}

    def remember(kind: str, layer: int) -> Any:
        def hook(_module: Any, args: tuple[torch.Tensor, ...]) -> None:
            seen[kind, layer] = args[0][0].detach().clone()

        return hook

    layers: Any = forward.layers
    for layer in {boundary - 1 for boundary in TRAINED}:
        layers[layer].post_attention_layernorm.register_forward_pre_hook(remember("residual", layer))
        layers[layer].mlp.down_proj.register_forward_pre_hook(remember("activation", layer))
    texts = []
    for ids in real.token_ids:
        seen.clear()
        forward.states(ids.tolist(), [0])
        texts.append(dict(seen))

    def parts(text: int, boundary: int, ranks: int, *, residual: bool) -> list[torch.Tensor]:
        layer = boundary - 1
        with torch.no_grad():
            weight = layers[layer].mlp.down_proj.weight
            activation, stream = texts[text]["activation", layer], texts[text]["residual", layer]
            width = activation.shape[1] // ranks
            pieces = [
                activation[:, i * width : (i + 1) * width] @ weight[:, i * width : (i + 1) * width].T
                for i in range(ranks)
            ]
            return [(stream + piece if residual or i == 0 else piece) for i, piece in enumerate(pieces)]

    return parts


@pytest.mark.parametrize("ranks", [2, 4])
def test_partial_sums_that_share_the_residual(real: RealStates, layer_parts: Any, tmp_path: Path, ranks: int) -> None:
    server = Server(ranks=[rank(f"tp{i}", group_size=ranks) for i in range(ranks)])

    def split(text: int, _slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        by_slot = [layer_parts(text, boundary, ranks, residual=True) for boundary in TRAINED]
        return {f"tp{i}": [parts[i].to(torch.bfloat16) for parts in by_slot] for i in range(ranks)}

    folder = write(tmp_path / "c", real, split, server)
    finding = only(compare(real, folder), "rank-partial")
    assert finding.evidence["with_residual"] is True
    assert [slot["state"] for slot in finding.evidence["slots"]] == list(TRAINED)
    assert finding.confidence > 0.7


def test_the_residual_on_one_rank_alone(real: RealStates, layer_parts: Any, tmp_path: Path) -> None:
    def split(text: int, _slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        by_slot = [layer_parts(text, boundary, 2, residual=False) for boundary in TRAINED]
        return {f"tp{i}": [parts[i].to(torch.bfloat16) for parts in by_slot] for i in range(2)}

    finding = only(compare(real, write(tmp_path / "c", real, split)), "rank-partial")
    assert finding.evidence["combination"] == "sum"


def test_partial_sums_with_the_residual_need_a_reference(real: RealStates, layer_parts: Any, tmp_path: Path) -> None:
    def split(text: int, _slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        by_slot = [layer_parts(text, boundary, 2, residual=True) for boundary in TRAINED]
        return {f"tp{i}": [parts[i].to(torch.bfloat16) for parts in by_slot] for i in range(2)}

    finding = only(compare(real, write(tmp_path / "c", real, split), reference=False), "rank-divergence")
    assert "sum-less-residual" in finding.evidence["not_tried"]
    assert "--reference" in finding.message


@pytest.mark.parametrize("swapped", [False, True])
def test_a_hidden_sharded_state(real: RealStates, tmp_path: Path, *, swapped: bool) -> None:
    def split(_: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        shares = [slot.chunk(2, dim=1) for slot in slots]
        first, second = (1, 0) if swapped else (0, 1)
        return {"tp0": [s[first] for s in shares], "tp1": [s[second] for s in shares]}

    finding = only(compare(real, write(tmp_path / "c", real, split)), "rank-sharded")
    assert finding.evidence["combination"] == "columns"
    assert finding.evidence["ranks"] == (["tp1", "tp0"] if swapped else ["tp0", "tp1"])
    assert [slot["state"] for slot in finding.evidence["slots"]] == list(TRAINED)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_row_sharded_state(real: RealStates, tmp_path: Path, *, swapped: bool) -> None:
    def split(_: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        half = -(-len(slots[0]) // 2)
        first, second = [s[:half] for s in slots], [s[half:] for s in slots]
        return {"tp0": second, "tp1": first} if swapped else {"tp0": first, "tp1": second}

    finding = only(compare(real, write(tmp_path / "c", real, split)), "rank-sharded")
    assert finding.evidence["combination"] == "rows"
    assert finding.evidence["ranks"] == (["tp1", "tp0"] if swapped else ["tp0", "tp1"])


# Divergence ---------------------------------------------------------------------------------------------------------


def spoil_rows(slots: list[torch.Tensor], rows: Sequence[int]) -> list[torch.Tensor]:
    spoilt = [slot.clone() for slot in slots]
    for slot in spoilt:
        slot[list(rows)] = slot[[row - 1 for row in rows]]
    return spoilt


@pytest.mark.parametrize("spoilt_rank", ["tp0", "tp1"])
def test_a_rank_that_diverges_in_a_few_rows(real: RealStates, tmp_path: Path, spoilt_rank: str) -> None:
    def split(text: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        ranks = both(text, slots)
        return {**ranks, spoilt_rank: spoil_rows(slots, [30])} if text == 1 else ranks

    finding = only(compare(real, write(tmp_path / "c", real, split)), "rank-divergence")
    assert [(e["slot"], e["rank"], e["beyond_rounding"]) for e in finding.evidence["ranks"]] == [
        (slot, "tp1", 1) for slot in range(3)
    ]
    assert {(e["first_sequence"], e["first_position"]) for e in finding.evidence["ranks"]} == {("text 1", 30)}
    assert finding.rank == 1


def test_a_rank_that_holds_nothing_is_no_part_of_a_sum(real: RealStates, tmp_path: Path) -> None:
    def split(_: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        return {"tp0": slots, "tp1": [torch.zeros_like(slot) for slot in slots]}

    only(compare(real, write(tmp_path / "c", real, split)), "rank-divergence")


def test_noise_on_both_ranks_is_no_partial_sum(real: RealStates, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)

    def noisy(slot: torch.Tensor) -> torch.Tensor:
        direction = torch.nn.functional.normalize(torch.randn(slot.shape, generator=generator), dim=1)
        spoilt: torch.Tensor = slot.float() + 0.3 * slot.float().norm(dim=1, keepdim=True) * direction
        return spoilt.to(slot.dtype)

    def split(_: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        return {"tp0": [noisy(s) for s in slots], "tp1": [noisy(s) for s in slots]}

    finding = only(compare(real, write(tmp_path / "c", real, split)), "rank-divergence")
    assert finding.evidence["ruled_out"] == ["sum", "sum-less-residual"]


def test_the_last_bit_is_a_warning(real: RealStates, tmp_path: Path) -> None:
    def split(text: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        other = [slot.clone() for slot in slots]
        other[2][5, 0] = torch.nextafter(other[2][5, 0], torch.tensor(torch.inf, dtype=other[2].dtype))
        return {**both(text, slots), "tp1": other}

    result = compare(real, write(tmp_path / "c", real, split))
    assert [(f.name, f.severity.value) for f in result.findings] == [("rank-divergence", "warning")]
    assert result.verdict is Verdict.PASS


def test_another_fault_is_told_beside_a_few_diverging_rows(real: RealStates, tmp_path: Path) -> None:
    def split(text: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        slots[1] = slots[1] * 2
        ranks = both(text, slots)
        return {**ranks, "tp1": spoil_rows(slots, [20])} if text == 0 else ranks

    assert names(compare(real, write(tmp_path / "c", real, split))) == ["scaled", "rank-divergence"]


# Groups -------------------------------------------------------------------------------------------------------------


def test_groups_with_other_tokens_are_no_divergence(real: RealStates, tmp_path: Path) -> None:
    server = Server(ranks=[rank("tp0", group="dp0", group_size=1), rank("tp1", group="dp1", group_size=1)])

    def split(text: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        return {f"tp{text % 2}": slots}

    result = compare(real, write(tmp_path / "c", real, split, server))
    assert (names(result), result.verdict) == ([], Verdict.PASS)


def test_a_rank_of_another_group_is_not_compared(real: RealStates, tmp_path: Path) -> None:
    server = Server(ranks=[rank("tp0", group="dp0", group_size=1), rank("tp1", group="dp1", group_size=1)])
    result = compare(real, write(tmp_path / "c", real, lambda t, s: {**both(t, s), "tp1": spoil_rows(s, [9])}, server))
    assert names(result) == []


def test_a_missing_rank(real: RealStates, tmp_path: Path) -> None:
    folder = write(tmp_path / "c", real, lambda _, s: {"tp0": s}, Server(ranks=[rank("tp0")]))
    finding = only(compare(real, folder), "rank-missing")
    assert finding.evidence["groups"] == {"dp0": {"ranks": ["tp0"], "group_size": 2}}


def test_a_rank_that_lacks_sequences(real: RealStates, tmp_path: Path) -> None:
    folder = write(tmp_path / "c", real, lambda text, s: both(text, s) if text else {"tp0": s})
    assert only(compare(real, folder), "rank-missing").evidence["sequences_missing"] == {"tp1": 1}


# Other texts, other dtypes, and conditions ------------------------------------------------------------------------


@pytest.mark.parametrize("states_differ", [False, True])
def test_a_rank_with_other_token_ids(real: RealStates, tmp_path: Path, *, states_differ: bool) -> None:
    """One rank's ids are another text's; whether its states are, decides nothing."""
    ids = real.token_ids[0]
    other = ids.clone()
    other[4] += 1
    states = [real.states["bfloat16"][0][b].clone() for b in TRAINED]
    theirs = spoil_rows(states, [4]) if states_differ else [state.clone() for state in states]
    sequence = RankedSequence("text 0", ids, {"tp0": states, "tp1": theirs}, rank_ids={"tp1": RankIds(other)})
    finding = only(compare(real, write_live(tmp_path / "c", [sequence])), "rank-divergence")
    assert "rank tp1 has other token ids than rank tp0: 1 tokens, in 1 of 1 sequences" in finding.message
    assert "first in text 0, position 4" in finding.message
    assert ("their states are equal all the same" in finding.message) is not states_differ
    (told,) = finding.evidence["token_ids"]
    assert (told["token"], told["first_token"], told["differing"]) == (int(other[4]), int(ids[4]), 1)
    assert (finding.rank, bool(finding.evidence["ranks"])) == (1, states_differ)


def test_a_rank_with_fewer_token_ids(real: RealStates, tmp_path: Path) -> None:
    ids = real.token_ids[0]
    states = [real.states["bfloat16"][0][b].clone() for b in TRAINED]
    ranks = {"tp0": states, "tp1": [state[:-2].clone() for state in states]}
    sequence = RankedSequence("text 0", ids, ranks, rank_ids={"tp1": RankIds(ids[:-2])})
    finding = only(compare(real, write_live(tmp_path / "c", [sequence])), "rank-divergence")
    assert finding.evidence["token_ids"][0]["differing"] == 2
    assert finding.evidence["token_ids"][0]["token"] is None


def test_equal_states_in_another_dtype_are_a_warning(real: RealStates, tmp_path: Path) -> None:
    def split(text: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        return {**both(text, slots), "tp1": [slot.float() for slot in slots]}

    result = compare(real, write(tmp_path / "c", real, split))
    (finding,) = result.findings
    assert (finding.name, finding.severity, result.verdict) == ("rank-divergence", Severity.WARNING, Verdict.PASS)
    assert "Rank tp1 holds slot 0 in float32, rank tp0 in bfloat16" in finding.message
    assert "to the last bit" not in finding.message
    assert finding.remedy == "Start every rank with the same --dtype."


def test_ranks_that_differ_under_a_condition_alone(real: RealStates, tmp_path: Path) -> None:
    folder = write(tmp_path / "c", real, both)
    ids, states = real.token_ids[0], [real.states["bfloat16"][0][b].clone() for b in TRAINED]
    good, bad = {"tp0": states, "tp1": states}, {"tp0": states, "tp1": spoil_rows(states, [9])}
    write_condition(folder, "chunk", [RankedSequence("text 0", ids, good)])
    assert names(compare(real, folder)) == []
    write_condition(folder, "batch", [RankedSequence("text 0", ids, bad)])
    finding = only(compare(real, folder), "rank-divergence")
    assert finding.message.startswith("batch: slot 0: 1 of")
    assert "first in text 0, position 9" in finding.message
    assert "computed alone, the ranks agree on these prompts" in finding.message
    assert finding.evidence["conditions"] == ["batch"]
    assert {entry["condition"] for entry in finding.evidence["ranks"]} == {"batch"}


def test_shares_under_a_condition_alone(real: RealStates, tmp_path: Path) -> None:
    folder = write(tmp_path / "c", real, both)
    ids, states = real.token_ids[0], [real.states["bfloat16"][0][b].clone() for b in TRAINED]
    half = len(ids) // 2
    shares = {"tp0": [s[:half].clone() for s in states], "tp1": [s[half:].clone() for s in states]}
    write_condition(folder, "batch", [RankedSequence("text 0", ids, shares)])
    finding = only(compare(real, folder), "rank-divergence")
    assert "(conditions/batch)" in finding.message


def test_a_broken_file_of_a_rank_under_a_condition(real: RealStates, tmp_path: Path) -> None:
    folder = write(tmp_path / "c", real, both)
    ids, states = real.token_ids[0], [real.states["bfloat16"][0][b].clone() for b in TRAINED]
    write_condition(folder, "batch", [RankedSequence("text 0", ids, {"tp0": states, "tp1": states})])
    (folder / "conditions/batch/ranks/tp1/sequence_000000.safetensors").write_bytes(b"no states")
    result = compare(real, folder)
    assert (names(result), result.verdict) == ([], Verdict.INCONCLUSIVE)
    assert any(skip.blocks_verdict and skip.reason.startswith("batch: 1 file(s) of ranks") for skip in result.skipped)


# By itself, and hostile ---------------------------------------------------------------------------------------------


def test_a_capture_is_judged_by_itself(real: RealStates, tmp_path: Path) -> None:
    def split(text: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        return {**both(text, slots), "tp1": spoil_rows(slots, [9])}

    outcomes = judge_recording(open_hidden_states(write(tmp_path / "c", real, split), role="live"))
    assert [outcome.name for outcome in outcomes if isinstance(outcome, Finding)] == ["rank-divergence"]


@pytest.mark.parametrize("name", ["..", ".", "tp1.x"])
def test_names_of_ranks_lead_nowhere(real: RealStates, tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "c", real, both)
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"tp1"', f'"{name}"'))
    result = compare(real, folder)
    assert all(slot["ranks"] == [] for slot in result.measurements["recording"]["rank_slots"])
    assert "rank-divergence" not in names(result)


def test_a_broken_file_of_a_rank_is_told(real: RealStates, tmp_path: Path) -> None:
    folder = write(tmp_path / "c", real, both)
    (folder / "ranks" / "tp1" / "sequence_000001.safetensors").write_bytes(b"no states")
    result = compare(real, folder)
    assert (names(result), result.verdict) == ([], Verdict.INCONCLUSIVE)
    (skip,) = [skip for skip in result.skipped if skip.check == "rank-states"]
    assert skip.blocks_verdict
    assert "1 file(s) of ranks can't be read and weren't compared, such as ranks/tp1/sequence_000001" in skip.reason


def test_broken_files_of_ranks_are_counted_however_many_are_named(real: RealStates, tmp_path: Path) -> None:
    server = Server(ranks=[rank(f"tp{i}", group_size=8) for i in range(8)])
    folder = write(tmp_path / "c", real, lambda _, s: {f"tp{i}": s for i in range(8)}, server)
    for i in range(1, 8):
        (folder / "ranks" / f"tp{i}" / "sequence_000001.safetensors").write_bytes(b"no states")
    recording = compare(real, folder).measurements["recording"]
    assert (len(recording["rank_unreadable"]), recording["rank_unreadable_count"]) == (5, 7)
    (skip,) = [one for one in compare(real, folder).skipped if one.check == "rank-states"]
    assert skip.reason.startswith("7 file(s) of ranks can't be read")


def test_a_broken_file_hides_no_divergence_of_another(real: RealStates, tmp_path: Path) -> None:
    def split(text: int, slots: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        return {**both(text, slots), "tp1": slots if text else spoil_rows(slots, [9])}

    folder = write(tmp_path / "c", real, split)
    (folder / "ranks" / "tp1" / "sequence_000001.safetensors").write_bytes(b"no states")
    result = compare(real, folder)
    assert (names(result), result.verdict) == (["rank-divergence"], Verdict.FAIL)


def test_the_states_of_ranks_merge() -> None:
    generator = torch.Generator().manual_seed(0)
    first = [torch.randn(n, 8, generator=generator) for n in (300, 20, 7)]
    other = [rows + (torch.rand(len(rows), 1, generator=generator) < 0.3) * torch.randn(rows.shape) for rows in first]

    def measure(which: Sequence[int]) -> RankPair:
        pair = RankPair(0, "tp1", "tp0", "float32")
        for i in which:
            pair.update(f"s{i}", len(first[i]), TensorRows(first[i]), TensorRows(other[i]))
        return pair

    merged = measure([0]).merge(measure([1])).merge(measure([2]))
    assert merged.compute() == measure([0, 1, 2]).compute()
    expected = sum(int((a != b).any(1).sum()) for a, b in zip(first, other, strict=True))
    assert merged.compute().differing == expected
