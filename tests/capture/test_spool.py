"""The spool: who may write, what is left behind, and what it costs those who aren't asked."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from eagle_parity.capture.hook_log import MAX_LOGGED
from eagle_parity.capture.spool import limits
from eagle_parity.capture.spool.folder import SPOOL_ENV, default_spool, make_spool, read_token
from eagle_parity.capture.spool.request_ids import Mark, is_session, new_session, request_id
from eagle_parity.capture.spool.session import BEYOND_LIMIT, MAX_FAILURES
from eagle_parity.capture.spool.worker import MAX_SESSIONS, Spool
from eagle_parity.capture.vllm.endpoint import proof

HIDDEN = 4


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MIN_FREE_BYTES", 0)  # the machine's own disk is no subject of these tests


def rows(count: int, start: int = 0) -> dict[str, torch.Tensor]:
    positions = torch.arange(start, start + count)
    return {
        "token_ids": positions + 100,
        "positions": positions,
        "slot.0": positions[:, None].float().expand(count, HIDDEN).contiguous(),
    }


def marked(spool: Spool, session: str, *numbers: int) -> list[Mark | None]:
    return spool.marks([request_id(read_token(spool.folder), session, number) for number in numbers])


def record_of(folder: Path, session: str, rank: str = "tp0") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / session / f"{rank}.json").read_text())
    return content


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_token_is_made_once_by_many_processes(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        tokens = pool.map(make_spool, [folder] * 16)
    assert set(tokens) == {read_token(folder)}
    assert [path.name for path in folder.iterdir()] == ["token"]


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spool = Spool(tmp_path / "spool", "tp0")
        session = new_session()
        spool.write("aux", rows(3), marked(spool, session, 0), [slice(0, 3)], mode="EXTEND")
    finally:
        os.umask(before)
    folders = [spool.folder, spool.folder / session]
    assert [mode_of(folder) for folder in folders] == [0o700, 0o700]
    files = [path for path in spool.folder.rglob("*") if path.is_file()]
    assert {path.name: mode_of(path) for path in files} == {
        "token": 0o600,
        "tp0.json": 0o600,
        "tp0-000000-aux.safetensors": 0o600,
    }


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_spool(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_somebody_else_laid_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    link = tmp_path / "eagle-parity-1000"
    link.symlink_to(own)
    real = Path.lstat

    def laid_by_another(path: Path) -> os.stat_result:
        found = real(path)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:])) if path == link else found

    monkeypatch.setattr(Path, "lstat", laid_by_another)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_spool(link)
    assert list(own.iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="others may write"):
        make_spool(folder)
    make_spool(folder / "own")


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64, b"0" * 10_000, b"../../etc/passwd"])
def test_what_is_no_token_is_not_taken_for_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    tmp_path.chmod(0o700)
    with pytest.raises(ValueError, match=r"."):
        read_token(tmp_path)
    with pytest.raises(ValueError, match=r"."):
        make_spool(tmp_path)


def test_a_pipe_in_the_tokens_place_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token")
    with pytest.raises(ValueError, match="holds no token"):
        read_token(tmp_path)


def test_the_default_is_of_this_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SPOOL_ENV, raising=False)
    assert default_spool().name.endswith(str(os.getuid()))
    monkeypatch.setenv(SPOOL_ENV, "/somewhere")
    assert default_spool() == Path("/somewhere")


def test_a_wrong_signature_makes_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    assert spool.marks([request_id("another token", session, number) for number in range(5)]) == []
    assert [path.name for path in spool.folder.iterdir()] == ["token"]
    assert caplog.text.count("signed with another token") == 1
    assert read_token(spool.folder) not in caplog.text


def test_a_known_session_makes_no_signature_good(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    ours = request_id(read_token(spool.folder), session, 0)
    forged = request_id("another token", session, 0)
    assert spool.marks([forged, ours, forged]) == [None, Mark(session, 0), None]
    assert spool.marks([forged]) == []


@pytest.mark.parametrize(
    "identifier",
    [
        "eagle-parity.",
        "eagle-parity.abc.def.0",
        "eagle-parity.../../../../x.0.1",
        "eagle-parity.ABCDEFABCDEF.aaaaaaaaaaaaaaaaaaaaaaaa.0",
        f"eagle-parity.{'a' * 12}.{'b' * 24}.99999999",
        None,
        7,
        "",
    ],
)
def test_ids_that_are_none_of_ours_are_nobodys(tmp_path: Path, identifier: object) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    assert spool.marks([identifier]) == []
    assert [path.name for path in spool.folder.iterdir()] == ["token"]


@pytest.mark.parametrize("frame", ["{}", "cmpl-{}-0-1a2b3c4d", "cmpl-{}-0", "chatcmpl-{}", "{}_0"])
def test_ids_are_found_within_what_an_engine_makes_of_them(tmp_path: Path, frame: str) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    identifier = frame.format(request_id(read_token(spool.folder), session, 12))
    assert spool.marks(["somebody's", identifier, None]) == [None, Mark(session, 12), None]


def test_rows_of_ours_among_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session, other = new_session(), new_session()
    token = read_token(spool.folder)
    ids = [request_id(token, session, 3), "somebody's", request_id(token, other, 0), request_id(token, session, 9)]
    spans = [slice(0, 2), slice(2, 5), slice(5, 6), slice(6, 8)]
    spool.write("aux", rows(10), spool.marks(ids), spans, mode="EXTEND")
    with safe_open(tmp_path / "spool" / session / "tp0-000000-aux.safetensors", framework="pt") as file:
        assert file.metadata() == {"requests": "[3, 9]", "mode": "EXTEND", "forward": "0"}
        assert file.get_tensor("positions").tolist() == [0, 1, 6, 7]
        assert file.get_tensor("request").tolist() == [0, 0, 1, 1]
        assert file.get_tensor("slot.0")[:, 0].tolist() == [0, 1, 6, 7]
    with safe_open(tmp_path / "spool" / other / "tp0-000000-aux.safetensors", framework="pt") as file:
        assert file.get_tensor("positions").tolist() == [5]
    assert record_of(spool.folder, session)["tokens"] == 4


def test_what_is_stored_is_a_copy(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    buffer = rows(4)
    buffer["slot.1"] = buffer["slot.0"]  # one memory, twice
    spool.write("aux", buffer, marked(spool, session, 0), [slice(0, 4)], mode="EXTEND")
    buffer["slot.0"].zero_()
    with safe_open(tmp_path / "spool" / session / "tp0-000000-aux.safetensors", framework="pt") as file:
        assert file.get_tensor("slot.1")[3].tolist() == [3] * HIDDEN


def test_what_the_hook_took_is_told(tmp_path: Path) -> None:
    session, spool = new_session(), Spool(tmp_path / "spool", "tp0")
    taken = []
    for _ in range(2):
        marks = marked(spool, session, 0)
        spool.write("aux", rows(3), marks, [slice(0, 3)], mode="EXTEND")
        taken.append(record_of(spool.folder, session)["seconds"])
    assert 0 < taken[0] < taken[1]


def test_the_limit_in_tokens_is_told_and_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "tp0", max_tokens=10)
    session = new_session()
    for number in range(4):
        marks = marked(spool, session, number)
        spool.write("aux", rows(4), marks, [slice(0, 4)], mode="EXTEND")
        draft = {key: value for key, value in rows(4).items() if key != "slot.0"}
        spool.write("draft", {**draft, "draft_input": torch.zeros(4, 2)}, marks, [slice(0, 4)], mode="EXTEND")
    record = record_of(spool.folder, session)
    assert (record["tokens"], record["limit"], record["parts"]) == (8, "max_tokens=10", 4)
    assert len(list((spool.folder / session).glob("*.safetensors"))) == 4


def test_a_limit_is_in_the_record_as_soon_as_it_is_reached(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "tp0", max_tokens=5)
    session = new_session()
    marks = marked(spool, session, 0)
    spool.write("aux", rows(4), marks, [slice(0, 4)], mode="EXTEND")
    assert record_of(spool.folder, session)["limit"] is None
    before = (spool.folder / session / "tp0.json").stat().st_ino
    spool.write("aux", rows(4), marks, [slice(0, 4)], mode="EXTEND")
    record = record_of(spool.folder, session)
    assert (record["limit"], record["parts"]) == ("max_tokens=5", 1)
    assert record["skipped"] == {BEYOND_LIMIT: 4}
    # Another file took its name: nobody reads half of it.
    assert (spool.folder / session / "tp0.json").stat().st_ino != before
    assert sorted(path.name for path in (spool.folder / session).iterdir()) == [
        "tp0-000000-aux.safetensors",
        "tp0.json",
    ]


def test_a_limit_stays_told_by_the_next_process(tmp_path: Path) -> None:
    session = new_session()
    spool = Spool(tmp_path / "spool", "tp0", max_tokens=5)
    spool.write("aux", rows(6), marked(spool, session, 0), [slice(0, 6)], mode="EXTEND")
    spool = Spool(tmp_path / "spool", "tp0", max_tokens=50)
    marks = marked(spool, session, 0)
    assert record_of(spool.folder, session)["limit"] == "max_tokens=5"
    spool.write("aux", rows(1), marks, [slice(0, 1)], mode="EXTEND")  # what is missing stays missing
    assert record_of(spool.folder, session)["parts"] == 0


def test_a_limit_that_a_full_disk_kept_from_the_record_comes_there_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path / "spool", "tp0", max_tokens=2)
    session = new_session()
    marks = marked(spool, session, 0)
    real = tempfile.mkstemp

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eagle_parity.capture.spool.session.RECORD_SECONDS", 0.0)
    monkeypatch.setattr(tempfile, "mkstemp", full)
    for _ in range(3):
        spool.write("aux", rows(3), marks, [slice(0, 3)], mode="EXTEND")
    assert record_of(spool.folder, session)["limit"] is None
    assert caplog.text.count("can't be written") == 1
    monkeypatch.setattr(tempfile, "mkstemp", real)
    spool.write("aux", rows(3), marks, [slice(0, 3)], mode="EXTEND")
    record = record_of(spool.folder, session)
    assert record["limit"] == "max_tokens=2"
    assert record["skipped"] == {BEYOND_LIMIT: 12}


def test_counts_are_written_without_any_further_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle_parity.capture.spool.session.RECORD_SECONDS", 0.0)
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    marked(spool, session, 0)
    for _ in range(3):
        spool.count(session, "rows of DECODE", 2)
    assert record_of(spool.folder, session)["skipped"] == {"rows of DECODE": 6}


def test_the_limit_counts_what_a_former_process_stored(tmp_path: Path) -> None:
    session = new_session()
    for _ in range(3):
        spool = Spool(tmp_path / "spool", "tp0", max_tokens=6)
        spool.write("aux", rows(3), marked(spool, session, 0), [slice(0, 3)], mode="EXTEND")
    assert record_of(spool.folder, session)["tokens"] == 6
    names = sorted(path.name for path in (spool.folder / session).glob("*.safetensors"))
    assert names == ["tp0-000000-aux.safetensors", "tp0-000001-aux.safetensors"]


def test_a_disk_without_room_is_told_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    marks = marked(spool, session, 0)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(limits, "MIN_FREE_BYTES", usage.free * 2)
    spool.write("aux", rows(3), marks, [slice(0, 3)], mode="EXTEND")
    assert "GiB free" in record_of(spool.folder, session)["limit"]
    assert list((spool.folder / session).glob("*.safetensors")) == []


def test_the_room_that_a_part_takes_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    marks = marked(spool, session, 0)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=3 * HIDDEN * 4))
    spool.write("aux", rows(3), marks, [slice(0, 3)], mode="EXTEND")
    assert record_of(spool.folder, session)["parts"] == 0


def test_a_session_that_finds_no_disk_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    real = Path.mkdir

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    assert marked(spool, session, 0) == []
    monkeypatch.setattr(Path, "mkdir", real)
    assert marked(spool, session, 1) == [Mark(session, 1)]


def test_a_part_that_no_record_counts_is_not_written_over(tmp_path: Path) -> None:
    """A process that was killed between the two."""
    session = new_session()
    spool = Spool(tmp_path / "spool", "tp0")
    spool.write("aux", rows(3), marked(spool, session, 0), [slice(0, 3)], mode="EXTEND")
    folder = spool.folder / session
    (folder / "tp0-000001-aux.safetensors").write_bytes(b"the other rows")
    (folder / "tp1-000007-aux.safetensors").write_bytes(b"another rank's")
    for record in ("a half", None):
        if record:
            (folder / "tp0.json").write_text(record)
        spool = Spool(tmp_path / "spool", "tp0")
        spool.write("aux", rows(3), marked(spool, session, 0), [slice(0, 3)], mode="EXTEND")
        assert (folder / "tp0-000001-aux.safetensors").read_bytes() == b"the other rows"
    assert record_of(spool.folder, session)["parts"] == 4


def test_a_fact_that_is_no_json_is_no_error(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    marked(spool, session, 0)
    spool.describe(session, {"server": {"dtype": torch.bfloat16}})
    assert record_of(spool.folder, session)["facts"] == {"server": {"dtype": "torch.bfloat16"}}


def test_a_record_that_can_t_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    marks = marked(spool, session, 0)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    spool.fail(marks, "something")
    spool.count(session, "rows", 3)
    spool.describe(session, {"target": {}})


@pytest.mark.parametrize(
    "broken",
    [
        {"token_ids": torch.arange(2)},
        {"positions": torch.zeros(3, 4, dtype=torch.long)},
        {"slot.0": torch.zeros(4)},
    ],
)
def test_tensors_that_don_t_hold_the_batch_are_refused(tmp_path: Path, broken: dict[str, torch.Tensor]) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    with pytest.raises(ValueError, match="the batch has 4 rows"):
        spool.write("aux", {**rows(4), **broken}, marked(spool, session, 0), [slice(0, 4)], mode="EXTEND")
    assert list((spool.folder / session).glob("*.safetensors")) == []


def test_a_share_of_the_rows_is_stored_of_one_request_and_refused_of_two(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    share = {**rows(4), "slot.0": torch.ones(2, HIDDEN)}
    spool.write("aux", share, marked(spool, session, 0), [slice(0, 4)], mode="EXTEND")
    with pytest.raises(ValueError, match=r"slot\.0"):
        spool.write("aux", share, marked(spool, session, 0, 1), [slice(0, 2), slice(2, 4)], mode="EXTEND")


def test_failures_are_bounded_and_counted_rows_are_told(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    marks = marked(spool, session, 0)
    for number in range(MAX_FAILURES * 2):
        spool.fail(marks, ValueError(f"{number}" * 5000))
        spool.fail(marks, ValueError(f"{number}" * 5000))
    spool.count(session, "rows of DECODE", 2)
    record = record_of(spool.folder, session)
    assert len(record["failures"]) == len(set(record["failures"])) == MAX_FAILURES
    assert max(map(len, record["failures"])) <= 500
    assert record["skipped"] == {"rows of DECODE": 2}


def test_a_failure_of_nobodys_forward_is_told_to_whoever_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    for number in range(MAX_LOGGED * 2):
        for _ in range(3):
            spool.fail([], f"before any {number}")
    assert caplog.text.count("before any 0") == 1
    assert len(caplog.records) == MAX_LOGGED
    sessions = [new_session() for _ in range(3)]
    for session in sessions:
        marked(spool, session, 0)
    shutil.rmtree(spool.folder / sessions[0])  # the client has put it into its capture
    spool.fail([], ValueError("of nobody's forward"))
    for session in sessions[1:]:
        assert record_of(spool.folder, session)["failures"] == ["ValueError: of nobody's forward"]
    assert not (spool.folder / sessions[0]).exists()
    assert list(spool._sessions) == sessions[1:]
    spool.fail(marked(spool, sessions[1], 0), "of one")
    assert len(record_of(spool.folder, sessions[2])["failures"]) == 1


def test_an_error_that_can_t_say_itself_is_told_by_its_class(tmp_path: Path) -> None:
    class Mute(Exception):  # noqa: N818  what a library might raise
        def __str__(self) -> str:
            raise RuntimeError("no words")

    spool = Spool(tmp_path / "spool", "tp0")
    session = new_session()
    spool.fail(marked(spool, session, 0), Mute())
    assert record_of(spool.folder, session)["failures"] == ["Mute"]


def test_what_went_wrong_before_a_restart_stays_told(tmp_path: Path) -> None:
    session = new_session()
    for number in range(2):
        spool = Spool(tmp_path / "spool", "tp0")
        spool.fail(marked(spool, session, 0), f"failure {number}")
        spool.count(session, "rows of DECODE", 2)
    record = record_of(spool.folder, session)
    assert record["failures"] == ["failure 0", "failure 1"]
    assert record["skipped"] == {"rows of DECODE": 2}  # the sum comes with the next part


def test_the_limit_is_the_configs_or_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.stated_max_tokens() == limits.DEFAULT_MAX_TOKENS
    monkeypatch.setenv(limits.MAX_TOKENS_ENV, "70")
    assert (limits.stated_max_tokens(), limits.stated_max_tokens(7)) == (70, 7)
    for stated in ("many", -1, [3], True):
        with pytest.raises(ValueError, match="not a number of rows"):
            limits.stated_max_tokens(stated)


def test_sessions_are_bounded(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "tp0")
    sessions = [new_session() for _ in range(MAX_SESSIONS + 5)]
    for session in sessions:
        marked(spool, session, 0)
    assert list(spool._sessions) == sessions[5:]
    for _ in range(2):
        spool.count(sessions[5], "rows of DECODE", 2)
    marked(spool, new_session(), 0)
    assert record_of(spool.folder, sessions[5])["skipped"] == {"rows of DECODE": 4}  # it went with all that it knew


def test_a_killed_process_leaves_no_half_file(tmp_path: Path) -> None:
    """SIGKILL at any moment of the writing: each file that has its name is whole."""
    program = """
