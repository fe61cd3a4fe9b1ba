"""``check-config`` from the command line: the rows of the founding story, inputs of every form, hostile ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from config_cases import KIMI_CONFIG, LLAMA_CONFIG, draft_config, nested
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle_parity.cli.app import run
from eagle_parity.drafts import IDS, NESTED_IDS
from eagle_parity.results import Result, decode_result

STORY = nested([-1, 2, 30])


class Program:
    """The program with a draft and a target on disk."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys

    def write(self, name: str, config: Any) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config))
        return str(path)

    def check(self, draft: Any, target: Any, *options: str) -> tuple[int, Result]:
        paths = (self.write("draft.json", draft), "--target", self.write("target.json", target))
        return self.run("check-config", *paths, *options)

    def run(self, *arguments: str) -> tuple[int, Result]:
        self.capsys.readouterr()
        status = run([*arguments, "--format", "json"])
        return status, decode_result(self.capsys.readouterr().out.encode(), path="stdout")


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(tmp_path, capsys)


def errors(result: Result) -> list[str]:
    return [f.name for f in result.findings if f.severity.value == "error"]


def warnings(result: Result) -> list[str]:
    return [f.name for f in result.findings if f.severity.value == "warning"]


@pytest.mark.parametrize(
    ("engine", "served_as", "error", "ids"),
    [
        ("sglang@0.5.12:embedding-capture=patched", ([0, 3, 31], "serves"), "spurious-embedding", [2, 30, 58]),
        ("sglang@0.5.12", ([0, 3, 31], "fails-at-first-request"), "spurious-embedding", [2, 30, 58]),
        ("sglang@0.5.23", ([2, 30], "fails-at-first-request"), "engine-failure", [3, 31, 59]),
    ],
)
def test_the_founding_story_on_sglang(
    program: Program, engine: str, served_as: tuple[list[int], str], error: str, ids: list[int]
) -> None:
    draft = draft_config(KIMI_CONFIG, **STORY)
    status, result = program.check(draft, KIMI_CONFIG, "--engine", engine, "--trained-boundaries", "3,31,59")
    (served,) = result.wiring.served
    assert status == 1
    assert (served.boundaries, served.outcome.value) == served_as
    assert served.ids == [-1, 2, 30]
    assert errors(result) == [error]
    assert result.findings[0].evidence["change"] == {NESTED_IDS: ids}
    assert str(ids) in result.findings[0].remedy


def test_the_founding_story_on_vllm(program: Program) -> None:
    draft = draft_config(KIMI_CONFIG, **STORY)
    status, result = program.check(draft, KIMI_CONFIG, "--engine", "vllm@0.32.0", "--trained-boundaries", "3,31,59")
    first, second = result.wiring.served
    assert status == 1
    assert (first.options, first.boundaries, first.outcome.value) == (
        {"runner": "v1"},
        [2, 30],
        "fails-at-first-request",
    )
    assert (second.options, second.boundaries, second.default) == ({"runner": "v2"}, [2, 30, 58], True)
    assert sorted(errors(result)) == ["engine-failure", "layer-ids-ignored"]
    assert all(f.evidence["change"] == {IDS: [3, 31, 59]} for f in result.findings)


def test_the_fixed_list_passes_on_one_version_and_is_off_by_one_on_another(program: Program) -> None:
    draft = draft_config(KIMI_CONFIG, **nested([2, 30, 58]))
    status, old = program.check(draft, KIMI_CONFIG, "--engine", "sglang@0.5.12", "--trained-boundaries", "3,31,59")
    assert (status, errors(old), set(warnings(old))) == (0, [], {"known-engine-defect"})
    assert "partial sum" in old.findings[0].message
    status, new = program.check(draft, KIMI_CONFIG, "--engine", "sglang@0.5.23", "--trained-boundaries", "3,31,59")
    assert (status, errors(new)) == (1, ["layer-id-convention"])


def test_the_story_by_the_trainer_s_rule(program: Program) -> None:
    draft = draft_config(KIMI_CONFIG, **STORY)
    status, result = program.check(
        draft, KIMI_CONFIG, "--engine", "sglang@0.5.12", "--trained-with", "speculators@0.4.0"
    )
    assert (status, errors(result)) == (1, ["spurious-embedding"])
    assert result.wiring.trained == [3, 31, 59]
    assert result.wiring.last_state.trained == 61


def test_the_same_pattern_on_a_llama_class(program: Program) -> None:
    draft = draft_config(LLAMA_CONFIG, **nested([-1, 2, 15]))
    options = ("--engine", "sglang@0.5.23", "--engine", "vllm@0.32.0", "--trained-boundaries", "3,16,28,post_norm")
    status, result = program.check(draft, LLAMA_CONFIG, *options)
    assert status == 1
    assert result.wiring.served[0].boundaries == [0, 3, 16]
    by_engine = {f.engine: f for f in result.findings}
    assert by_engine["sglang@0.5.23"].name == "spurious-embedding"
    assert by_engine["sglang@0.5.23"].evidence["change"] == {NESTED_IDS: [2, 15, 27]}
    assert by_engine["vllm@0.32.0:runner=v2"].remedy == f"Write top-level {IDS}: [3, 16, 28]."
    assert result.wiring.last_state.trained == "post_norm"


