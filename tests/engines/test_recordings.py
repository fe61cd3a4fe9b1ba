"""The rules against what the engines' own code did, as ``make check-engines`` recorded it; no engine is needed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import check_engines
import engine_environments
import pytest
from check_engines import CURRENT
from engine_environments import PROBES, environment_folder
from engine_recordings import RECORDINGS, Difference, compare, read_recording, write_recording
from msgspec.structs import replace

from eagle_parity.engines import BY_NAME
from eagle_parity.engines.class_rules import AtEmbedding, Captures, Malformed, Order, Outside, Setter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eagle_parity.engines.rules import Engine

BY_RELEASE = {
    f"{recording['engine']}@{recording['version']}": recording
    for recording in (read_recording(path) for path in sorted(RECORDINGS.glob("*.json")))
}
RECORDED = {engine: BY_RELEASE[f"{engine}@{version}"] for engine, version in CURRENT.items()}

SGLANG_CLASSES = {
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "GptOssForCausalLM",
}
VLLM_CLASSES = {
    "LlamaForCausalLM",
    "LlamaForCausalLM (impl=transformers)",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen2MoeForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "GptOssForCausalLM",
    "GraniteForCausalLM",
    "Gemma3ForCausalLM",
}


def differences(engine: Engine, release: str = "") -> list[Difference]:
    recording = BY_RELEASE[release] if release else RECORDED[engine.name]
    return [difference for line in compare(recording, engine) for difference in line.differences]


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_the_rules_say_what_the_engine_did(path: Path) -> None:
    recording = read_recording(path)
    engine = BY_NAME[recording["engine"]]
    assert recording["version"] in engine.versions
    assert path.stem == f"{engine.name}-{recording['version']}"
    assert [str(difference) for line in compare(recording, engine) for difference in line.differences] == []


@pytest.mark.parametrize(("engine", "classes"), [("sglang", SGLANG_CLASSES), ("vllm", VLLM_CLASSES)])
def test_these_were_compared(engine: str, classes: set[str]) -> None:
    agreeing = {line.what for line in compare(RECORDED[engine], BY_NAME[engine]) if line.outcome == "agrees"}
    assert agreeing >= classes | {"draft configs"}


@pytest.mark.parametrize("engine", CURRENT)
def test_the_forward_ran_and_its_states_are_boundaries(engine: str) -> None:
    ran = [entry for entry in RECORDED[engine]["targets"] if any("delivered" in case for case in entry["cases"])]
    assert len(ran) >= 9
    for entry in ran:
        # Two boundaries that are alike would tell nothing.
        assert entry["least_separation"] > 0.05


def altered_class(name: str, architecture: str, **changes: Any) -> Engine:
    engine = BY_NAME[name]
    classes = tuple(replace(rule, **changes) if architecture in rule.architectures else rule for rule in engine.classes)
    return replace(engine, classes=classes)


NEWEST: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "sglang": [
        ("LlamaForCausalLM", {"setter": Setter.AS_IS}, "setter"),
        ("LlamaForCausalLM", {"embedding": AtEmbedding.TYPE_ERROR}, "forward"),
        ("Qwen3ForCausalLM", {"order": Order.LISTED}, "delivery"),
        ("Qwen3MoeForCausalLM", {"outside": Outside.NEVER_MATCHES}, "setter"),
        ("DeepseekV3ForCausalLM", {"setter": Setter.PLUS_ONE}, "setter"),
        ("GptOssForCausalLM", {"reaches_last": False}, "delivery"),
        ("Glm4MoeLiteForCausalLM", {"setter": Setter.AS_IS_IF_LAST_LAYER}, "setter"),
    ],
    "vllm": [
        ("LlamaForCausalLM", {"setter": Setter.PLUS_ONE}, "setter"),
        ("LlamaForCausalLM", {"order": Order.LISTED}, "delivery"),
        ("Qwen2ForCausalLM", {"reaches_last": False}, "delivery"),
        ("DeepseekV3ForCausalLM", {"embedding": AtEmbedding.DELIVERS}, "forward"),
    ],
}
"""Of each engine's newest release: a class, what is altered in its rule, and the kind of difference that follows."""

