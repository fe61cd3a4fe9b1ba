"""Standard streams that are closed or full: the exit status is right, and nothing crashes."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import stories

from eagle_parity.results import encode_result

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "from eagle_parity.cli.app import main; main()"]


@pytest.fixture
def story(tmp_path: Path) -> str:
    path = tmp_path / "story.json"
    path.write_bytes(encode_result(stories.founding_story()))
    return str(path)


def closing(streams: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the program with some streams closed: ``>&-``."""
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", *PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [("checks",), ("explain", "EP201", "--format", "json"), ("--version",), ("-h",)])
def test_a_result_that_cant_be_written_is_status_2_and_one_line(arguments: tuple[str, ...]) -> None:
    done = closing(">&-", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("eagle-parity: error: stdout: can't be written")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_with_an_output_needs_no_stream(streams: str, story: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = closing(streams, "report", story, "--format", "json", "--output", str(out))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert out.read_text().startswith("{")
    assert out.read_text().endswith("}\n")


@pytest.mark.parametrize("streams", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", [("nonsense",), ("report", "nowhere.json"), (), ("report",)])
def test_wrong_usage_is_status_2_with_nobody_to_tell(streams: str, arguments: tuple[str, ...]) -> None:
    done = closing(streams, *arguments)
    assert (done.returncode, done.stderr) == (2, "")


def test_the_result_is_written_where_only_stderr_is_closed(story: str) -> None:
    done = closing("2>&-", "report", story)
    assert done.returncode == 1
    assert "EP201" in done.stdout


@pytest.mark.parametrize(
    "arguments", [["checks"], ["engines", "--format", "json"], ["--version"], ["-h"], ["demo", "-o", "."]]
)
def test_a_full_disk_is_status_2_and_one_line(arguments: list[str], tmp_path: Path) -> None:
    with (tmp_path / "full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            # The kernel tells a file that may not grow as it tells a full disk: at the write.
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )
    assert done.returncode == 2
    assert done.stderr.startswith("eagle-parity: error: stdout: can't be written (File too large)")
    assert done.stderr.count("\n") == 1


def test_a_full_stderr_changes_no_status(tmp_path: Path) -> None:
    with (tmp_path / "full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, "nonsense"],
            stderr=full,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )
    assert done.returncode == 2
