from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from config_cases import KIMI_CONFIG, LLAMA_CONFIG

from eagle_parity.cli.app import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def llama(tmp_path: Path) -> str:
    path = tmp_path / "llama.json"
    path.write_text(json.dumps(LLAMA_CONFIG))
    return str(path)


def prepare(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run(["capture", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_sglang_s_flags_and_what_they_record(llama: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = prepare(
        capsys, "sglang", "--launch-flags", "--boundaries", "all", "--target", llama, "--engine", "sglang@0.5.23"
    )
    (line,) = out.splitlines()
    words = shlex.split(line)
    assert status == 0
    assert words[words.index("--return-aux-hidden-state-layer-ids") + 1] == "0"
    assert "# records the boundaries (0, 1, 2" in err
    assert "# No id gives (0, 30): the hook records that beside, boundary 0 is the first layer's input and" in err


def test_environment_and_flags_are_a_line_each(llama: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = prepare(
        capsys, "vllm", "--launch-flags", "--boundaries", "3,6", "--target", llama, "--spool", "/s"
    )
    environment, flags = out.splitlines()
    assert status == 0
    assert shlex.split(environment) == ["VLLM_PLUGINS=eagle_parity", "EAGLE_PARITY_SPOOL=/s"]
    assert '"eagle_aux_hidden_state_layer_ids":[3,6]' in flags


def test_what_can_t_be_recorded_is_inconclusive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kimi = tmp_path / "kimi.json"
    kimi.write_text(json.dumps(KIMI_CONFIG))
    status, _, err = prepare(
        capsys, "vllm", "--launch-flags", "--boundaries", "all", "--target", str(kimi), "--engine", "vllm@0.32.0"
    )
    assert status == 3
    assert "# not (0): no id gives them" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--launch-flags", "--boundaries", "all"), "--boundaries and --target together"),
        (("--launch-flags", "--target", "T"), "--boundaries and --target together"),
        (("--server", "http://127.0.0.1:1", "--output", "o", "--target", "T"), "a server has its target"),
        (("--server", "http://127.0.0.1:1", "--output", "o", "--boundaries", "x"), "'x' is no boundary"),
    ],
)
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_usage(engine: str, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = prepare(capsys, engine, *arguments)
    assert (status, told in err) == (2, True)


def test_the_hook_in_one_file_is_named_in_the_flags(
    llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = tmp_path / "eagle_parity_sglang.py"
    status, out, _ = prepare(capsys, "sglang", "--export-hook", str(hook), "--boundaries", "all", "--target", llama)
    assert status == 0
    assert "eagle_parity_sglang:factory" in out
    compile(hook.read_text(), str(hook), "exec")
