"""References that an engine records of a target without a draft: for one too big for transformers."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from live.captures import manifest, unequal_ranks
from live.conftest import SGLANG, VLLM
from live.servers import sglang_hook, sglang_server, vllm_server
from live.tool import run_json, run_tool
from live.workshop import LAST_STATE, LENGTHS

if TYPE_CHECKING:
    from pathlib import Path

    from live.scenarios import Scenario
    from live.servers import Server
    from live.workshop import Workshop

pytestmark = pytest.mark.full

ALL = list(range(LAST_STATE + 1))


def launch(engine: str, target: Path, spool: Path, boundaries: str) -> tuple[dict[str, str], list[str]]:
    """Environment and flags, as the tool prints them."""
    words = ["capture", engine.partition("@")[0], "--launch-flags", "--engine", engine, "--spool", str(spool)]
    printed = run_tool(*words, "--target", str(target), "--boundaries", boundaries).stdout
    split = shlex.split(printed, comments=True)
    first_flag = next(place for place, word in enumerate(split) if word.startswith("--"))
    return dict(word.split("=", 1) for word in split[:first_flag]), split[first_flag:]


def check_reference(engine: str, server: Server, workshop: Workshop, folder: Path, scenario: Scenario) -> None:
    """Every boundary of the engine is transformers' own."""
    scenario.expect("all boundaries, 0 to 8, of both ranks bit for bit alike, and each is transformers' own")
    output = folder / "live"
    words = ["--server", server.url, "--prompts", str(workshop.prompts()), "--boundaries", "all"]
    words += ["--spool", str(folder / "spool")]
    recorded = run_json("capture", engine, *words, "--output", str(output)).result["measurements"]
    reference = workshop.reference("llama", "bfloat16")
    ran = run_json("diff-captures", str(workshop.trained("llama", "bfloat16", ALL)), str(output),
                   "--reference", str(reference))  # fmt: skip
    distances = [slot["pair"]["distance"] for slot in ran.result["measurements"]["slots"]]
    scenario.find(
        f"{ran.result['verdict']}, slots {recorded['slots']}, last state {recorded['last_state']}; distance"
        f" {min(distances):.4f} to {max(distances):.4f}; ranks {recorded['ranks']}"
    )
    assert recorded["slots"] == ran.result["wiring"]["live"] == ALL
    assert ran.result["verdict"] == "pass"
    assert recorded["ranks"] == ["tp0", "tp1"]
    assert unequal_ranks(output) == []


def test_sglang(sglang: Path, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
    target = workshop.target("llama", "bfloat16")
    environment, flags = launch(f"sglang@{SGLANG}", target, tmp_path / "spool", "all")
    with sglang_server(sglang, target, None, tmp_path, hook=flags, environment=environment) as server:
        check_reference("sglang", server, workshop, tmp_path, scenario)


def test_vllm(vllm: Path, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
    target = workshop.target("llama", "bfloat16")
    environment, flags = launch(f"vllm@{VLLM}", target, tmp_path / "spool", "all")
    with vllm_server(vllm, target, None, tmp_path, hook=environment, options=flags, dtype="bfloat16") as server:
        check_reference("vllm", server, workshop, tmp_path, scenario)


@pytest.mark.parametrize("with_draft", [True, False], ids=["draft", "reference"])
def test_attention_data_parallel(
    with_draft: bool, sglang: Path, workshop: Workshop, tmp_path: Path, scenario: Scenario
) -> None:
    """Each rank has requests of its own: none of the other's rows is missing, and none can diverge.

    The target is Qwen3: SGLang's Llama class splits its attention over all ranks whatever the option says (0.5.23,
    ``models/llama.py:181``), and its cache doesn't.
    """
    scenario.expect("each sequence from its own group of ranks, no finding about ranks, pass")
    target, output = workshop.target("qwen3", "bfloat16"), tmp_path / "live"
    options = ["--enable-dp-attention", "--dp-size", "2"]
    if with_draft:
        ids = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 5, 6], "use_aux_hidden_state": True}}
        draft: Path | None = workshop.draft("right", ids, dtype="bfloat16")
        environment: dict[str, str] = {}
        flags = sglang_hook(SGLANG, tmp_path / "spool")
    else:
        draft = None
        environment, flags = launch(f"sglang@{SGLANG}", target, tmp_path / "spool", "3,6,7")
    with sglang_server(sglang, target, draft, tmp_path, hook=flags, options=options, environment=environment) as server:
        words = ["--server", server.url, "--prompts", str(workshop.prompts()), "--conditions", "batch"]
        recorded = run_json("capture", "sglang", *words, "--output", str(output)).result["measurements"]
    sides = [str(workshop.trained("qwen3", "bfloat16", (3, 6, 7))), str(output)]
    ran = run_json("diff-captures", *sides, "--reference", str(workshop.reference("qwen3", "bfloat16")))
    live = manifest(output)
    groups = {rank["group"]: rank["group_size"] for rank in live["live"]["ranks"]}
    ranks = sorted({tuple(sequence["ranks"]) for sequence in live["sequences"]})
    scenario.find(
        f"{ran.result['verdict']}, findings {[finding['name'] for finding in ran.result['findings']]}; groups {groups},"
        f" sequences from {ranks}; incomplete {recorded['incomplete']}"
    )
    assert groups == {"dp0": 1, "dp1": 1}
    assert {len(names) for names in ranks} == {1}
    assert len(ranks) == 2  # both groups served some
    assert ran.result["verdict"] == "pass"
    assert ran.result["findings"] == []
    assert recorded["sequences"] == len(LENGTHS)