def test_the_remedies_pass(program: Program) -> None:
    trained = ("--trained-boundaries", "3,16,28")
    for engine, values in (("sglang@0.5.23", nested([2, 15, 27])), ("vllm@0.32.0", {IDS: [3, 16, 28]})):
        status, result = program.check(draft_config(LLAMA_CONFIG, **values), LLAMA_CONFIG, "--engine", engine, *trained)
        assert (status, result.findings) == (0, [])


def test_a_folder_a_config_and_bare_json_give_the_same_answer(program: Program) -> None:
    draft = draft_config(KIMI_CONFIG, **STORY)
    draft_path, target_path = program.write("d/config.json", draft), program.write("t/config.json", KIMI_CONFIG)
    drafts = (draft_path, str(Path(draft_path).parent), program.write("d2/head.json", draft))
    targets = (target_path, str(Path(target_path).parent), program.write("t2/model.json", KIMI_CONFIG))
    answers = set()
    for d in drafts:
        for t in targets:
            status, result = program.run(
                "check-config", d, "--target", t, "--engine", "sglang@0.5.12", "--trained-boundaries", "3,31,59"
            )
            answers.add((status, str(result.findings), str(result.wiring), str(result.skipped)))
    assert len(answers) == 1


def test_top_level_ids_are_ignored_by_sglang(program: Program) -> None:
    draft = draft_config(LLAMA_CONFIG, **{IDS: [3, 16, 28]})
    status, result = program.check(draft, LLAMA_CONFIG, "--engine", "sglang@0.5.23", "--trained-boundaries", "3,16,28")
    (served,) = result.wiring.served
    assert (status, errors(result)) == (1, ["layer-ids-ignored"])
    assert (served.boundaries, served.default, served.key) == ([2, 15, 27], True, None)


def test_an_unknown_version_is_inconclusive_or_judged_by_the_nearest(program: Program) -> None:
    draft = draft_config(LLAMA_CONFIG, **nested([2, 15, 27]))
    options = ("--engine", "sglang@0.7.1", "--trained-boundaries", "3,16,28")
    status, result = program.check(draft, LLAMA_CONFIG, *options)
    assert (status, warnings(result)) == (3, ["unknown-engine-version"])
    status, result = program.check(draft, LLAMA_CONFIG, *options, "--assume-nearest")
    assert (status, warnings(result)) == (0, ["unknown-engine-version"])
    assert result.wiring.served[0].engine == "sglang@0.7.1"


