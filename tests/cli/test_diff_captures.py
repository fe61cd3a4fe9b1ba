"""``diff-captures`` as a user calls it: files in, text and exit status out."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from builders import Written, write_capture, write_specforge, write_speculators_list, write_stacked

from eagle_parity.cli.app import run
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_thread")

LAYERS = 10
HIDDEN = 16
TRAINED = (3, 6, 8)
LENGTHS = (40, 24, 31)


def boundaries_of(tokens: int, seed: int) -> dict[Any, torch.Tensor]:
    """A made-up target's states: an embedding by token, and layers that add to it."""
    generator = torch.Generator().manual_seed(seed)
    states: dict[Any, torch.Tensor] = {}
    stream = torch.randn(tokens, HIDDEN, generator=generator)
    for boundary in range(LAYERS + 1):
        states[boundary] = stream
        stream = stream + 0.7 * torch.randn(tokens, HIDDEN, generator=generator)
    last = states[LAYERS]
    states[POST_NORM] = last / last.square().mean(1, keepdim=True).sqrt() * torch.linspace(0.5, 2, HIDDEN)
    return states


STATES = [boundaries_of(tokens, seed) for seed, tokens in enumerate(LENGTHS)]
IDS = [torch.arange(1, tokens + 1) + 100 * i for i, tokens in enumerate(LENGTHS)]


def written(
    wiring: Sequence[Any] = TRAINED, last_state: Any = None, *, dtype: torch.dtype = torch.bfloat16
) -> list[Written]:
    return [
        Written(
            ids,
            [states[b].to(dtype) for b in wiring],
            last_state=None if last_state is None else states[last_state].to(dtype),
            loss_mask=torch.ones_like(ids),
        )
        for ids, states in zip(IDS, STATES, strict=True)
    ]


LAYOUTS: dict[str, Callable[[Path, Sequence[int]], Path]] = {
    "speculators 0.3": lambda folder, wiring: write_speculators_list(
        folder, written(wiring, LAYERS), layer_ids=[*(b - 1 for b in wiring), LAYERS - 1] if 0 not in wiring else None
    ),
    "speculators 0.5": lambda folder, wiring: write_stacked(folder, written(wiring, LAYERS), speculators=True),
    "connector": lambda folder, wiring: write_stacked(folder, written(wiring)),
    "connector with the last state": lambda folder, wiring: write_stacked(folder, written(wiring, LAYERS)),
    "SpecForge": lambda folder, wiring: write_specforge(folder, written(wiring, POST_NORM)),
    "SpecForge, padded": lambda folder, wiring: write_specforge(folder, written(wiring, POST_NORM), padded_to=48),
    "SpecForge, gzipped": lambda folder, wiring: write_specforge(folder, written(wiring, POST_NORM), compress=True),
    "capture": lambda folder, wiring: write_capture(folder, written(wiring), slots=wiring),
    "capture with the last state": lambda folder, wiring: write_capture(
        folder, written(wiring, LAYERS), slots=wiring, last_state=LAYERS
    ),
}


def reference(folder: Path) -> Path:
    boundaries = list(range(LAYERS + 1))
    return write_capture(
        folder, written(boundaries, POST_NORM, dtype=torch.float32), slots=boundaries, last_state=POST_NORM
    )


