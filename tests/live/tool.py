"""eagle-parity as a user runs it: a process, its status, and the result that it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

TOOL_SECONDS = 900
"""For one command: a capture of a busy server on a busy machine takes minutes."""


@dataclass(frozen=True)
class Ran:
    """What a command gave.

    Attributes:
        status: its exit status.
        stdout: as printed.
        stderr: likewise.
    """

    status: int
    stdout: str
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        """The JSON document."""
        document: dict[str, Any] = json.loads(self.stdout)
        return document

    @property
    def errors(self) -> list[str]:
        """Names of the findings of severity error."""
        return [finding["name"] for finding in self.result["findings"] if finding["severity"] == "error"]

    def finding(self, name: str) -> dict[str, Any]:
        """The first one of a name."""
        found: dict[str, Any] = next(each for each in self.result["findings"] if each["name"] == name)
        return found


def start_tool(*words: str) -> subprocess.Popen[str]:
    """The command, running."""
    return subprocess.Popen(
        [sys.executable, "-m", "eagle_parity", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_tool(*words: str, expected: set[int] | None = None) -> Ran:
    """Runs a command to its end.

    Args:
        words: of the command line.
        expected: statuses that are right, 0 alone by default.
    """
    process = start_tool(*words)
    try:
        stdout, stderr = process.communicate(timeout=TOOL_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise
    ran = Ran(process.returncode, stdout, stderr)
    told = f"eagle-parity {' '.join(words)}: status {ran.status}\n{stdout[-4000:]}\n{stderr[-4000:]}"
    assert ran.status in (expected or {0}), told
    return ran


def run_json(*words: str, expected: set[int] | None = None) -> Ran:
    """As ``run_tool``, with the result as JSON."""
    return run_tool(*words, "--format", "json", expected=expected)