OLDER: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "sglang@0.5.12": [
        ("DeepseekV3ForCausalLM", {"setter": Setter.PLUS_ONE_IF_FIRST_IS_ONE}, "setter"),
        ("DeepseekV3ForCausalLM", {"embedding": AtEmbedding.DELIVERS}, "forward"),
        ("LlamaForCausalLM", {"embedding": AtEmbedding.DELIVERS}, "forward"),
        ("Glm4MoeLiteForCausalLM", {"captures": Captures.STREAM}, "forward"),
        ("Gemma3ForCausalLM", {"captures": Captures.BRANCH}, "delivery"),
    ],
    "sglang@0.5.13": [
        ("DeepseekV3ForCausalLM", {"setter": Setter.PLUS_ONE}, "setter"),
        ("DeepseekV3ForCausalLM", {"embedding": AtEmbedding.DELIVERS}, "forward"),
        ("GptOssForCausalLM", {"setter": Setter.AS_IS_IF_LAST_LAYER}, "setter"),
    ],
    "sglang@0.5.17": [
        ("GptOssForCausalLM", {"setter": Setter.PLUS_ONE}, "setter"),
        ("GptOssForCausalLM", {"reaches_last": False}, "delivery"),
        ("Gemma3ForCausalLM", {"captures": Captures.STREAM}, "delivery"),
        ("DeepseekV3ForCausalLM", {"embedding": AtEmbedding.TYPE_ERROR}, "forward"),
    ],
    "sglang@0.5.22": [("LlamaForCausalLM", {"embedding": AtEmbedding.TYPE_ERROR}, "forward")],
    "vllm@0.25.0": [
        ("LlamaForCausalLM", {"malformed": Malformed.UNSORTABLE}, "setter"),
        ("DeepseekV3ForCausalLM", {"embedding": AtEmbedding.DELIVERS}, "forward"),
    ],
    "vllm@0.28.0": [
        ("LlamaForCausalLM", {"malformed": Malformed.UNSORTABLE}, "setter"),
        ("DeepseekV3ForCausalLM", {"embedding": AtEmbedding.DELIVERS}, "forward"),
    ],
    "vllm@0.31.0": [
        ("LlamaForCausalLM", {"malformed": Malformed.NEVER_MATCHES}, "setter"),
        ("SmolLM3ForCausalLM", {"order": Order.ASCENDING}, "delivery"),
    ],
}
"""As ``NEWEST``, of every older release that has a recording: what it does otherwise than its neighbours."""


@pytest.mark.parametrize(
    ("release", "architecture", "changes", "rule"),
    [
        *((f"{engine}@{CURRENT[engine]}", *row) for engine, rows in NEWEST.items() for row in rows),
        *((release, *row) for release, rows in OLDER.items() for row in rows),
    ],
)
def test_an_altered_rule_is_named(release: str, architecture: str, changes: dict[str, Any], rule: str) -> None:
    altered = altered_class(release.partition("@")[0], architecture, **changes)
    found = [d for d in differences(altered, release) if d.target_class == architecture]
    kinds = {difference.rule.partition(" (")[0] for difference in found}
    assert rule in kinds
    for difference in found:
        assert difference.engine.startswith(release)
        assert architecture in str(difference)


def test_every_recording_has_a_rule_that_is_altered() -> None:
    assert set(BY_RELEASE) == {*OLDER, *(f"{engine}@{version}" for engine, version in CURRENT.items())}


@pytest.mark.parametrize("engine", CURRENT)
def test_an_altered_width_of_fc_is_named(engine: str) -> None:
    tables = BY_NAME[engine]

    def see_draft(*arguments: Any) -> Any:
        seen = tables.see_draft(*arguments)
        return seen if seen.width is None else replace(seen, width=replace(seen.width, keys=()))

    rules = [difference.rule for difference in differences(replace(tables, see_draft=see_draft))]
    assert any(rule.startswith("width of fc (") for rule in rules)


def test_an_altered_buffer_is_named() -> None:
    tables = BY_NAME["sglang"]

    def see_draft(*arguments: Any) -> Any:
        seen = tables.see_draft(*arguments)
        return seen if seen.buffer is None else replace(seen, buffer=replace(seen.buffer, fallback=4))

    for release in ("sglang@0.5.12", "sglang@0.5.17", f"sglang@{CURRENT['sglang']}"):
        rules = [difference.rule for difference in differences(replace(tables, see_draft=see_draft), release)]
        assert any(rule.startswith("buffer of the CUDA graphs (") for rule in rules)