def test_without_a_trained_wiring_or_an_engine_it_is_inconclusive(program: Program) -> None:
    draft = draft_config(LLAMA_CONFIG, **nested([2, 15, 27]))
    assert program.check(draft, LLAMA_CONFIG, "--engine", "sglang@0.5.23")[0] == 3
    assert program.check(draft, LLAMA_CONFIG, "--trained-boundaries", "3,16,28")[0] == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--engine", "sglang"), "no version"),
        (("--trained-with", "specforge@9.9"), "not in the tables"),
        (("--trained-boundaries", "3,16,31"), "31 is no boundary of a target with 30 layers"),
        (("--trained-boundaries", "a"), "no boundary"),
        (("--trained-with", "specforge@0.2.0", "--trained-boundaries", "4,16,28"), "leave one of them out"),
        (("--shards", "nowhere"), "nowhere"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    program: Program, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    draft = program.write("draft.json", draft_config(LLAMA_CONFIG, **nested([2, 15, 27])))
    target = program.write("target.json", LLAMA_CONFIG)
    assert run(["check-config", draft, "--target", target, *options]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("content", ["", "[]", "{", "nonsense", json.dumps(KIMI_CONFIG), "[" * 100_000])
def test_what_is_no_draft_is_status_2(program: Program, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (program.folder / "draft.json").write_text(content)
    target = program.write("target.json", KIMI_CONFIG)
    assert run(["check-config", str(program.folder / "draft.json"), "--target", target]) == 2
    assert "EAGLE-3 draft's config.json" in capsys.readouterr().err


def test_shards_with_a_data_config_state_their_wiring(program: Program) -> None:
    import torch

    folder = program.folder / "shards"
    folder.mkdir()
    states = [torch.zeros(5, 576, dtype=torch.bfloat16) for _ in range(4)]
    torch.save(
        {"input_ids": torch.arange(5), "loss_mask": torch.ones(5, dtype=torch.int64), "hidden_states": states},
        folder / "data_0.pt",
    )
    config = {
        "version": "2.0",
        "speculators_version": "0.4.0",
        "model": {"hidden_size": 576},
        "hidden_states": {"layer_ids": [2, 15, 27, 29]},
    }
    (folder / "data_config.json").write_text(json.dumps(config))
    draft = draft_config(LLAMA_CONFIG, **nested([-1, 2, 15]))
    status, result = program.check(draft, LLAMA_CONFIG, "--engine", "sglang@0.5.23", "--shards", str(folder))
    assert result.wiring.trained == [3, 16, 28]
    assert (status, errors(result)) == (1, ["spurious-embedding"])


HEAVY = ("torch", "transformers", "numba", "llvmlite", "numpy", "safetensors")


def test_no_heavy_module_is_imported(program: Program) -> None:
    draft = program.write("draft.json", draft_config(KIMI_CONFIG, **STORY))
    target = program.write("target.json", KIMI_CONFIG)
    calls = [
        ["check-config", draft, "--target", target, "--engine", "sglang@0.5.12", "--trained-with", "speculators@0.4.0"],
        ["ids", "3,31,59", "--target", target],
        ["engines"],
    ]
    code = (
        "import sys, json\n"
        "from eagle_parity.cli.app import run\n"
        f"for call in {calls!r}:\n"
        "    run(call)\n"
        f"print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([-1, 0, 2, 15, 30]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.tuples(JSON, JSON, JSON, JSON, JSON))
def test_arbitrary_json_is_an_answer_or_status_2(
    tmp_path_factory: pytest.TempPathFactory,
    values: tuple[object, ...],
) -> None:
    ids, section, other, architectures, layers = values
    folder = tmp_path_factory.mktemp("hostile")
    base = draft_config(LLAMA_CONFIG)
    drafts = [
        {**base, IDS: ids, "eagle_config": section},
        {**base, **nested(ids), "num_aux_hidden_states": other, "target_hidden_size": other},
        {**base, "eagle_config": {"layer_ids": ids, "use_aux_hidden_state": other}, "dflash_config": section},
        {"speculators_model_type": "eagle3", "transformer_layer_config": section, IDS: ids, "draft_vocab_size": other},
        {"architectures": architectures, IDS: ids},
    ]
    target = {**LLAMA_CONFIG, "architectures": architectures, "num_hidden_layers": layers, "hc_mult": other}
    (folder / "good.json").write_text(json.dumps(LLAMA_CONFIG))
    (folder / "target.json").write_text(json.dumps(target))
    for draft in drafts:
        (folder / "draft.json").write_text(json.dumps(draft))
        for name in ("good.json", "target.json"):
            status = run(
                [
                    *("check-config", str(folder / "draft.json"), "--target", str(folder / name)),
                    *("--engine", "sglang@0.5.12", "--engine", "sglang@0.5.23", "--engine", "vllm@0.32.0"),
                    *("--trained-boundaries", "3,16,28", "--format", "json", "--output", str(folder / "out.json")),
                    "--debug",
                ]
                if _fits(folder, name)
                else ["ids", "1", "--target", str(folder / name), "--output", str(folder / "out.json")]
            )
            assert status in {0, 1, 2, 3}


def _fits(folder: Path, name: str) -> bool:
    """Whether ``--debug`` can be given: it lets expected errors through as well."""
    from eagle_parity.drafts import read_draft
    from eagle_parity.errors import ParityError
    from eagle_parity.targets import read_target

    try:
        read_draft(str(folder / "draft.json"))
        return read_target(str(folder / name)).num_layers >= 28
    except ParityError:
        return False


def test_every_published_config_gets_an_answer(shared: Path, tmp_path: Path) -> None:
    configs = sorted(path for path in (shared / "configs").glob("*.json") if ".target." not in path.name)
    answered = 0
    for draft in configs:
        target = draft.with_name(draft.name.replace(".json", ".target.json"))
        for trained in ([], ["--trained-with", "specforge@0.2.0"], ["--trained-boundaries", "3,9,14"]):
            status = run(
                [
                    *("check-config", str(draft), "--target", str(target), *trained),
                    *("--engine", "sglang@0.5.8", "--engine", "sglang@0.5.23", "--engine", "vllm@0.32.0"),
                    *("--format", "json", "--output", str(tmp_path / "out.json")),
                ]
            )
            assert status in {0, 1, 2, 3}, draft.name
            answered += status != 2
    assert answered > 100


def test_the_testbed_s_head_with_its_weights(shared: Path, program: Program) -> None:
    draft = str(shared / "testbed" / "draft" / "config.sglang.json")
    target = program.write("target.json", LLAMA_CONFIG)
    options = ("--target", target, "--engine", "sglang@0.5.23", "--trained-boundaries", "3,16,28")
    status, result = program.run("check-config", draft, *options)
    assert (status, result.findings, result.skipped) == (0, [], [])
    assert result.inputs[0].slots == 3


def test_the_story_s_shards(shared: Path, program: Program) -> None:
    folders = sorted((shared / "samples" / "speculators").rglob("data_config.json"))
    assert folders
    target = {**LLAMA_CONFIG, "num_hidden_layers": 10, "hidden_size": 64, "vocab_size": 384}
    draft = draft_config(target, **nested([2, 5, 7]))
    for found in folders:
        status, result = program.check(draft, target, "--engine", "sglang@0.5.23", "--shards", str(found.parent))
        assert (status, result.wiring.trained) == (0, [3, 6, 8]), found
