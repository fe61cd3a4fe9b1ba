"""A scan as a user runs it: what it finds, how it goes on after an interruption, and that it always says the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from same_state import assert_same
from small_sets import HIDDEN, tensors, write_file, write_set

from eagle_parity.cli.app import run
from eagle_parity.scan.parts import PartWork
from eagle_parity.scan.summary import read_summary

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def scanned(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> tuple[int, dict[str, Any], str]:
        status = run(["scan", *map(str, arguments), "--format", "json"])
        out, err = capsys.readouterr()
        return status, json.loads(out) if out else {}, err

    return call


def names(result: dict[str, Any]) -> list[str]:
    return [finding["name"] for finding in result["findings"]]


def assert_alike(one: Path, other: Path) -> None:
    """Two complete summaries are of one state, bit for bit."""
    (state, progress), (expected, _) = read_summary(one), read_summary(other)
    assert_same(state, expected)
    assert progress.complete
    assert not unfinished(one).exists()


def unfinished(summary: Path) -> Path:
    return summary.with_name(summary.name + ".unfinished")


def test_a_good_set_passes(scanned: Any, tmp_path: Path) -> None:
    write_set(tmp_path / "set", 40)
    status, result, err = scanned(tmp_path / "set", "--all")
    assert (status, names(result), err) == (0, [], "")
    found = result["measurements"]
    assert (found["files"], found["sequences"], found["tokens"], found["rows"]) == (40, 40, 480, 480)
    assert found["sampled_rows"] == 480
    assert 0.09 < found["quantile_error"] < 0.11
    assert [state["state"] for state in found["states"]] == ["slot 0", "slot 1", "slot 2"]
    everything = torch.cat([tensors(number)["hidden_states"].double() for number in range(40)])
    for state in found["states"]:
        slot = everything[:, int(state["state"][-1])]
        assert np.isclose(state["rms"], slot.square().mean().sqrt().item(), rtol=1e-6)
        assert state["greatest"] == slot.max().item()
    assert result["inputs"][0]["format"] == "stacked"
    told = {skip["check"]: skip["reason"] for skip in result["skipped"]}
    assert told == {
        "set-masks": "no sequence has a loss mask",
        "set-drift": "40 files are too few to tell drift from chance: it takes 160",
        "set-wiring": "no --reference: nothing tells which layers the states are of",
    }
    assert not any(skip["blocks_verdict"] for skip in result["skipped"])


def test_everything_that_can_be_wrong_at_once(scanned: Any, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", 30)
    (folder / "rows_0" / "hs_3.safetensors").write_bytes(b"broken")
    write_file(folder / "rows_0" / "hs_5.safetensors", tensors(4))  # the text of another one
    bad = tensors(6)
    bad["hidden_states"][2, 1, 0] = torch.inf
    write_file(folder / "rows_0" / "hs_6.safetensors", bad)
    short = tensors(7)
    short["token_ids"] = torch.arange(3)
    write_file(folder / "rows_0" / "hs_7.safetensors", short)
    write_file(folder / "rows_0" / "hs_8.safetensors", tensors(8, slots=4))
    wider = {"hidden_states": torch.randn(12, 3, 2 * HIDDEN), "token_ids": torch.arange(12) + 9000}
    write_file(folder / "rows_0" / "hs_9.safetensors", wider)
    status, result, _ = scanned(folder)
    assert status == 1
    found = {finding["name"]: finding for finding in result["findings"]}
    assert set(found) == {"unreadable-shard", "duplicate-sequence", "non-finite", "row-count", "mixed-layout"}
    assert found["unreadable-shard"]["evidence"]["examples"][0]["file"] == "rows_0/hs_3.safetensors"
    assert found["duplicate-sequence"]["evidence"]["examples"] == [
        ["rows_0/hs_4.safetensors", "rows_0/hs_5.safetensors"]
    ]
    assert found["duplicate-sequence"]["severity"] == "warning"
    assert found["mixed-layout"]["severity"] == "error"
    assert found["mixed-layout"]["evidence"]["differ_in"] == ["dtype", "hidden_size", "slots"]
    assert [layout["files"] for layout in result["measurements"]["layouts"]] == [27, 1, 1]
    assert result["measurements"]["sequences"] == 29


def test_dtypes_alone_are_a_warning(scanned: Any, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", 6)
    single = tensors(9)
    single["hidden_states"] = single["hidden_states"].float()
    write_file(folder / "hs_9.safetensors", single)
    status, result, _ = scanned(folder)
    assert (status, names(result)) == (0, ["mixed-layout"])
    assert "dtype float32 and not bfloat16" in result["findings"][0]["message"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "no such file or folder"),
        (["."], "no shards in it"),
        ([".", "--rows", "3", "--all"], "one of them"),
        ([".", "--trained-boundaries", "1,2,3"], "which isn't given"),
        ([".", "--target", "nowhere"], "which isn't given"),
        ([".", "--reference", "nowhere"], "no such file or folder"),
        ([".", "--reference", ".", "--trained-boundaries", "x"], "--trained-boundaries"),
    ],
)
def test_wrong_usage(
    scanned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = scanned(*arguments)
    assert (status, told in err, len(err.splitlines())) == (2, True, 1), err


def test_no_readable_file_at_all(scanned: Any, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"x")
    status, _, err = scanned(tmp_path)
    assert (status, "none of its 1 files can be read" in err) == (2, True)


def test_drift_between_parts_is_told(scanned: Any, tmp_path: Path) -> None:
    """The last eighth of the files is of another layer: scaled, and its dimensions in another order."""
    folder = write_set(tmp_path / "set", 240, tokens=8)
    status, result, _ = scanned(folder)
    assert (status, names(result)) == (0, [])
    for number in range(210, 240):
        other = tensors(number, 8)
        other["hidden_states"] = other["hidden_states"].flip(2) * 2 + 3
        write_file(folder / f"rows_{number // 100}" / f"hs_{number}.safetensors", other)
    status, result, _ = scanned(folder)
    assert (status, names(result)) == (0, ["distribution-drift"])
    parts = result["findings"][0]["evidence"]["parts"]
    assert (parts[0]["to_the_end"], parts[0]["first"]) == (True, "rows_2/hs_210.safetensors")
    assert result["findings"][0]["message"].startswith("the files from rows_2/hs_210.safetensors on are unlike")


# The same, whoever does it ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than one part in each range, so that there is something to spread and to go on from."""
    folder = write_set(tmp_path_factory.mktemp("scan") / "set", 700, tokens=20)
    (folder / "rows_2" / "hs_250.safetensors").write_bytes(b"broken")
    return folder


