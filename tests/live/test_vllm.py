"""vLLM servers, tensor-parallel over two ranks, with EAGLE-3 drafts: each class is one launch."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from eagle_parity.capture.servers.vllm import VllmServer
from live.captures import CapturedEngine, draft_inputs, manifest, tensors, unequal_ranks
from live.conftest import VLLM
from live.mishaps import (
    check_chat_template,
    check_conditions,
    check_full_disk,
    check_killed,
    check_under_traffic,
)
from live.servers import Server, vllm_hook, vllm_server
from live.tool import run_json
from live.workshop import CHUNK, LENGTHS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from live.scenarios import Scenario
    from live.workshop import Workshop

ENGINE = CapturedEngine("vllm", f"vllm@{VLLM}:runner=v1,impl=native", "float32", names_spool=True)
"""vLLM computes in fp32 as well, where a difference of a millionth shows; v1 is the runner that a CPU has."""
TEST_PLUGIN = "eagle_parity_test"
GENERATED = 24
"""Tokens behind each prompt: enough for a dozen verifications."""
FIRST_DIVERGED = 10
"""As the worker's patch has it."""


def top_level(ids: list[int]) -> dict[str, Any]:
    """The key that vLLM reads first."""
    return {"eagle_aux_hidden_state_layer_ids": ids}


def launch(
    python: Path,
    workshop: Workshop,
    draft: Path,
    folder: Path,
    *options: str,
    environment: dict[str, str] | None = None,
) -> Server:
    """A server of the Llama target, with the environment that the tool prints."""
    hook = vllm_hook(VLLM, folder / "spool")
    # The printed value names the plugin alone; the tests' own is beside it.
    hook["VLLM_PLUGINS"] += f",{TEST_PLUGIN}"
    return vllm_server(
        python,
        ENGINE.target(workshop),
        draft,
        folder,
        hook=hook,
        options=options,
        environment=environment,
        dtype=ENGINE.dtype,
    )


def on_every_rank(server: Server, method: str, **arguments: Any) -> list[Any]:
    """A method of the tests' patch, by vLLM's own way in development mode."""
    body = {"method": f"eagle_parity_test_{method}", "kwargs": arguments, "timeout": 120}
    answers: list[Any] = server.post("/collective_rpc", body)["results"]
    return answers


@contextmanager
def fault(server: Server, name: str) -> Iterator[None]:
    """A fault inside the workers for as long as the block lasts."""
    on_every_rank(server, "fault", fault=name)
    try:
        yield
    finally:
        on_every_rank(server, "fault", fault="")


def chosen_tokens(output: Path) -> list[tuple[str, int, list[int], list[int]]]:
    """Of each sequence its name, its prompt's length, and what each of the two ranks generated, by its own file."""
    folder = output / "conditions" / "generate"
    found = []
    for sequence in manifest(folder)["sequences"]:
        files = [tensors(place / sequence["file"]) for place in (folder, folder / "ranks" / sequence["ranks"][1])]
        first, second = ([*ids["token_ids"][:1].tolist(), *ids["sampled_ids"].tolist()] for ids in files)
        found.append((sequence["name"], sequence["first_position"], first, second))
    return found


