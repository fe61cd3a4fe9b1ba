from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import stories
from config_cases import LLAMA_CONFIG

from eagle_parity import __version__
from eagle_parity.cli import app as program
from eagle_parity.cli.app import run
from eagle_parity.errors import InputError, MissingExtraError, UsageError
from eagle_parity.results import encode_result

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "from eagle_parity.cli.app import main; main()"]


@pytest.fixture
def story(tmp_path: Path) -> str:
    path = tmp_path / "story.json"
    path.write_bytes(encode_result(stories.founding_story()))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (["check-config", "", "--target", "t"], "DRAFT"),
        (["check-config", "d", "--target", ""], "--target"),
        (["check-config", "d", "--target", "t", "--engine", "sglang@0.5.23", "--engine", ""], "--engine"),
        (["check-config", "d", "--target", "t", "--shards", ""], "--shards"),
        (["diff-captures", "", "live"], "TRAINED"),
        (["diff-captures", "trained", "live", "--reference="], "--reference"),
        (["inspect", "a", ""], "PATH..."),
        (["report", ""], "RESULT.json"),
        (["checks", "-o", ""], "--output"),
        (["demo", "--output", ""], "--output"),
        (["capture", "transformers", "--target", "t", "--output", ""], "--output"),
        (["--defaults", "", "checks"], "an empty path"),
    ],
)
def test_an_empty_path_is_wrong_usage(arguments: list[str], label: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What an unset variable of a shell looks like; it must not be read as the current folder."""
    assert run(arguments) == 2
    line = one_line(capsys)
    assert label in line
    assert "empty" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["check-config", "{}", "--target", "{}"],
        ["diff-captures", "{}", "{}"],
        ["inspect", "{}"],
        ["report", "{}"],
        ["--defaults", "{}", "checks"],
    ],
)
def test_what_is_no_file_is_not_waited_for(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe that nobody writes to, and devices: reading them never ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        assert run([argument.format(path) for argument in arguments]) == 2
        assert f"{path}: no regular file" in one_line(capsys)


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What the program raises instead of doing its work."""
    errors: list[BaseException] = []

    def fail(**_: object) -> int:
        raise errors[0]

    monkeypatch.setattr(program, "app", fail)
    return errors


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("eagle-parity: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    "error",
    [
        InputError("a.json", "broken", expected="a result", remedy="make it again"),
        UsageError("--x\nand --y exclude\n\teach other"),
        MissingExtraError("capture", "tensors", "torch"),
    ],
)
def test_errors_are_one_line_and_status_2(
    error: Exception, raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(error)
    assert run(["report", "x"]) == 2
    assert " ".join(str(error).split()) in " ".join(one_line(capsys).split())


def test_a_bug_is_one_line_too(raising: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    raising.append(ZeroDivisionError("division\nby zero"))
    assert run(["report", "x"]) == 2
    line = one_line(capsys)
    assert "ZeroDivisionError" in line
    assert "--debug" in line


@pytest.mark.parametrize(
    "arguments", [["--debug", "report", "x"], ["report", "--debug", "x"], ["report", "x", "--debug"]]
)
def test_debug_shows_where(arguments: list[str], raising: list[BaseException]) -> None:
    raising.append(InputError("a.json", "broken"))
    with pytest.raises(InputError, match=r"a\.json: broken"):
        run(arguments)


def test_debug_by_the_environment(raising: list[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    raising.append(KeyError("x"))
    monkeypatch.setenv("EAGLE_PARITY_DEBUG", "1")
    with pytest.raises(KeyError):
        run(["report", "x"])


def test_an_interrupt_has_the_shells_status(raising: list[BaseException]) -> None:
    raising.append(KeyboardInterrupt())
    assert run(["report", "x"]) == 130


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["report", "x", "--format", "docx"], "--format"),
        (["report"], "RESULT.json"),
        (["checks", "--nonsense"], "--nonsense"),
        (["report", "no\x1b[31mwhere\n.json"], r"no\x1b[31mwhere .json"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert told in one_line(capsys)


def test_no_arguments_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    captured = capsys.readouterr()
    assert "Usage" in captured.out + captured.err


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["report", "-h"]])
def test_help_is_no_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    assert "Usage" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"eagle-parity {__version__}\n"


class TestDefaults:
    def test_stand_in_for_options(self, story: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "parity.yaml"
        file.write_text("report:\n  fail-on: never\n  format: json\n")
        assert run(["--defaults", str(file), "report", story]) == 0
        assert capsys.readouterr().out.startswith("{")

    def test_an_option_of_the_call_wins(self, story: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "parity.yaml"
        file.write_text("report: {fail_on: never}\n")
        assert run(["--defaults", str(file), "report", story, "--fail-on", "error"]) == 1
        capsys.readouterr()

    @pytest.mark.parametrize("given", ["sglang@9.9.9", "[sglang@9.9.9]", "[sglang@9.9.9, sglang@9.9.8]"])
    def test_an_option_that_takes_several_takes_one(self, given: str, tmp_path: Path) -> None:
        file = tmp_path / "parity.yaml"
        file.write_text(f"ids: {{engine: {given}, target: {tmp_path / 'target.json'}, format: json, output: out.json}}")
        (tmp_path / "target.json").write_text(json.dumps(LLAMA_CONFIG))
        with contextlib.chdir(tmp_path):
            assert run(["--defaults", str(file), "ids", "3,16,28"]) == 3
        told = json.loads((tmp_path / "out.json").read_text())["skipped"]
        assert {word for skip in told for word in re.findall(r"9\.9\.\d", skip["reason"])} == set(
            re.findall(r"9\.9\.\d", given)
        )

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ("check-confg: {}", 'no subcommand "check-confg"; did you mean check-config?'),
            ("check_config: {}", "did you mean check-config?"),
            ("zzz: {}", "there are "),
            ("report: {fail-one: never}", 'report: no option "fail-one"; did you mean fail-on?'),
            ("report: {results: x}", 'no option "results"'),
            ("report: {fail-on: [never]}", "report: fail-on: a list"),
            ("report: {fail-on: {a: b}}", "report: fail-on: "),
            ("report: {fail-on: }", "report: fail-on: null"),
            ("report: {threshold: [[1]]}", "report: threshold: "),
            ("capture: {tensorrt: {}}", 'no subcommand capture: "tensorrt"'),
            ("capture: {transformers: {max-tokes: 4}}", "capture: transformers: no option"),
            ("capture: {max-tokens: 4}", "no subcommand capture: "),
            ("capture: 4", "capture: is no mapping"),
        ],
    )
    def test_a_word_that_no_command_knows_is_wrong_usage(
        self, content: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "parity.yaml"
        file.write_text(content)
        assert run(["--defaults", str(file), "checks"]) == 2
        line = one_line(capsys)
        assert told in line
        assert str(file) in line

    @pytest.mark.parametrize("option", ["max-tokens", "max_tokens"])
    def test_a_group_s_subcommands_have_their_own(
        self, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "parity.yaml"
        file.write_text(f"capture: {{transformers: {{{option}: -4, target: x, output: y}}}}")
        assert run(["--defaults", str(file), "capture", "transformers"]) == 2
        assert "--max-tokens" in one_line(capsys)

    @pytest.mark.parametrize("content", ["- a list", "report: 3", "{", "!!python/object/apply:os.system ['true']", ""])
    def test_other_yaml_is_one_line(self, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "parity.yaml"
        file.write_text(content)
        assert run(["--defaults", str(file), "checks"]) == 2
        assert str(file) in one_line(capsys)

    def test_a_missing_file_is_one_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["--defaults", str(tmp_path / "no.yaml"), "checks"]) == 2
        assert "no.yaml" in one_line(capsys)


class TestOutput:
    def test_a_pipe_gets_no_colour_and_always_is_always(self, story: str, capsys: pytest.CaptureFixture[str]) -> None:
        run(["report", story])
        assert "\x1b" not in capsys.readouterr().out
        run(["report", story, "--color", "always"])
        assert "\x1b[" in capsys.readouterr().out

    def test_a_folder_that_is_not_there_is_one_line(
        self, story: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["report", story, "--output", str(tmp_path / "no" / "out.md")]) == 2
        assert "out.md" in one_line(capsys)

    def test_a_reader_that_leaves_early_is_no_crash_and_no_parity(self) -> None:
        read, write = os.pipe()
        os.close(read)
        try:
            done = subprocess.run([*PROGRAM, "checks"], stdout=write, stderr=subprocess.PIPE, check=False)
        finally:
            os.close(write)
        assert (done.returncode, done.stderr) == (141, b"")

    @pytest.mark.parametrize("output_format", ["terminal", "markdown", "json"])
    def test_a_stdout_without_unicode_is_no_crash(self, output_format: str, story: str) -> None:
        environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        done = subprocess.run(
            [*PROGRAM, "report", story, "--format", output_format], env=environment, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (1, b"")
        assert done.stdout.isascii()
