"""A real target with a really trained head on both engines, where the testbed is beside the checkout: extra."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from live.captures import rank_distance
from live.conftest import SGLANG, VLLM
from live.servers import sglang_hook, sglang_server, vllm_hook, vllm_server
from live.tool import run_json

if TYPE_CHECKING:
    from pathlib import Path

    from live.scenarios import Scenario

pytestmark = pytest.mark.full

NEW_TOKENS = "100"
ALL_PROMPTS, ON_THREE_RANKS = 20, 8
RIGHT = [3, 16, 28]
TOLERANCE = 4
"""Accepted and drafted tokens on another machine may differ by as much from the testbed's table: bf16 weights in fp32
arithmetic, whose sums come in another order."""
ROUNDING = 1e-6
"""Ranks that add three shares up may begin with their own: seen on vLLM 0.32.0 on CPU, 2.3e-7 in float32."""


def _draft(testbed: Path, folder: Path, engine: str, ids: list[int]) -> Path:
    shutil.copytree(testbed / "draft", folder)
    config: dict[str, Any] = json.loads((folder / f"config.{engine}.json").read_text("utf-8"))
    if engine == "sglang":
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = ids
    else:
        config["eagle_aux_hidden_state_layer_ids"] = ids
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def _cut_vocabulary(folder: Path, rows: int) -> None:
    """vLLM wants a draft vocabulary that three ranks can share in blocks of 64: the highest ids are dropped."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    kept = weights["d2t"][:rows]
    for name in ("lm_head.weight", "d2t"):
        weights[name] = weights[name][:rows].contiguous()
    weights["t2d"] = weights["t2d"].clone().fill_(False)
    weights["t2d"][kept + kept.new_ones(rows).cumsum(0) - 1] = True
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "draft_vocab_size": rows}), "utf-8")


@pytest.mark.parametrize(
    ("engine", "ranks", "ids", "wiring", "accepted", "drafted"),
    [
        ("sglang", 1, [2, 15, 27], RIGHT, 819, 3120),
        ("sglang", 1, [3, 16, 28], [4, 17, 29], 802, 3165),
        ("sglang", 1, [-1, 2, 15], [0, 3, 16], 202, 4944),
        ("sglang", 3, [2, 15, 27], RIGHT, 320, 1314),
        ("vllm", 1, RIGHT, RIGHT, 819, 3120),
        ("vllm", 1, [4, 17, 29], [4, 17, 29], 802, 3165),
        ("vllm", 3, RIGHT, RIGHT, 320, 1314),
    ],
    ids=["sglang", "sglang-late", "sglang-story", "sglang-tp3", "vllm", "vllm-late", "vllm-tp3"],
)
def test_counters(
    engine: str,
    ranks: int,
    ids: list[int],
    wiring: list[int],
    accepted: int,
    drafted: int,
    shared: Path,
    smollm2: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    scenario: Scenario,
) -> None:
    scenario.expect(f"live {wiring}, {accepted:,} of {drafted:,} accepted")
    rows = [json.loads(line) for line in (shared / "testbed" / "serving-prompts.jsonl").read_text("utf-8").splitlines()]
    count = ALL_PROMPTS if ranks == 1 else ON_THREE_RANKS
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"token_ids": row["prompt_ids"]}) + "\n" for row in rows[:count]), "utf-8")
    draft = _draft(shared / "testbed", tmp_path / "draft", engine, ids)
    python = request.getfixturevalue(engine)
    spool = tmp_path / "spool"
    if engine == "sglang":
        server = sglang_server(
            python, smollm2, draft, tmp_path, hook=sglang_hook(SGLANG, spool), ranks=ranks, dtype="float32"
        )
    else:
        if ranks > 1:
            _cut_vocabulary(draft, 8064)
        hook = vllm_hook(VLLM, spool)
        server = vllm_server(python, smollm2, draft, tmp_path, hook=hook, options=["--enforce-eager"], ranks=ranks)
    words = ["--prompts", str(prompts), "--output", str(tmp_path / "live"), "--spool", str(spool)]
    with server:
        recorded = run_json("capture", engine, "--server", server.url, *words, "--generate", NEW_TOKENS)
    measured = recorded.result["measurements"]
    counted = measured["acceptance"]
    apart = rank_distance(tmp_path / "live")
    scenario.find(
        f"{measured['slots']}, {counted['accepted_tokens']:,} of {counted['draft_tokens']:,}"
        + (f"; ranks at most {apart:.1e} apart" if ranks > 1 else "")
    )
    assert measured["slots"] == wiring
    assert apart <= ROUNDING
    assert recorded.errors == []
    assert abs(counted["accepted_tokens"] - accepted) <= TOLERANCE
    assert abs(counted["draft_tokens"] - drafted) <= TOLERANCE