def differing(first: list[int], second: list[int]) -> int | None:
    """The first place where they differ."""
    return next((place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)


class TestRightIds:
    """Ids that mean what the head was trained on, eager; chunks of 64 tokens, a prefix cache, and faults on demand."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("vllm-right")

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, vllm: Path, workshop: Workshop, folder: Path) -> Iterator[Server]:
        draft = ENGINE.draft(workshop, "right", top_level([3, 6, 7]))
        options = ["--enforce-eager", "--max-num-batched-tokens", str(CHUNK)]
        with launch(vllm, workshop, draft, folder, *options, environment={"VLLM_SERVER_DEV_MODE": "1"}) as server:
            yield server

    @pytest.fixture(scope="class")
    @classmethod
    def undisturbed(cls, server: Server, workshop: Workshop, folder: Path) -> Path:
        ENGINE.capture(server, workshop, folder / "undisturbed", "--conditions", "batch,chunk,prefix")
        return folder / "undisturbed"

    def test_switched_off(self, server: Server, folder: Path, scenario: Scenario) -> None:
        scenario.expect("nothing is wrapped before, three methods while recording, nothing after")
        connection = VllmServer(server.url, spool=str(folder / "spool"))
        before = on_every_rank(server, "wrapped")
        with connection.recording():
            during = on_every_rank(server, "wrapped")
        after = on_every_rank(server, "wrapped")
        connection._http.close()  # a command's end does it otherwise
        scenario.find(f"{before} - {during} - {after}")
        assert before == after == [[], []]
        wrapped = {"runner.propose_draft_token_ids", "drafter.propose", "draft.combine_hidden_states"}
        assert [set(names) for names in during] == [wrapped] * 2

    def test_token(self, server: Server, scenario: Scenario) -> None:
        scenario.expect("the route is closed to requests without the spool's token")
        answer = httpx.post(f"{server.url}/eagle_parity/info", json={}, trust_env=False)
        scenario.find(answer.status_code)
        assert answer.status_code == httpx.codes.FORBIDDEN

    def test_parity(self, undisturbed: Path, workshop: Workshop, scenario: Scenario) -> None:
        scenario.expect("pass, exit 0, live (3, 6, 7) as check-config foresaw")
        ran = ENGINE.compare(workshop, (3, 6, 7), undisturbed, expected={0})
        draft = ENGINE.draft(workshop, "right", top_level([3, 6, 7]))
        foreseen, errors = ENGINE.served(workshop, draft, (3, 6, 7), expected={0})
        scenario.find(f"{ran.result['verdict']}, live {ran.result['wiring']['live']}, foreseen {foreseen} {errors}")
        assert ran.result["verdict"] == "pass"
        assert ran.result["wiring"]["live"] == foreseen == [3, 6, 7]

    def test_ranks(self, undisturbed: Path, scenario: Scenario) -> None:
        scenario.expect("both ranks have every sequence, bit for bit the same; what fc got is the slots side by side")
        ranks = {tuple(sequence["ranks"]) for sequence in manifest(undisturbed)["sequences"]}
        different = unequal_ranks(undisturbed)
        scenario.find(f"{sorted(ranks)}, {len(different)} differ, draft input {draft_inputs(undisturbed)}")
        assert ranks == {("tp0", "tp1")}
        assert different == []
        assert draft_inputs(undisturbed) == {"equal"}

    def test_conditions(self, undisturbed: Path, workshop: Workshop, scenario: Scenario) -> None:
        check_conditions(undisturbed, ENGINE.compare(workshop, (3, 6, 7), undisturbed, expected={0}), scenario)

    def test_acceptance(self, undisturbed: Path, scenario: Scenario) -> None:
        scenario.expect("the server's own counts around the capture")
        acceptance = manifest(undisturbed)["live"]["acceptance"]
        scenario.find(acceptance)
        assert acceptance["drafts"] > 0
        assert acceptance["draft_tokens"] == 3 * acceptance["drafts"]

    def test_chat_template(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        check_chat_template("vllm", server, ENGINE.target(workshop), tmp_path, scenario)

    def test_under_traffic(
        self, server: Server, workshop: Workshop, undisturbed: Path, tmp_path: Path, scenario: Scenario
    ) -> None:
        def send(token_ids: list[int]) -> None:
            server.post("/v1/completions", {"model": "target", "prompt": token_ids, "max_tokens": 8, "temperature": 0})

        check_under_traffic(ENGINE, server, workshop, undisturbed, tmp_path, send, scenario)

    def test_partial_sums(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        scenario.expect("a tap before the all-reduce of the MLP: rank-partial")
        with fault(server, "partial"):
            ENGINE.capture(server, workshop, tmp_path / "live", expected={0, 1})
        ran = ENGINE.compare(workshop, (3, 6, 7), tmp_path / "live", expected={1})
        scenario.find(f"{ran.errors}: {ran.result['findings'][0]['message'][:160]}")
        assert ran.errors == ["rank-partial"]

    def test_sharded(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        scenario.expect("each rank holds half of the hidden dimension: rank-sharded")
        with fault(server, "sharded"):
            ENGINE.capture(server, workshop, tmp_path / "live", expected={0, 1})
        ran = ENGINE.compare(workshop, (3, 6, 7), tmp_path / "live", expected={1})
        scenario.find(f"{ran.errors}: {ran.result['findings'][0]['message'][:160]}")
        assert ran.errors == ["rank-sharded"]

    def test_diverged(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        scenario.expect(f"rank-divergence from position {FIRST_DIVERGED} on (a patch makes it)")
        with fault(server, "diverged"):
            ENGINE.capture(server, workshop, tmp_path / "live", expected={1})
        ran = ENGINE.compare(workshop, (3, 6, 7), tmp_path / "live", expected={1})
        found = ran.finding("rank-divergence") if "rank-divergence" in ran.errors else {}
        scenario.find(f"{ran.errors}: {found.get('message')}")
        assert ran.errors == ["rank-divergence"]
        assert f"position {FIRST_DIVERGED}" in found["message"]

    def test_sampling(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        scenario.expect(
            "at temperature 0.6 the ranks sample different tokens: rank-divergence with the first request and position,"
            " exit 1; greedily they choose the same, exit 0"
        )
        words = ENGINE.words(server, workshop, "--conditions", "generate", "--generate", str(GENERATED))
        greedy = run_json(*words, "--output", str(tmp_path / "greedy"), expected={0})
        sampled = run_json(*words, "--output", str(tmp_path / "sampled"), "--temperature", "0.6", expected={0, 1})
        alike, other = chosen_tokens(tmp_path / "greedy"), chosen_tokens(tmp_path / "sampled")
        found = sampled.finding("rank-divergence") if "rank-divergence" in sampled.errors else {}
        scenario.find(
            f"greedy {greedy.errors}, {sum(a == b for _, _, a, b in alike)} of {len(alike)} sequences alike, of"
            f" {sorted({len(a) for _, _, a, _ in alike})} tokens; 0.6 {sampled.errors}: {found.get('message')}"
        )
        assert "rank-divergence" not in [finding["name"] for finding in greedy.result["findings"]]
        assert greedy.errors == []
        assert unequal_ranks(tmp_path / "greedy" / "conditions" / "generate") == []
        assert len(alike) == len(LENGTHS)
        # At a temperature an answer may end with its first token; that is told, and no other reason is.
        ended = manifest(tmp_path / "sampled" / "conditions" / "generate")["live"]["incomplete"]
        assert len(other) == len(LENGTHS) - len(ended) >= len(LENGTHS) / 2
        assert {each["reason"] for each in ended} <= {"its answer has one token, and the last one is never computed"}
        assert all(first == second for _, _, first, second in alike)
        assert sampled.errors == ["rank-divergence"]
        # By the files themselves, in the order in which the sequences were sent.
        places = [(name, at + place) for name, at, a, b in other if (place := differing(a, b)) is not None]
        told = found["evidence"]["generated"]
        assert [(each["sequence"], each["position"]) for each in told["first"]] == places[: len(told["first"])]
        assert told["diverged_sequences"] == len(places)
        assert f"first in {places[0][0]} at position {places[0][1]}" in found["message"]
        compared = ENGINE.compare(workshop, (3, 6, 7), tmp_path / "sampled", expected={1})
        assert compared.errors == ["rank-divergence"]

    def test_full_disk(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        check_full_disk("vllm", server, workshop, tmp_path, scenario)

    def test_killed(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        check_killed("vllm", server, workshop, tmp_path, scenario)


class TestUnsortedIds:
    """Native classes concatenate in the order of their layers; compiled, where there is a compiler."""

    def test_native_order(self, vllm: Path, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        eager = shutil.which("g++") is None
        mode = "eager, there is no g++" if eager else "compiled"
        scenario.expect(f"live (3, 6, 7), slot-order against a head trained on (7, 3, 6); {mode}")
        draft = ENGINE.draft(workshop, "unsorted", top_level([7, 3, 6]))
        server = launch(vllm, workshop, draft, tmp_path, *(["--enforce-eager"] if eager else []))
        found = ENGINE.wirings(server, workshop, draft, (7, 3, 6), tmp_path / "live", expected={1})
        settings = manifest(tmp_path / "live")["live"]["settings"]
        scenario.find(f"{found}; enforce_eager {settings['enforce_eager']}")
        found.check([3, 6, 7])
        assert found.compared.errors == ["slot-order"]
        assert settings["enforce_eager"] is eager

    def test_transformers_order(self, vllm: Path, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        scenario.expect("--model-impl transformers keeps the list's order: live (7, 3, 6), pass")
        draft = ENGINE.draft(workshop, "unsorted", top_level([7, 3, 6]))
        engine = ENGINE.with_engine(f"vllm@{VLLM}:runner=v1,impl=transformers")
        server = launch(vllm, workshop, draft, tmp_path, "--enforce-eager", "--model-impl", "transformers")
        found = engine.wirings(server, workshop, draft, (7, 3, 6), tmp_path / "live", expected={0})
        scenario.find(found)
        found.check([7, 3, 6])


@pytest.mark.full
class TestOtherIds:
    """Ids as other engines and trainers write them, against a head trained on (3, 6, 7)."""

    @pytest.mark.parametrize(
        ("name", "settings", "wiring", "errors"),
        [
            ("off-by-one", {"eagle_aux_hidden_state_layer_ids": [2, 5, 6]}, [2, 5, 6], {"layer-mismatch"}),
            ("nested", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 6, 7]}}, [3, 6, 7], set()),
            ("absent", {}, [2, 4, 5], {"layer-mismatch"}),
        ],
        ids=["off-by-one", "nested", "absent"],
    )
    def test_wiring(
        self,
        vllm: Path,
        workshop: Workshop,
        tmp_path: Path,
        scenario: Scenario,
        name: str,
        settings: dict[str, Any],
        wiring: list[int],
        errors: set[str],
    ) -> None:
        scenario.expect(f"live {wiring}, {', '.join(errors) or 'pass'}")
        draft = ENGINE.draft(workshop, name, settings)
        server = launch(vllm, workshop, draft, tmp_path, "--enforce-eager")
        status = {1} if errors else {0}
        found = ENGINE.wirings(server, workshop, draft, (3, 6, 7), tmp_path / "live", expected=status)
        scenario.find(found)
        found.check(wiring)
        assert set(found.compared.errors) == errors
