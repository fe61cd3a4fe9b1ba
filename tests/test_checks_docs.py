from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from generate_docs import DOCS, command_helps, main, pages

from eagle_parity.checks.catalogue import CHECKS
from eagle_parity.cli import COMMANDS, GROUPS
from eagle_parity.cli.app import run
from eagle_parity.findings import BY_CODE, BY_NAME, FINDINGS, FindingKind, Severity

HELPS = dict(command_helps())


def test_codes_and_names_are_unique() -> None:
    assert len(BY_CODE) == len(BY_NAME) == len(FINDINGS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize("kind", FINDINGS, ids=lambda kind: kind.name)
def test_every_finding_is_documented(kind: FindingKind) -> None:
    assert re.fullmatch(r"EP[1-5]\d\d", kind.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.name)
    assert kind.severity in Severity
    assert len(kind.title) > 10
    assert len(kind.why) > 20
    assert len(kind.remedy) > 10
    page = pages()["checks.md"]
    assert f"\n### {kind.name}\n\n`{kind.code}`" in page  # the anchor that Finding.docs points to
    assert kind.finding("x").docs == f"docs/checks.md#{kind.name}"


def test_checks_emit_what_the_catalogue_has() -> None:
    for check in CHECKS:
        assert check.question.endswith("?") or check.question
        assert set(check.emits) <= set(FINDINGS)


@pytest.mark.parametrize("name", [*COMMANDS, *(f"{g} {c}" for g, group in GROUPS.items() for c in group.commands)])
def test_every_command_has_help_with_an_example_and_is_in_the_docs(name: str) -> None:
    help_text = " ".join(HELPS[f"eagle-parity {name}"].split())
    assert f"Example: eagle-parity {name}" in help_text
    assert f"## eagle-parity {name}\n" in pages()["cli.md"]


SHARED = ("--format", "--output", "--fail-on", "--quiet", "--color")


@pytest.mark.parametrize("name", [*COMMANDS, *(f"{g} {c}" for g, group in GROUPS.items() for c in group.commands)])
def test_every_command_has_the_shared_options(name: str) -> None:
    # The demonstration runs commands and has no result of its own.
    expected = ("--output", "--color") if name == "demo" else SHARED
    for option in expected:
        assert option in HELPS[f"eagle-parity {name}"]


@pytest.mark.parametrize(
    ("arguments", "told"), [(["checks"], "EP201"), (["explain", "EP201"], "remedy"), (["engines"], "partial-sums")]
)
def test_quiet_keeps_what_was_asked_for(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "--quiet", "--fail-on", "never"]) == 0
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("name", HELPS)
def test_every_option_has_a_help(name: str) -> None:
    lines = HELPS[name].partition("\nOptions:\n")[2].splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if re.match(r"  -{1,2}\w", line):
            told = re.search(r"\s{2,}\S", line.strip()) or re.match(r"\s{20,}\S", following)
            assert told, line


def test_stale_pages_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--docs", str(tmp_path)]
    assert main(arguments) == 1
    assert main([*arguments, "--write"]) == 0
    assert main(arguments) == 0
    capsys.readouterr()
    (tmp_path / "checks.md").write_text("old")
    assert main(arguments) == 1
    assert capsys.readouterr().err == f"{tmp_path / 'checks.md'} is stale: run `make docs`\n"


def test_the_pages_do_not_depend_on_the_terminal() -> None:
    code = "import generate_docs, json; print(json.dumps(generate_docs.pages()))"
    environment = {"COLUMNS": "40", "FORCE_COLOR": "1", "PATH": "", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout) == pages()


def test_the_generated_pages_are_there() -> None:
    assert {"checks.md", "cli.md"} <= {path.name for path in DOCS.glob("*.md")}


class TestExplain:
    @pytest.mark.parametrize("text", ["EP201", "ep201", "spurious-embedding", "Spurious-Embedding"])
    def test_by_code_and_by_name(self, text: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["explain", text]) == 0
        out = capsys.readouterr().out
        kind = BY_NAME["spurious-embedding"]
        assert f"EP201 spurious-embedding: {kind.title}" in " ".join(out.split())
        assert " ".join(kind.remedy.split()) in " ".join(out.split())

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("spurious-embeding", "did you mean spurious-embedding"),
            ("EP20", "did you mean EP2"),
            ("\x1b[31mwhat", "`eagle-parity checks` lists them"),
        ],
    )
    def test_an_unknown_one_is_an_error_with_a_hint(
        self, text: str, hint: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["explain", text]) == 2
        err = capsys.readouterr().err
        assert hint in err
        assert err.count("\n") == 1
        assert "\x1b" not in err


class TestChecks:
    def test_lists_every_finding_and_every_check(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["checks", "--format", "json"]) == 0
        measured = json.loads(capsys.readouterr().out)["measurements"]
        assert [row["code"] for row in measured["findings"]] == [kind.code for kind in FINDINGS]
        assert [row["name"] for row in measured["checks"]] == [check.name for check in CHECKS]

    def test_for_people(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["checks"]) == 0
        out = capsys.readouterr().out
        assert all(kind.code in out for kind in FINDINGS)