def test_an_altered_key_is_named() -> None:
    tables = BY_NAME["sglang"]

    def see_draft(*arguments: Any) -> Any:
        seen = tables.see_draft(*arguments)
        return replace(seen, config={key: value for key, value in seen.config.items() if key != "eagle_config"})

    kinds = {difference.rule.partition(" (")[0] for difference in differences(replace(tables, see_draft=see_draft))}
    assert "keys of the id list" in kinds


@pytest.mark.parametrize("release", BY_RELEASE)
def test_the_target_fails_on_a_difference(
    release: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, _, version = release.partition("@")
    monkeypatch.setattr("sys.argv", ["check_engines.py", "--recorded", "--engine", engine, "--version", version])
    with pytest.raises(SystemExit) as passed:
        check_engines.main()
    assert passed.value.code == 0
    assert "no difference" in capsys.readouterr().out
    other = {"sglang": Setter.AS_IS, "vllm": Setter.PLUS_ONE}[engine]
    monkeypatch.setitem(BY_NAME, engine, altered_class(engine, "LlamaForCausalLM", setter=other))
    with pytest.raises(SystemExit) as failed:
        check_engines.main()
    assert failed.value.code == 1
    told = capsys.readouterr().out
    assert release in told
    assert "LlamaForCausalLM, ids [1, 3, 5]" in told
    assert "rule: setter (" in told


def test_both_newest_releases_are_checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["check_engines.py", "--recorded"])
    with pytest.raises(SystemExit) as passed:
        check_engines.main()
    assert passed.value.code == 0
    told = capsys.readouterr().out
    assert all(f"{BY_NAME[engine].title} {version}," in told for engine, version in CURRENT.items())


def test_a_release_without_rules_is_held_against_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "later.json"
    write_recording({**RECORDED["sglang"], "version": "0.5.99"}, path)
    assert check_engines.judge(path)
    assert f"0.5.99 has no rules: held against those of {CURRENT['sglang']}" in capsys.readouterr().out


def test_a_recording_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    write_recording({**RECORDED["vllm"], "schema_version": 2}, path)
    with pytest.raises(ValueError, match="schema_version 2, expected 1"):
        read_recording(path)


def test_a_recording_is_written_as_it_is_read(tmp_path: Path) -> None:
    for recording in RECORDED.values():
        write_recording(recording, tmp_path / "again.json")
        assert json.loads((tmp_path / "again.json").read_text("utf-8")) == recording


def _drop_states(recording: dict[str, Any]) -> None:
    recording["targets"][0]["cases"][1]["delivered"] = [2, 4]


def _swap_states(recording: dict[str, Any]) -> None:
    recording["targets"][0]["cases"][1]["delivered"].reverse()


def _rename_error(recording: dict[str, Any]) -> None:
    for entry in recording["targets"]:
        for case in entry["cases"]:
            if case["error"]:
                case["error"]["type"] = "SomethingElse"


@pytest.mark.parametrize("alter", [_drop_states, _swap_states, _rename_error])
def test_an_engine_that_does_something_else_is_told(alter: Callable[[dict[str, Any]], None]) -> None:
    recording = json.loads(json.dumps(RECORDED["sglang"]))
    alter(recording)
    assert [d for line in compare(recording, BY_NAME["sglang"]) for d in line.differences]


def test_what_runs_in_an_engine_s_environment_imports_nothing_of_this_project() -> None:
    scripts = list(PROBES.rglob("*.py"))
    assert len(scripts) >= 6
    for script in scripts:
        assert "import eagle_parity" not in (text := script.read_text("utf-8"))
        assert "from eagle_parity" not in text


def test_an_environment_is_another_one_for_other_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = environment_folder("sglang", "0.5.23")
    assert folder.name.startswith("sglang-0.5.23-")
    assert environment_folder("sglang", "0.5.22").name.rpartition("-")[2] != folder.name.rpartition("-")[2]
    monkeypatch.setattr(engine_environments, "PROBES", tmp_path)
    (tmp_path / "requirements-sglang.txt").write_text("numpy==2.3.5\n", "utf-8")
    assert environment_folder("sglang", "0.5.23") != folder
    for_all = environment_folder("sglang", "0.5.12")
    (tmp_path / "requirements-sglang-0.5.12.txt").write_text("transformers==5.6.0\n", "utf-8")
    assert environment_folder("sglang", "0.5.12") != for_all
