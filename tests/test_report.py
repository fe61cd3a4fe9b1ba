from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import stories

from eagle_parity import findings
from eagle_parity.cli.app import run
from eagle_parity.errors import InputError
from eagle_parity.report import SavedResult, merge_results, merge_wirings, read_results
from eagle_parity.results import (
    FailOn,
    Outcome,
    Result,
    ServedWiring,
    Skip,
    Verdict,
    WiringSummary,
    conclude,
    encode_result,
)


def saved(path: str, *outcomes: findings.Finding | Skip, judged: bool = True, **wiring: object) -> SavedResult:
    judgeable: dict[str, object] = {"trained": [3], "served": [served("sglang@0.5.23", 3)]}
    summary = msgspec.convert(wiring or (judgeable if judged else {}), WiringSummary)
    return SavedResult(path, conclude("check-config", outcomes=outcomes, judged=judged, wiring=summary))


def write(path: Path, result: Result) -> str:
    path.write_bytes(encode_result(result))
    return str(path)


def served(engine: str, *boundaries: int) -> dict[str, object]:
    return msgspec.to_builtins(  # type: ignore[no-any-return]  # a struct becomes an object
        ServedWiring(
            engine=engine, options={}, boundaries=[*boundaries], key=None, default=False, outcome=Outcome.SERVES
        )
    )


ERROR = findings.LAYER_MISMATCH.finding("slot 0 is another layer", evidence={"a": [1], "b": {"c": 2}}, slot=0)
WARNING = findings.KNOWN_ENGINE_DEFECT.finding("partial sums")


class TestMerging:
    def test_a_shared_finding_is_told_once(self) -> None:
        merged = merge_results([saved("a", ERROR, WARNING), saved("b", ERROR)])
        assert [f.name for f in merged.findings] == ["layer-mismatch", "known-engine-defect"]
        assert merged.verdict is Verdict.FAIL
        assert [len(r.findings) for r in merged.results or []] == [2, 1]

    def test_findings_with_other_evidence_are_two(self) -> None:
        other = msgspec.structs.replace(ERROR, evidence={"a": [2]})
        assert len(merge_results([saved("a", ERROR), saved("b", other)]).findings) == 2

    def test_results_and_inputs_stand_in_one_order(self) -> None:
        merged = merge_results([saved("b"), saved("a", WARNING)])
        assert [i.path for i in merged.inputs] == ["b", "a"]
        assert {i.role for i in merged.inputs} == {"result"}

    def test_passes_only_where_all_pass(self) -> None:
        assert merge_results([saved("a"), saved("b")]).verdict is Verdict.PASS
        assert merge_results([saved("a"), saved("b", judged=False)]).verdict is Verdict.INCONCLUSIVE

    def test_says_which_result_leaves_it_open(self) -> None:
        (skip,) = merge_results([saved("a.json"), saved("b.json", judged=False)]).skipped
        assert skip == Skip(check="check-config", reason="b.json judged nothing", blocks_verdict=True)

    def test_a_failure_without_a_finding_is_no_pass(self) -> None:
        odd = SavedResult("odd.json", Result(command="check-config", verdict=Verdict.FAIL))
        merged = merge_results([odd])
        assert merged.verdict is Verdict.INCONCLUSIVE
        assert "odd.json" in merged.skipped[0].reason

    @pytest.mark.parametrize(
        "claim",
        [
            Result(command="check-config", verdict=Verdict.PASS),
            Result(command="check-config", verdict=Verdict.PASS, measurements={"target_class": "LlamaForCausalLM"}),
            Result(command="diff-captures", verdict=Verdict.PASS),
            Result(command="a command to come", verdict=Verdict.PASS),
            Result(command="report", verdict=Verdict.PASS),
            Result(command="report", verdict=Verdict.PASS, results=[Result(command="ids", verdict=Verdict.PASS)]),
        ],
    )
    def test_a_pass_of_what_judged_nothing_is_no_pass(self, claim: Result) -> None:
        for others in ([], [saved("a.json")]):
            merged = merge_results([*others, SavedResult("claim.json", claim)])
            assert merged.verdict is Verdict.INCONCLUSIVE
            assert [s.check for s in merged.skipped if "claim.json says pass" in s.reason] == [claim.command]

    def test_what_informs_beside_what_judges_changes_nothing(self) -> None:
        told = SavedResult("ids.json", Result(command="ids", verdict=Verdict.PASS))
        assert merge_results([saved("a.json"), told]).verdict is Verdict.PASS
        assert merge_results([told]).verdict is Verdict.INCONCLUSIVE
        report = SavedResult("report.json", merge_results([saved("a.json"), told]))
        assert merge_results([report]).verdict is Verdict.PASS

    def test_a_blocking_skip_stays_blocking_and_others_dont_matter(self) -> None:
        blocking = Skip(check="x", reason="y", blocks_verdict=True)
        assert merge_results([saved("a"), saved("b", blocking)]).verdict is Verdict.INCONCLUSIVE
        harmless = merge_results([saved("a", Skip(check="x", reason="y")), saved("b", Skip(check="x", reason="y"))])
        assert harmless.verdict is Verdict.PASS
        assert len(harmless.skipped) == 1

    def test_judges_by_its_own_gate(self) -> None:
        assert merge_results([saved("a", WARNING)]).verdict is Verdict.PASS
        assert merge_results([saved("a", WARNING)], fail_on=FailOn.WARNING).verdict is Verdict.FAIL

    def test_an_unreadable_file_is_a_finding(self) -> None:
        merged = merge_results([saved("a")], errors=[InputError("b.json", "not a result")])
        assert [(f.name, f.message) for f in merged.findings] == [("unreadable-shard", "b.json: not a result")]