import sys, torch
from eagle_parity.capture.spool import folder, limits, request_ids, worker
limits.MIN_FREE_BYTES = 0
spool = worker.Spool(sys.argv[1], "tp0", max_tokens=10**9)
marks = spool.marks([request_ids.request_id(folder.read_token(sys.argv[1]), sys.argv[2], 0)])
states = torch.ones(4096, 256)
while True:
    tensors = {"token_ids": torch.arange(4096), "positions": torch.arange(4096), "slot.0": states}
    spool.write("aux", tensors, marks, [slice(0, 4096)], mode="EXTEND")
"""
    for moment in (0.0, 0.007):
        session = new_session()
        folder = tmp_path / "spool" / session
        process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "spool"), session])
        while process.poll() is None and len(list(folder.glob("tp0-*"))) < 2:
            time.sleep(0.002)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        parts = sorted(folder.glob("tp0-*.safetensors"))
        assert len(parts) >= 2
        for part in parts:
            with safe_open(part, framework="pt") as file:
                assert bool((file.get_tensor("slot.0") == 1).all())
        assert record_of(tmp_path / "spool", session)["parts"] >= len(parts) - 1


def test_others_pay_a_look_at_their_ids_and_nothing_more(tmp_path: Path) -> None:
    """As a ratio: the look at a batch of other people's requests against writing down one row of ours."""
    spool = Spool(tmp_path / "spool", "tp0")
    others = [f"{number:032x}" for number in range(64)]
    marks = marked(spool, new_session(), 0)

    def cost(action: Any, times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            action()
        return (time.perf_counter() - started) / times

    looked = min(cost(lambda: spool.marks(others), 200) for _ in range(5))
    written = min(cost(lambda: spool.write("aux", rows(1), marks, [slice(0, 1)], mode="EXTEND"), 20) for _ in range(5))
    assert looked < written


def test_a_proof_is_good_for_one_call() -> None:
    token = "0" * 64
    assert proof(token, "read", b"{}") != proof(token, "start", b"{}") != proof(token, "read", b"[]")
    assert token not in proof(token, "read", b"{}")


@pytest.mark.parametrize(
    "name", ["..", "", "a" * 11, "A" * 12, "../" * 4, "a" * 12 + "/", 7, None, "\N{FULLWIDTH DIGIT ONE}" * 12]
)
def test_what_is_no_sessions_name(name: object) -> None:
    assert not is_session(name)
    assert is_session(new_session())