@pytest.fixture(scope="module")
def whole(large: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The summary of one process in one go."""
    summary = tmp_path_factory.mktemp("scan") / "whole.summary"
    assert run(["scan", str(large), "--summary", str(summary), "--workers", "1", "--rows", "8", "--quiet"]) == 1
    return summary


def test_several_processes_say_the_same(scanned: Any, large: Path, whole: Path, tmp_path: Path) -> None:
    status, result, _ = scanned(large, "--summary", tmp_path / "s", "--workers", 2, "--rows", 8)
    assert (status, names(result)) == (1, ["unreadable-shard"])
    assert_alike(tmp_path / "s", whole)


@pytest.mark.parametrize("after", [1, 5, 15])
def test_an_interrupted_scan_goes_on(  # noqa: PLR0917  fixtures
    scanned: Any, large: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    summary = tmp_path / "s"
    seen: list[int] = []
    work = PartWork.__call__

    def interrupted(self: Any, part: Any) -> Any:
        seen.append(part.number)
        if len(seen) > after:
            raise KeyboardInterrupt
        return work(self, part)

    with monkeypatch.context() as patched:
        patched.setattr(PartWork, "__call__", interrupted)
        status, _, err = scanned(large, "--summary", summary, "--workers", 1, "--rows", 8)
    assert status == 130, err
    progress = read_summary(unfinished(summary))[1]
    assert (progress.parts, progress.complete, summary.exists()) == (after, False, False)

    def watched(self: Any, part: Any) -> Any:
        seen.append(part.number)
        return work(self, part)

    monkeypatch.setattr(PartWork, "__call__", watched)
    seen.clear()
    status, result, err = scanned(large, "--summary", summary, "--workers", 1, "--rows", 8)
    assert (status, result["measurements"]["files"]) == (1, 700)
    assert "going on behind" in err
    assert seen == list(range(after, 16))
    assert_alike(summary, whole)


def test_killed_in_the_midst_and_gone_on(scanned: Any, large: Path, whole: Path, tmp_path: Path) -> None:
    """SIGKILL: nothing can be written any more; what was written last is gone on from."""
    summary = tmp_path / "s"
    program = (
        "import sys; from eagle_parity.scan import run; run.SAVE_SECONDS = 0.0; run.SAVE_SHARE = 1e9\n"
        "from eagle_parity.cli.app import run as call; sys.exit(call(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "scan", str(large), "--summary", str(summary), "--workers", "1"]
    process = subprocess.Popen([*command, "--rows", "8"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not unfinished(summary).exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not summary.exists()
    _, progress = read_summary(unfinished(summary))
    assert 0 < progress.parts < 16
    status, result, _ = scanned(large, "--summary", summary, "--workers", 1, "--rows", 8)
    assert (status, result["measurements"]["files"]) == (1, 700)
    assert_alike(summary, whole)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["s"]


def test_workers_end_with_a_driver_that_is_killed(large: Path, tmp_path: Path) -> None:
    summary = tmp_path / "s"
    program = (
        "import multiprocessing, os, sys, threading, time; from eagle_parity.scan import run; run.SAVE_SECONDS = 0.0\n"
        "from eagle_parity.cli.app import run as call\n"
        "def told():\n"
        "    while len(multiprocessing.active_children()) < 2: time.sleep(0.01)\n"
        "    print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    threading.Thread(target=told, daemon=True).start()\n"
        "    sys.exit(call(sys.argv[1:]))\n"
    )
    (tmp_path / "driver.py").write_text(program)
    command = [sys.executable, str(tmp_path / "driver.py"), "scan", str(large), "--summary", str(summary), "--all"]
    process = subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    workers = [int(number) for number in process.stdout.readline().split()]
    deadline = time.monotonic() + 120
    while not unfinished(summary).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    process.stdout.close()
    assert len(workers) == 2
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_runs, workers))


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_other_files_or_rows_begin_anew(
    scanned: Any, large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, summary = shutil.copytree(large, tmp_path / "set"), tmp_path / "s"
    work = PartWork.__call__

    def interrupt(rows: int = 8) -> None:
        def interrupted(self: Any, part: Any) -> Any:
            if part.number == 3:
                raise KeyboardInterrupt
            return work(self, part)

        with monkeypatch.context() as patched:
            patched.setattr(PartWork, "__call__", interrupted)
            assert scanned(folder, "--summary", summary, "--workers", 1, "--rows", rows, "--fresh")[0] == 130

    interrupt()
    assert "another list of files, rows or ids" in scanned(folder, "--summary", summary, "--workers", 1, "--rows", 9)[2]
    interrupt()
    write_file(folder / "rows_0" / "hs_3.safetensors", tensors(3, 21))
    assert "1 of 131 files" in scanned(folder, "--summary", summary, "--workers", 1, "--rows", 8)[2]
    interrupt()
    (folder / "rows_0" / "hs_3.safetensors").unlink()
    assert "another list" in scanned(folder, "--summary", summary, "--workers", 1, "--rows", 8)[2]
    interrupt()
    _, result, err = scanned(folder, "--summary", summary, "--workers", 1, "--rows", 8, "--fresh")
    assert (err, result["measurements"]["files"]) == ("", 699)


def test_a_summary_replaces_no_other_file(scanned: Any, tmp_path: Path) -> None:
    write_set(tmp_path / "set", 3)
    (tmp_path / "notes").write_text("mine")
    status, _, err = scanned(tmp_path / "set", "--summary", tmp_path / "notes")
    assert (status, (tmp_path / "notes").read_text(), "no summary" in err) == (2, "mine", True)
    (tmp_path / "s.unfinished").write_text("mine")
    assert scanned(tmp_path / "set", "--summary", tmp_path / "s")[0] == 2
    assert (tmp_path / "s.unfinished").read_text() == "mine"
    os.mkfifo(tmp_path / "pipe")
    for place in ("pipe", "set", "no/folder"):
        assert scanned(tmp_path / "set", "--summary", tmp_path / place)[0] == 2


def test_a_complete_summary_stays_until_another_one_is(
    scanned: Any, large: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "s"
    shutil.copy(whole, summary)
    before = summary.read_bytes()
    monkeypatch.setattr(PartWork, "__call__", _interrupt)
    assert scanned(large, "--summary", summary, "--workers", 1, "--rows", 8)[0] == 130
    assert summary.read_bytes() == before
    assert not unfinished(summary).exists()  # of nothing there is nothing to write


def _interrupt(_self: Any, _part: Any) -> Any:
    raise KeyboardInterrupt


def test_fresh_gets_past_a_damaged_summary(scanned: Any, tmp_path: Path) -> None:
    write_set(tmp_path / "set", 3)
    (tmp_path / "s.unfinished").write_bytes(b"")
    assert scanned(tmp_path / "set", "--summary", tmp_path / "s")[0] == 2
    assert scanned(tmp_path / "set", "--summary", tmp_path / "s", "--fresh")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "set"]


def test_a_summary_in_the_set_is_none_of_it(scanned: Any, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", 3)
    for _ in range(2):
        status, result, _ = scanned(folder, "--summary", folder / "summary.safetensors")
        assert (status, result["measurements"]["files"]) == (0, 3)


def test_a_result_replaces_no_file_of_the_set(scanned: Any, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", 3)
    shard = folder / "rows_0" / "hs_1.safetensors"
    before = shard.read_bytes()
    status, _, err = scanned(folder, "--output", shard)
    assert (status, shard.read_bytes() == before, "one of the set's files" in err) == (2, True, True)


def test_what_lies_beside_is_part_of_where_a_scan_goes_on(
    scanned: Any, large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, summary = shutil.copytree(large, tmp_path / "set"), tmp_path / "s"
    work = PartWork.__call__

    def interrupted(self: Any, part: Any) -> Any:
        return _interrupt(self, part) if part.number == 3 else work(self, part)

    with monkeypatch.context() as patched:
        patched.setattr(PartWork, "__call__", interrupted)
        assert scanned(folder, "--summary", summary, "--workers", 1, "--rows", 8)[0] == 130
    (folder / "rows_0" / "data_config.json").write_text("{}")
    assert "another list" in scanned(folder, "--summary", summary, "--workers", 1, "--rows", 8)[2]


def test_names_that_are_no_text_and_links_in_a_circle(scanned: Any, tmp_path: Path) -> None:
    """A byte that is no UTF-8 is shown as an escape, and a name that has that escape as text is another one."""
    folder = tmp_path / "set"
    good = os.fsdecode(b"a\xff.safetensors")
    # The library that writes takes no such name.
    write_file(folder / "a.safetensors", tensors(1)).rename(folder / good)
    (folder / "a\\xff.safetensors").write_bytes(b"broken")
    (folder / "loop.safetensors").symlink_to("loop.safetensors")
    status, result, _ = scanned(folder)
    (finding,) = result["findings"]
    assert (status, result["measurements"]["files"], finding["name"]) == (1, 3, "unreadable-shard")
    assert finding["evidence"]["files"] == 2
    assert scanned(os.fspath(folder / good))[0] == 0


def test_a_swallowed_interrupt_ends_it_all_the_same(scanned: Any, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = PartWork.__call__

    def swallowing(self: Any, part: Any) -> Any:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return work(self, part)

    monkeypatch.setattr(PartWork, "__call__", swallowing)
    assert scanned(large, "--workers", 1, "--rows", 8)[0] == 130


# Wiring -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_reference(tmp_path: Path) -> tuple[Path, Path]:
    """A set of the boundaries 1, 3 and 4, and a reference of 0 to 5 over three of its sequences."""
    generator = torch.Generator().manual_seed(5)
    steps = torch.randn(12, 40, 6, 64, generator=generator)
    for number, stream in enumerate(steps.cumsum(2)):
        ids = torch.arange(40) + 100 * number
        content = {"hidden_states": stream[:, [1, 3, 4]].contiguous().bfloat16(), "token_ids": ids}
        write_file(tmp_path / "set" / f"hs_{number}.safetensors", content)
        if number % 4 == 1:
            content = {"hidden_states": stream.contiguous(), "token_ids": ids}
            write_file(tmp_path / "reference" / f"hs_{number}.safetensors", content)
    return tmp_path / "set", tmp_path / "reference"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("declared", "found"), [("1,3,4", []), ("2,3,4", ["misdeclared-wiring"]), (None, [])])
def test_the_wiring_by_a_reference(
    scanned: Any, with_reference: tuple[Path, Path], *, named: bool, declared: str | None, found: list[str]
) -> None:
    shards, reference = with_reference
    if not named:  # other names: the ids tell which sequences they are
        for number, path in enumerate(sorted(reference.iterdir())):
            path.rename(reference / f"other_{number}.safetensors")
    said = [] if declared is None else ["--trained-boundaries", declared]
    status, result, _ = scanned(shards, "--reference", reference, "--reference-boundaries", "0-5", *said)
    assert (status, names(result)) == (bool(found), found)
    assert result["wiring"]["trained"] == [1, 3, 4]
    assert result["wiring"]["trained_from"] == "measured"
    if found:
        assert result["findings"][0]["evidence"]["slots"][0]["declared"] == 2


def test_nothing_of_the_reference_is_in_the_set(scanned: Any, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", 12)
    other = tmp_path / "reference"
    for number in range(3):
        write_file(other / f"hs_{number}.safetensors", tensors(100 + number, slots=5))
    status, result, _ = scanned(folder, "--reference", other, "--reference-boundaries", "0-4")
    assert (status, result["verdict"]) == (3, "inconclusive")
    assert any(skip["check"] == "set-wiring" and skip["blocks_verdict"] for skip in result["skipped"])
