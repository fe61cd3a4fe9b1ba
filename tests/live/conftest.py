"""Environments, models and servers of the live tests, and the table at their end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine_environments import CACHE, make_environment

from live.scenarios import Scenario, as_table
from live.servers import ServerFailedError
from live.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).resolve().parents[2]
FULL_ENV = "LIVE_FULL"
LAST_RUN = CACHE.parent / "live" / "last-run.txt"
SGLANG, VLLM = "0.5.23", "0.32.0"

_scenarios = pytest.StashKey[dict[str, Scenario]]()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker, and the table."""
    config.addinivalue_line("markers", "full: needs a server launch beyond the ones that matter most; FULL=1 runs it")
    config.stash[_scenarios] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without FULL=1 the other launches are skipped, and said to be."""
    if os.environ.get(FULL_ENV, "") in {"", "0"}:
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason="make live-test FULL=1 runs it"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes how each scenario went."""
    report = yield
    rows = item.config.stash[_scenarios]
    name = item.nodeid.rpartition("/")[2].removesuffix("]").replace("::", " ").replace(".py", "")
    scenario = rows.setdefault(item.nodeid, Scenario(name))
    scenario.seconds += call.duration
    if report.when == "call" or report.outcome != "passed":
        scenario.outcome = report.outcome
        if report.skipped and isinstance(report.longrepr, tuple):
            scenario.found = report.longrepr[2].removeprefix("Skipped: ")
        elif report.failed and not scenario.found and call.excinfo is not None:
            scenario.found = str(call.excinfo.value).strip().splitlines()[0][:200] if str(call.excinfo.value) else "?"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the table and keeps it."""
    scenarios = list(terminalreporter.config.stash[_scenarios].values())
    if scenarios:
        table = as_table(scenarios)
        LAST_RUN.parent.mkdir(parents=True, exist_ok=True)
        LAST_RUN.write_text(table + "\n", "utf-8")
        terminalreporter.section("live scenarios")
        terminalreporter.write_line(table)


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> Scenario:
    """This test's row."""
    rows: dict[str, Scenario] = request.config.stash[_scenarios]
    item: pytest.Item = request.node
    name = item.nodeid.rpartition("/")[2].replace("::", " ").replace(".py", "")
    return rows.setdefault(item.nodeid, Scenario(name))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Targets, drafts, prompts and captures."""
    return Workshop(tmp_path_factory.mktemp("workshop"))


def packages(python: Path) -> dict[str, str]:
    """What pip says is installed, by name."""
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return dict(line.split("==", 1) for line in listed.splitlines() if "==" in line)


def install(python: Path) -> None:
    """Puts this checkout beside an engine as its users do, and fails where that moves any other package."""
    before = packages(python)
    words = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall", str(ROOT)]
    subprocess.run([python, "-m", "pip", *words], check=True, stdout=sys.stderr)
    after = packages(python)
    changed = {name for name in before | after if before.get(name) != after.get(name)} - {"eagle-parity"}
    if changed:
        raise ServerFailedError(f"installing eagle-parity changed {', '.join(sorted(changed))}")


@pytest.fixture(scope="session")
def sglang() -> Path:
    """The interpreter of SGLang's environment, with this checkout installed."""
    python = make_environment("sglang", SGLANG)
    install(python)
    return python


@pytest.fixture(scope="session")
def vllm() -> Path:
    """The interpreter of vLLM's."""
    python = make_environment("vllm", VLLM)
    install(python)
    return python