def diff(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    """The exit status and the JSON result; progress and messages must not be on stdout."""
    status = run(["diff-captures", *map(str, arguments), "--format", "json"])
    return status, json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of a call that can't be answered."""
    assert run(["diff-captures", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("eagle-parity: error: ") == 1
    line = captured.err[captured.err.index("eagle-parity: error: ") :]
    assert line.count("\n") == 1
    assert "Traceback" not in captured.err
    assert "internal error" not in line
    return line


def names(result: dict[str, Any]) -> list[str]:
    return [finding["name"] for finding in result["findings"]]


# Any two readable inputs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trained", LAYOUTS)
@pytest.mark.parametrize("live", ["connector", "SpecForge", "capture"])
def test_the_same_states_in_any_two_layouts_are_parity(
    trained: str, live: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = LAYOUTS[trained](tmp_path / "one", TRAINED), LAYOUTS[live](tmp_path / "two", TRAINED)
    arguments: list[object] = [one, two]
    if (trained, live) == ("connector with the last state", "connector"):
        arguments += ["--trained-boundaries", "3,6,8"]  # of two undecided layouts neither can settle the other
    status, result = diff(capsys, *arguments)
    assert (status, names(result), result["verdict"]) == (0, [], "pass")
    assert [entry["slots"] for entry in result["inputs"]] == [3, 3]
    status, result = diff(capsys, *arguments, "--reference", reference(tmp_path / "reference"))
    assert (status, names(result)) == (0, [])
    assert (result["wiring"]["trained"], result["wiring"]["live"]) == ([3, 6, 8], [3, 6, 8])


@pytest.mark.parametrize("trained", LAYOUTS)
def test_a_wrong_layer_in_any_layout(trained: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = LAYOUTS[trained](tmp_path / "one", TRAINED), LAYOUTS["capture"](tmp_path / "two", (3, 7, 8))
    status, result = diff(capsys, one, two, "--reference", reference(tmp_path / "reference"))
    assert (status, names(result)) == (1, ["layer-mismatch"])
    (finding,) = result["findings"]
    assert (finding["slot"], finding["evidence"]["offset"]) == (1, 1)


def test_last_states_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = LAYOUTS["speculators 0.5"](tmp_path / "one", TRAINED)
    two = LAYOUTS["SpecForge"](tmp_path / "two", TRAINED)
    _, result = diff(capsys, one, two, "--reference", reference(tmp_path / "reference"))
    assert result["wiring"]["last_state"] == {"trained": LAYERS, "live": "post_norm"}


def test_a_single_file_is_a_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write_specforge(tmp_path / "one", written(TRAINED, POST_NORM))
    status, result = diff(capsys, one / "rows_0-2000" / "data_1.ckpt", one)
    assert (status, names(result)) == (0, [])
    assert result["measurements"]["sequences"]["unpaired_live"] == 2


def test_what_files_say_of_themselves_is_held_against_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Ids that count outputs from 1: what the config says is one layer off.
    one = write_speculators_list(tmp_path / "one", written(TRAINED, LAYERS), layer_ids=[3, 6, 8, 9])
    two = LAYOUTS["capture"](tmp_path / "two", TRAINED)
    status, result = diff(capsys, one, two, "--reference", reference(tmp_path / "reference"))
    assert (status, names(result)) == (1, ["misdeclared-wiring"])
    assert result["wiring"]["trained"] == [3, 6, 8]


# Exit status and output ---------------------------------------------------------------------------------------------


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    return LAYOUTS["SpecForge"](tmp_path / "one", TRAINED), LAYOUTS["capture"](tmp_path / "two", (6, 3, 8))


@pytest.mark.parametrize(("fail_on", "status"), [("error", 1), ("warning", 1), ("never", 0)])
def test_fail_on(fail_on: str, status: int, sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(capsys, *sides, "--fail-on", fail_on)[0] == status


def test_a_threshold_changes_the_verdict(sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(capsys, *sides)[0] == 1
    assert diff(capsys, *sides, "--threshold", "min_tokens=1000")[0] == 3
    status, result = diff(capsys, *sides, "--threshold", "parity_distance=9", "--threshold", "bad_row_distance=9")
    assert (status, result["measurements"]["thresholds"]["parity_distance"]) == (0, 9)


def test_a_saved_result_is_reported_alike(
    sides: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "result.json"
    assert run(["diff-captures", *map(str, sides), "-f", "json", "-o", str(saved)]) == 1
    assert capsys.readouterr().out == ""
    assert run(["report", str(saved)]) == 1
    assert "slot-order" in capsys.readouterr().out
    loose = ["--threshold", "parity_distance=9", "--threshold", "bad_row_distance=9"]
    assert run(["report", str(saved), *loose]) == 0


@pytest.mark.parametrize("format_", ["terminal", "markdown"])
def test_people_are_told_the_finding_and_the_remedy(
    format_: str, sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff-captures", *map(str, sides), "--format", format_]) == 1
    text = capsys.readouterr().out
    assert "slot-order" in text
    assert "trained slot 1" in text or "(6, 3, 8)" in text


# Damaged input ------------------------------------------------------------------------------------------------------


def test_a_truncated_file_among_good_ones_is_one_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = LAYOUTS["connector"](tmp_path / "one", TRAINED), LAYOUTS["capture"](tmp_path / "two", TRAINED)
    victim = sorted(one.glob("*.safetensors"))[1]
    victim.write_bytes(victim.read_bytes()[:-100])
    status, result = diff(capsys, one, two)
    assert (status, names(result)) == (1, ["unreadable-shard"])
    assert victim.name in result["findings"][0]["message"]
    assert result["measurements"]["sequences"]["paired"] == 2
    assert result["measurements"]["tokens"] == 40 + 31
    assert all(slot["pair"]["distance"] == 0 for slot in result["measurements"]["slots"])


def test_all_files_truncated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = LAYOUTS["connector"](tmp_path / "one", TRAINED), LAYOUTS["capture"](tmp_path / "two", TRAINED)
    for victim in one.glob("*.safetensors"):
        victim.write_bytes(victim.read_bytes()[:-100])
    line = refused(capsys, one, two)
    assert "truncated" in line
    assert str(one) in line


class Attack:
    """What a hostile shard holds instead of a tensor."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("alone", [True, False])
def test_a_pickle_with_code_in_it_is_refused_and_never_run(
    alone: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "attacked"
    one, two = LAYOUTS["SpecForge"](tmp_path / "one", TRAINED), LAYOUTS["capture"](tmp_path / "two", TRAINED)
    victim = one / "rows_0-2000" / "data_1.ckpt"
    with zipfile.ZipFile(victim, "w") as archive:
        attack = Attack(marker)
        content = {"input_ids": attack, "aux_hidden_state": attack, "hidden_state": attack}
        archive.writestr("data_1/data.pkl", pickle.dumps(content, protocol=2))
    if alone:
        assert "refused" in refused(capsys, victim, two)
    else:
        status, result = diff(capsys, one, two)
        assert (status, names(result)) == (1, ["unreadable-shard"])
        assert "refused" in result["findings"][0]["message"]
        assert result["measurements"]["sequences"]["paired"] == 2
    assert not marker.exists()


@pytest.mark.parametrize("alone", [True, False])
def test_a_header_that_claims_10_tb(alone: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = LAYOUTS["connector"](tmp_path / "one", TRAINED), LAYOUTS["capture"](tmp_path / "two", TRAINED)
    victim = min(one.glob("*.safetensors"))
    numbers = 5 * 2**40
    header = json.dumps(
        {
            "token_ids": {"dtype": "I64", "shape": [8], "data_offsets": [0, 64]},
            "hidden_states": {"dtype": "BF16", "shape": [numbers // 48, 3, 16], "data_offsets": [64, 64 + 2 * numbers]},
        }
    ).encode()
    victim.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    if alone:
        refused(capsys, victim, two)
    else:
        status, result = diff(capsys, one, two)
        assert (status, names(result)) == (1, ["unreadable-shard"])
        assert result["measurements"]["sequences"]["paired"] == 2


def test_zero_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = [Written(torch.zeros(0, dtype=torch.int64), [torch.zeros(0, HIDDEN)] * 3)]
    one, two = write_stacked(tmp_path / "one", empty), LAYOUTS["capture"](tmp_path / "two", TRAINED)
    status, result = diff(capsys, one, two)
    assert (status, result["verdict"]) == (3, "inconclusive")
    status, result = diff(capsys, one, one)
    assert (status, result["verdict"]) == (3, "inconclusive")
    # Among others it is one that has no partner.
    mixed = write_stacked(tmp_path / "mixed", [*written(dtype=torch.float32), *empty])
    status, result = diff(capsys, mixed, two)
    assert (status, names(result)) == (0, [])
    assert result["measurements"]["sequences"]["unpaired_trained"] == 1


@pytest.mark.parametrize("side", ["one", "two"])
def test_nan_everywhere(side: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = written()
    bad = [replace(w, slots=[torch.full_like(slot, torch.nan) for slot in w.slots]) for w in good]
    one = write_capture(tmp_path / "one", bad if side == "one" else good, slots=TRAINED)
    two = write_capture(tmp_path / "two", bad if side == "two" else good, slots=TRAINED)
    for more in ([], ["--reference", reference(tmp_path / "reference")]):
        status, result = diff(capsys, one, two, *more)
        assert (status, names(result)) == (1, ["non-finite"])
        assert any(skip["check"] == "live-wiring" and skip["blocks_verdict"] for skip in result["skipped"])


def test_other_token_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = LAYOUTS["connector"](tmp_path / "one", TRAINED)
    others = [replace(w, token_ids=w.token_ids + 5_000) for w in written()]
    status, result = diff(capsys, one, write_capture(tmp_path / "two", others, slots=TRAINED))
    assert (status, result["verdict"]) == (3, "inconclusive")
    assert [(f["name"], f["severity"]) for f in result["findings"]] == [("token-mismatch", "warning")]


def test_too_few_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = [Written(w.token_ids[:5], [slot[:5] for slot in w.slots]) for w in written()[:1]]
    one, two = write_stacked(tmp_path / "one", few), write_capture(tmp_path / "two", few, slots=TRAINED)
    status, result = diff(capsys, one, two)
    assert (status, result["verdict"]) == (3, "inconclusive")
    assert any("a conclusion needs 8" in skip["reason"] for skip in result["skipped"])


def test_a_directory_without_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = LAYOUTS["capture"](tmp_path / "two", TRAINED)
    (tmp_path / "empty").mkdir()
    assert "no shards in it" in refused(capsys, tmp_path / "empty", two)
    assert "no shards in it" in refused(capsys, two, tmp_path / "empty")
    assert "no such file" in refused(capsys, tmp_path / "nowhere", two)


@pytest.mark.parametrize("content", ["[1, 2]", '{"a": 1}', "nope", ""])
def test_json_that_is_not_a_config(
    content: str, sides: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(content)
    assert "config.json" in refused(capsys, *sides, "--target", config)


def test_another_hidden_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = LAYOUTS["capture"](tmp_path / "one", TRAINED)
    narrow = [replace(w, slots=[slot[:, :8] for slot in w.slots]) for w in written()]
    two = write_capture(tmp_path / "two", narrow, slots=TRAINED)
    status, result = diff(capsys, one, two)
    assert (status, names(result)) == (1, ["shape-mismatch"])
    status, result = diff(capsys, one, two, "--reference", reference(tmp_path / "reference"))
    assert (status, names(result)) == (1, ["shape-mismatch"])
    for option in ("--reference", "--noise"):
        line = refused(capsys, one, one, option, two)
        assert "its hidden size is 8" in line
        assert option in line


def test_a_target_of_another_hidden_size(
    sides: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"num_hidden_layers": LAYERS, "hidden_size": 8, "architectures": ["A"]}))
    assert "its hidden size is 8" in refused(capsys, *sides, "--target", config)


def test_a_reference_that_does_not_say_its_boundaries(
    sides: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mute = write_stacked(tmp_path / "mute", written(range(LAYERS + 1)))
    line = refused(capsys, *sides, "--reference", mute)
    assert "doesn't say which boundaries" in line
    assert "--reference-boundaries" in line
    status, result = diff(capsys, *sides, "--reference", mute, "--reference-boundaries", "0-10")
    assert (status, names(result)) == (1, ["slot-order"])
    assert result["wiring"]["live"] == [6, 3, 8]
    assert "11 states" in refused(capsys, *sides, "--reference", mute, "--reference-boundaries", "0-9")


def test_a_reference_over_other_tokens(sides: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    others = [replace(w, token_ids=w.token_ids + 5_000) for w in written(range(LAYERS + 1))]
    other = write_capture(tmp_path / "other", others, slots=range(LAYERS + 1))
    one = sides[0]
    status, result = diff(capsys, one, one, "--reference", other)
    assert (status, names(result)) == (3, [])
    assert any("the reference covers" in skip["reason"] for skip in result["skipped"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--trained-boundaries", "3,6"],
        ["--trained-boundaries", "3,6,8,10,11"],
        ["--live-boundaries", "3"],
        ["--trained-boundaries", "three"],
        ["--trained-boundaries", "8-3"],
        ["--reference-boundaries", ""],
        ["--threshold", "nonsense"],
        ["--threshold", "nonsense=1"],
        ["--threshold", "margin=no"],
        ["--fail-on", "sometimes"],
        ["--noise", "nowhere"],
        ["--reference", "nowhere"],
        ["--target", "./nowhere"],
    ],
)
def test_wrong_usage(arguments: list[str], sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, *sides, *arguments)


@pytest.mark.parametrize("device", ["cuda", "meta", "nonsense", "cuda:99"])
def test_a_device_that_isn_t_there(device: str, sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    assert run(["diff-captures", *map(str, sides), "--device", device]) == 2
    err = capsys.readouterr().err
    assert f"--device {device}: nothing can be computed there" in err
    assert len(err.splitlines()) == 1
