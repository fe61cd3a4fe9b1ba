"""The file of a scan's state: read back as it was, and believed in nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from same_state import assert_same
from small_sets import write_set

from eagle_parity.cli.app import run
from eagle_parity.errors import InputError
from eagle_parity.readers import SUMMARY_KEY
from eagle_parity.scan.executors import ThisProcess
from eagle_parity.scan.parts import PartWork, split
from eagle_parity.scan.set_state import SetState
from eagle_parity.scan.shards import find_shards
from eagle_parity.scan.summary import SCHEMA_VERSION, Progress, read_summary, write_summary

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_thread")
PROGRESS = Progress(root="set", rows=64, first_token=None, parts=16, files=20, listed="0", complete=True)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> SetState:
    folder = write_set(tmp_path_factory.mktemp("summary") / "set", 20, tokens=6)
    (folder / "rows_0" / "hs_7.safetensors").write_bytes(b"broken")
    listing = find_shards(str(folder))
    found = SetState()
    for _, part in ThisProcess().run(PartWork(listing.shards, None), split(listing.names)):
        found.merge(part)
    return found


def test_what_is_written_is_read(state: SetState, tmp_path: Path) -> None:
    write_summary(tmp_path / "s", state, PROGRESS)
    found, progress = read_summary(tmp_path / "s")
    assert progress == PROGRESS
    assert_same(found, state)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600  # rows of states and digests of texts


def test_what_is_read_goes_on_like_what_was_written(state: SetState, tmp_path: Path) -> None:
    write_summary(tmp_path / "s", state, PROGRESS)
    one, two = read_summary(tmp_path / "s")[0], read_summary(tmp_path / "s")[0]
    one.merge(two)
    write_summary(tmp_path / "t", one, msgspec.structs.replace(PROGRESS, files=40))
    found = read_summary(tmp_path / "t")[0]
    assert found.counts.files == 2 * state.counts.files
    assert_same(found, one)


def test_nothing_is_a_state_too(tmp_path: Path) -> None:
    write_summary(tmp_path / "s", SetState(), msgspec.structs.replace(PROGRESS, files=0))
    assert read_summary(tmp_path / "s")[0].counts.files == 0


def changed(path: Path, to: Path, change: Any, tensors: Any = None) -> Path:
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        content = json.loads(file.metadata()[SUMMARY_KEY])
    change(content)
    save_file(load_file(path) | (tensors or {}), to, metadata={SUMMARY_KEY: json.dumps(content)})
    return to


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(schema_version=SCHEMA_VERSION + 1),
        lambda content: content.update(schema_version="1"),
        lambda content: content["progress"].update(parts=-(10**30)),
        lambda content: content["layouts"][0].update(group_rows=[1]),
        lambda content: content["layouts"][0].update(ranges=[[0, 1, 2]]),
        lambda content: content["layouts"][0]["ranges"][0].__setitem__(0, 99),
        lambda content: content["layouts"][0]["ranges"][1].__setitem__(0, 0),
        lambda content: content["progress"].update(files=19),
        lambda content: content.update(kind="another"),
        lambda content: content.update(shortest=-1),
        lambda content: content["layouts"][0]["key"].__setitem__(2, 10**12),
        lambda content: content["layouts"][0]["key"].__setitem__(1, -5),
        lambda content: content["layouts"].append(content["layouts"][0]),
        lambda content: content["counts"].update(nonsense=1),
        lambda content: content.pop("problems"),
    ],
)
def test_a_summary_that_lies_is_refused(state: SetState, tmp_path: Path, change: Any) -> None:
    write_summary(tmp_path / "s", state, PROGRESS)
    with pytest.raises(InputError):
        read_summary(changed(tmp_path / "s", tmp_path / "t", change))


@pytest.mark.parametrize(
    "tensors",
    [
        {"places": np.full((19, 2), 20)},
        {"places": np.full((19, 2), -1)},
        {"places": np.zeros((18, 2), np.int64)},
        {"places": np.zeros((19, 2), np.int32)},
        {"digests": np.zeros((19, 8), np.uint8)},
        {"stamps": np.zeros((20, 8), np.int8)},
        {"0.groups": np.zeros((16, 2, 3, 8), np.int64)},
        {"0.priorities": np.zeros(5, np.uint64)},
        {"0.sample": np.zeros((114, 3, 8), np.float64)},
    ],
)
def test_tensors_that_don_t_fit_are_refused(state: SetState, tmp_path: Path, tensors: Any) -> None:
    write_summary(tmp_path / "s", state, PROGRESS)
    with pytest.raises(InputError):
        read_summary(changed(tmp_path / "s", tmp_path / "t", lambda _content: None, tensors))


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 64, b"\xff" * 64])
def test_what_is_no_summary_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(InputError):
        read_summary(tmp_path / "s")


def test_any_cut_of_it_is_refused(state: SetState, tmp_path: Path) -> None:
    write_summary(tmp_path / "s", state, PROGRESS)
    data = (tmp_path / "s").read_bytes()
    for length in (7, 8, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "t").write_bytes(data[:length])
        with pytest.raises(InputError):
            read_summary(tmp_path / "t")


def test_no_command_takes_it_for_states(state: SetState, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(tmp_path / "s.safetensors", state, PROGRESS)
    for arguments in (["inspect", "s"], ["scan", "s"], ["diff-captures", "s", "s"]):
        command, *paths = arguments
        assert run([command, *(str(tmp_path / f"{path}.safetensors") for path in paths)]) in {0, 2}
        said = capsys.readouterr()
        assert "a summary of `eagle-parity scan`" in " ".join((said.out + said.err).split())
