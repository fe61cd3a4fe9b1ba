"""The work on a local Ray cluster of two workers: the same numbers, also where workers die."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders import make_sequences, write_stacked
from deadly_work import DeadlyWork
from same_state import assert_same, state_of

from eagle_parity.cli.app import run
from eagle_parity.errors import InputError, MissingExtraError, UsageError
from eagle_parity.scan import ray_cluster
from eagle_parity.scan.look import look_at_file
from eagle_parity.scan.parts import PartWork, split
from eagle_parity.scan.ray_cluster import ADDRESS_ENV, NodeError, RayCluster
from eagle_parity.scan.remote_shards import StorageError
from eagle_parity.scan.shards import find_shards

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eagle_parity.scan.parts import Part
    from eagle_parity.scan.set_state import SetState
    from eagle_parity.scan.shards import Listing

pytestmark = pytest.mark.usefixtures("one_thread")

WORKERS = 2
PATIENCE = 120.0
"""Seconds until a cluster has begun or ended, on a busy machine."""
TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def ray() -> Any:
    return pytest.importorskip("ray", reason="Ray is not installed (make setup does)")


@pytest.fixture(scope="class")
def begun(ray: Any) -> Iterator[Any]:
    """A cluster that whoever calls has begun: a test needn't wait for its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ray_cluster._USAGE_ENV, "0")
        # Of the tests' own modules, which the workers import.
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "scan"))))
        ray.init(address="local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield ray
        ray.shutdown()


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> Listing:
    """Wide enough that what a part finds goes through Ray's store."""
    folder = tmp_path_factory.mktemp("ray") / "set"
    return find_shards(str(write_stacked(folder, make_sequences([6] * 48, hidden=64))))


@dataclass(frozen=True)
class FailingWork(PartWork):
    """Fails with the error given."""

    error: Exception

    def __call__(self, part: Part) -> SetState:
        raise self.error if part.names else AssertionError


@pytest.mark.usefixtures("begun")
class TestOnACluster:
    def test_it_finds_what_one_process_finds(self, listing: Listing) -> None:
        assert_same(state_of(listing, RayCluster(None)), state_of(listing))

    def test_a_relative_path_is_one_of_the_driver(self, listing: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = Path(listing.shards.root)
        monkeypatch.chdir(folder.parent)
        assert_same(state_of(find_shards(folder.name), RayCluster(None)), state_of(listing))

    def test_a_url(self, listing: Listing) -> None:
        pytest.importorskip("fsspec", reason="fsspec is not installed (make setup does)")
        remote = find_shards(f"file://{listing.shards.root}")
        assert_same(state_of(remote, RayCluster(None)), state_of(listing), stamps=False)

    def test_a_worker_that_is_killed_loses_nothing(self, listing: Listing, tmp_path: Path) -> None:
        killed = tmp_path / "killed"
        work = DeadlyWork(listing.shards, 64, once=(listing.names[20], str(killed)))
        found = state_of(listing, RayCluster(None), work)
        assert killed.exists()
        assert_same(found, state_of(listing))

    def test_a_file_that_kills_its_reader_each_time_is_named(self, listing: Listing) -> None:
        deadly = listing.names[20]
        stamp = look_at_file(listing.shards, deadly, rows=64).stamp
        found = state_of(listing, RayCluster(None), DeadlyWork(listing.shards, 64, always=(deadly,)))
        (problem,) = found.problems.values()
        ((name, reason),) = problem.examples
        assert (problem.count, name) == (1, deadly)
        assert "was killed, each time" in reason
        assert (found.counts.files, found.counts.sequences) == (48, 47)
        # The same as of a set in which that file can't be read.
        path = Path(listing.shards.root) / deadly
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        try:
            without = state_of(listing)
        finally:
            path.write_bytes(whole)
        without.problems, without.counts.bytes = found.problems, found.counts.bytes
        assert_same(found, without, stamps=False)
        assert found.stamps[20] == stamp  # else no scan would go on

    @pytest.mark.parametrize("kind", [StorageError, NodeError])
    def test_what_a_node_can_say_itself_is_said(self, kind: type[Exception], listing: Listing) -> None:
        with pytest.raises(kind, match=r"^told in one line$"):
            state_of(listing, RayCluster(None), FailingWork(listing.shards, 64, kind("told in one line")))

    def test_another_error_is_one_line(self, listing: Listing) -> None:
        with pytest.raises(InputError, match="failed on the cluster") as raised:
            state_of(listing, RayCluster(None), FailingWork(listing.shards, 64, OSError("out of order")))
        assert "out of order" in str(raised.value)
        assert "\n" not in str(raised.value)
        assert "nodes need" not in str(raised.value)
        missing = ModuleNotFoundError("No module named 's3fs'")
        with pytest.raises(InputError, match="its nodes need what this machine has"):
            state_of(listing, RayCluster(None), FailingWork(listing.shards, 64, missing))

    def test_another_version_on_a_node(self, listing: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ray_cluster, "__version__", "0.0.1")
        with pytest.raises(NodeError, match=r"this machine 0\.0\.1: install the same on all"):
            state_of(listing, RayCluster(None))

    def test_a_node_without_the_folder(self, listing: Listing, tmp_path: Path) -> None:
        elsewhere: Any = listing.shards
        work = PartWork(replace(elsewhere, root=str(tmp_path / "none")), 64)
        with pytest.raises(NodeError, match="a folder has to be on all nodes"):
            state_of(listing, RayCluster(None), work)

    def test_what_is_abandoned_leaves_the_cluster_running(self, listing: Listing, begun: Any) -> None:
        parts = list(split(listing.names))
        running = RayCluster(None).run(PartWork(listing.shards, 64), parts)
        part, _ = next(running)
        assert part == parts[0]
        running.close()  # type: ignore[attr-defined]
        assert begun.is_initialized()
        assert_same(state_of(listing, RayCluster(None)), state_of(listing))


# Alone: each begins a cluster of its own, or none -------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "import sys; from eagle_parity.cli.app import run; sys.exit(run(sys.argv[1:]))",
        *arguments,
    ]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return kept | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])} | more