class TestWirings:
    def test_results_complete_each_other(self) -> None:
        wiring, skips = merge_wirings(
            [
                saved("a", num_layers=30, trained=[3, None, 28], served=[served("sglang@0.5.23", 0, 3, 16)]),
                saved("b", num_layers=30, trained=[3, 16, None], live=[0, 3, 16], last_state={"live": "post_norm"}),
                saved("c", served=[served("vllm@0.32.0", 3, 16, 28), served("sglang@0.5.23", 0, 3, 16)]),
            ]
        )
        assert skips == []
        assert (wiring.num_layers, wiring.trained, wiring.live) == (30, [3, 16, 28], [0, 3, 16])
        assert wiring.last_state.live == "post_norm"
        assert [s.engine for s in wiring.served] == ["sglang@0.5.23", "vllm@0.32.0"]

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ({"num_layers": 30}, {"num_layers": 61}),
            ({"trained": [3, 16, 28]}, {"trained": [3, 31, 59]}),
            ({"trained": [3, 16, 28]}, {"trained": [3, 16]}),
            ({"live": [3, 16, 28]}, {"live": [0, 16, 28]}),
            ({"served": [served("sglang@0.5.23", 3)]}, {"served": [served("sglang@0.5.23", 2)]}),
        ],
    )
    def test_a_contradiction_is_told_and_nothing_is_mixed(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        wiring, (skip,) = merge_wirings([saved("one.json", **first), saved("two.json", **second)])
        assert wiring == WiringSummary()
        assert "one.json" in skip.reason
        assert "two.json" in skip.reason
        assert not skip.blocks_verdict


class TestReading:
    def test_folders_are_read_in_order_and_a_file_only_once(self, tmp_path: Path) -> None:
        (tmp_path / "deep").mkdir()
        for name in ("b.json", "a.json", "deep/c.json"):
            write(tmp_path / name, stories.parity())
        (tmp_path / "notes.txt").write_text("no result")
        results, errors = read_results([str(tmp_path), str(tmp_path / "a.json")])
        assert [Path(r.path).name for r in results] == ["a.json", "b.json", "c.json"]
        assert errors == []

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b" \n",
            b"{",
            b"[]",
            b"null",
            b"\xff\xfe",
            b'{"command": "x"}',
            b'{"schema_version": 2, "command": "x", "verdict": "pass"}',
            b'{"command": "x", "verdict": "pass", "findings": [1]}',
            b"[" * 100_000,
        ],
    )
    def test_what_is_no_result_is_one_line(
        self, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        bad = tmp_path / "bad.json"
        bad.write_bytes(content)
        assert run(["report", str(bad)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert str(bad) in captured.err

    def test_the_rest_is_read(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        good = write(tmp_path / "good.json", stories.parity())
        (tmp_path / "bad.json").write_text("{")
        assert run(["report", good, str(tmp_path / "bad.json"), str(tmp_path / "gone.json"), "--format", "json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert [f["name"] for f in document["findings"]] == ["unreadable-shard", "unreadable-shard"]
        assert len(document["results"]) == 1

    def test_an_empty_folder_is_no_input(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["report", str(tmp_path)]) == 2
        assert "no *.json" in capsys.readouterr().err


class TestCommand:
    def test_exit_statuses(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        good = write(tmp_path / "good.json", stories.parity())
        story = write(tmp_path / "story.json", stories.founding_story())
        open_ = write(tmp_path / "open.json", stories.too_few_tokens())
        assert run(["report", good]) == 0
        assert run(["report", good, story]) == 1
        assert run(["report", story, "--fail-on", "never"]) == 0
        assert run(["report", good, open_]) == 3
        assert run(["report", open_, story]) == 1
        assert run(["report"]) == 2
        capsys.readouterr()

    def test_writes_a_file_and_nothing_else(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        story = write(tmp_path / "story.json", stories.founding_story())
        out = tmp_path / "summary.md"
        assert run(["report", story, "--format", "markdown", "--output", str(out)]) == 1
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", "")
        assert out.read_text().startswith("## ❌ FAIL: `eagle-parity report`")

    def test_a_report_can_be_reported(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        story = write(tmp_path / "story.json", stories.founding_story())
        again = tmp_path / "again.json"
        assert run(["report", story, "--format", "json", "--output", str(again)]) == 1
        assert run(["report", str(again), story, "--format", "json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert len(document["findings"]) == len(stories.founding_story().findings)

    def test_names_the_results_that_a_finding_comes_from(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        story = write(tmp_path / "story.json", stories.founding_story())
        good = write(tmp_path / "good.json", stories.parity())
        run(["report", story, good, "--format", "markdown"])
        text = capsys.readouterr().out
        # Other wirings before and after the fix: each in its own table.
        assert text.count("### Wirings in ") == 2
        assert "the results differ in the wiring that sglang@0.5.23 serves" in text

    def test_thresholds_need_measurements(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        story = write(tmp_path / "story.json", stories.founding_story())
        assert run(["report", story, "--threshold", "margin=2"]) == 2
        assert "no result of diff-captures with measurements among 1" in capsys.readouterr().err

    def test_other_thresholds_judge_again(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        states = write(tmp_path / "states.json", stories.too_few_tokens())
        assert run(["report", states]) == 3
        assert run(["report", states, "--threshold", "min_tokens=4"]) == 1
        assert run(["report", states, "--threshold", "min_tokens=400"]) == 3
        capsys.readouterr()
        good = write(tmp_path / "good.json", stories.parity())
        assert run(["report", states, good, "--threshold", "min_tokens=4", "--format", "json"]) == 1
        skipped = json.loads(capsys.readouterr().out)["skipped"]
        assert [skip["check"] for skip in skipped if str(tmp_path / "good.json") in skip["reason"]] == [
            "other thresholds",
            "wirings in one table",
        ]

    @pytest.mark.parametrize("assignment", ["nonsense=1", "margin", "margin=x", "margin=-1", "margin=nan"])
    def test_a_threshold_that_is_none_is_one_line(
        self, assignment: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        states = write(tmp_path / "states.json", stories.too_few_tokens())
        assert run(["report", states, "--threshold", assignment]) == 2
        assert capsys.readouterr().err.count("\n") == 1

    def test_foreign_measurements_name_the_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        foreign = conclude("diff-captures", outcomes=[], judged=True, measurements={"slots": 1})
        path = write(tmp_path / "foreign.json", foreign)
        assert run(["report", path, "--threshold", "margin=2"]) == 2
        assert path in capsys.readouterr().err

    def test_starts_without_the_heavy_libraries(self) -> None:
        code = (
            "import sys; from eagle_parity.cli.app import run; run(['checks', '--format', 'json']);"
            "run(['explain', 'EP201']); run(['report', 'nowhere']);"
            "print(sorted({'torch', 'transformers', 'numpy', 'numba', 'llvmlite'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr.startswith("eagle-parity: error: nowhere")
        assert done.stdout.splitlines()[-1] == "[]"