def processes_of(marker: str) -> set[int]:
    """Processes that have this in their environment: what a command has begun, wherever it went."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def wait_until_gone(marker: str) -> set[int]:
    ends = time.monotonic() + PATIENCE
    while (left := processes_of(marker)) and time.monotonic() < ends:
        time.sleep(0.2)
    return left


@pytest.mark.usefixtures("ray")
def test_the_command_begins_a_cluster_and_ends_it(listing: Listing, tmp_path: Path) -> None:
    """A worker dies in it, of which Ray tells on stdout: where the result is, and nothing else."""
    killed = tmp_path / "killed"
    script = tmp_path / "deadly.py"
    script.write_text(
        "import functools, sys\n"
        "from deadly_work import DeadlyWork\n"
        "from eagle_parity.cli.app import run\n"
        "from eagle_parity.scan import run as scan_run\n"
        "scan_run.PartWork = functools.partial(DeadlyWork, once=(sys.argv[2], sys.argv[3]))\n"
        "sys.exit(run(['scan', sys.argv[1], '--executor', 'ray', '--workers', '2', '--format', 'json']))\n"
    )
    ran = subprocess.run(
        [sys.executable, str(script), str(listing.shards.root), listing.names[20], str(killed)],
        env=environment(EAGLE_PARITY_TEST=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr
    assert killed.exists()
    assert json.loads(ran.stdout)["measurements"]["sequences"] == 48
    assert "Usage stats" not in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not wait_until_gone(f"EAGLE_PARITY_TEST={tmp_path}")


@pytest.mark.usefixtures("ray")
def test_ctrl_c_ends_what_was_begun(tmp_path: Path) -> None:
    folder = write_stacked(tmp_path / "set", make_sequences([6] * 48))
    marker = f"EAGLE_PARITY_TEST={tmp_path}"
    script = tmp_path / "slow.py"
    script.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
        "from eagle_parity.cli.app import run\n"
        "from eagle_parity.scan import run as scan_run\n"
        "from slow_work import SlowWork\n"
        "scan_run.PartWork = SlowWork\n"
        "sys.exit(run(['scan', sys.argv[1], '--executor', 'ray', '--workers', '2', '--summary', sys.argv[2]]))\n"
    )
    (tmp_path / "slow_work.py").write_text(
        "import dataclasses, pathlib, time\n"
        "from eagle_parity.scan.parts import PartWork\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class SlowWork(PartWork):\n"
        "    def __call__(self, part):\n"
        "        pathlib.Path(self.shards.root, '..', 'began').touch()\n"
        "        if part.number > 2:\n"
        "            time.sleep(1000)\n"
        "        return super().__call__(part)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script), str(folder), str(tmp_path / "summary")],
        env=environment(EAGLE_PARITY_TEST=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        ends = time.monotonic() + 2 * PATIENCE
        while not (tmp_path / "began").exists() and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.1)
        time.sleep(3)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all that it has begun
        try:
            _, told = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert not wait_until_gone(marker)
    assert (tmp_path / "summary.unfinished").exists()


@pytest.mark.usefixtures("ray")
def test_a_cluster_that_was_begun_elsewhere_stays(listing: Listing, tmp_path: Path) -> None:
    marker = f"EAGLE_PARITY_TEST={tmp_path}"
    holder = (
        "import ray, sys\n"
        "context = ray.init(address='local', num_cpus=2, include_dashboard=False, log_to_driver=False,"
        " logging_level='ERROR')\n"
        "print(context.address_info['address'], flush=True)\n"
        "sys.stdin.read()\n"
    )
    # A cluster takes nobody in who doesn't have its token.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    settings = environment(EAGLE_PARITY_TEST=str(tmp_path), RAY_USAGE_STATS_ENABLED="0", **token)
    with subprocess.Popen(
        [sys.executable, "-c", holder], env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        address = process.stdout.readline().strip()
        assert address
        for _ in range(2):
            ran = subprocess.run(
                command("scan", str(listing.shards.root), "--executor", "ray", "--format", "json"),
                env=environment(RAY_ADDRESS=address, **token),
                capture_output=True,
                text=True,
                check=False,
                timeout=2 * PATIENCE,
            )
            assert ran.returncode == 0, ran.stderr
            assert json.loads(ran.stdout)["measurements"]["sequences"] == 48
        assert process.poll() is None
        process.stdin.close()
        process.wait(timeout=PATIENCE)
    assert not wait_until_gone(marker)


def test_workers_of_a_cluster_are_its_own(monkeypatch: pytest.MonkeyPatch, listing: Listing) -> None:
    class NoRay:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def shutdown() -> None:
            pass

    monkeypatch.setenv(ADDRESS_ENV, "127.0.0.1:1")
    monkeypatch.setattr(ray_cluster, "_import_ray", NoRay)
    with pytest.raises(UsageError, match="the cluster has its own"):
        state_of(listing, RayCluster(2))


@pytest.mark.usefixtures("ray")
def test_no_cluster_is_one_line(listing: Listing, tmp_path: Path) -> None:
    ran = subprocess.run(
        command("scan", str(listing.shards.root), "--executor", "ray"),
        env=environment(RAY_ADDRESS="127.0.0.1:1", EAGLE_PARITY_TEST=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE,
    )
    assert ran.returncode == 2, ran.stderr
    assert "127.0.0.1:1: no Ray cluster" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_missing_ray_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, listing: Listing, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"eagle-parity\[ray\]"):
        state_of(listing, RayCluster(2))
    assert run(["scan", str(listing.shards.root), "--executor", "ray"]) == 2
    assert "eagle-parity[ray]" in capsys.readouterr().err
