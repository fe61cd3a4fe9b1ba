"""SGLang servers, tensor-parallel over two ranks, with EAGLE-3 drafts: each class is one launch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from eagle_parity.capture.launching import EXPORTED_NAME
from eagle_parity.capture.spool.folder import SPOOL_ENV
from live.captures import CapturedEngine, draft_inputs, manifest, unequal_ranks
from live.conftest import SGLANG
from live.mishaps import (
    check_chat_template,
    check_conditions,
    check_full_disk,
    check_killed,
    check_under_traffic,
    files_left,
)
from live.servers import STAND_INS, WORKER_PATCHES, Server, sglang_hook, sglang_server
from live.tool import run_json
from live.workshop import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from live.scenarios import Scenario
    from live.workshop import Workshop

ENGINE = CapturedEngine("sglang", f"sglang@{SGLANG}", "bfloat16", names_spool=False)


def nested(ids: list[int]) -> dict[str, Any]:
    """The key that SGLang reads."""
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True}}


def plain_server(python: Path, workshop: Workshop, draft: Path, folder: Path, *, family: str = "llama") -> Server:
    """A server with the hook and no options of its own."""
    hook = sglang_hook(SGLANG, folder / "spool")
    return sglang_server(python, ENGINE.target(workshop, family), draft, folder, hook=hook)


class TestSpuriousEmbedding:
    """The founding story: ids [-1, 2, 5], a head trained on 3, 6 and 7. The hook is the exported file."""

    @pytest.fixture(scope="class")
    @classmethod
    def draft(cls, workshop: Workshop) -> Path:
        return ENGINE.draft(workshop, "minus-one", nested([-1, 2, 5]))

    @pytest.fixture(scope="class")
    @classmethod
    def server(
        cls, sglang: Path, workshop: Workshop, draft: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Server]:
        folder = tmp_path_factory.mktemp("sglang-spurious")
        (folder / "hook").mkdir()
        hook = sglang_hook(SGLANG, folder / "spool", exported_to=folder / "hook" / EXPORTED_NAME)
        # The package of this name comes first and can't be imported: the exported file has to do without it.
        (folder / "hook" / "eagle_parity").mkdir()
        (folder / "hook" / "eagle_parity" / "__init__.py").write_text("raise ImportError('not installed')\n", "utf-8")
        path = os.pathsep.join(str(each) for each in (folder / "hook", *STAND_INS, WORKER_PATCHES))
        target = ENGINE.target(workshop)
        with sglang_server(sglang, target, draft, folder, hook=hook, environment={"PYTHONPATH": path}) as server:
            yield server

    def test_spurious_embedding(
        self, server: Server, workshop: Workshop, draft: Path, tmp_path: Path, scenario: Scenario
    ) -> None:
        scenario.expect("spurious-embedding in slot 0, exit 1; live wiring (0, 3, 6) as check-config foresaw")
        shards = workshop.shards("llama", "bfloat16", (3, 6, 7))
        recorded = ENGINE.capture(server, workshop, tmp_path / "live", "--replay", str(shards))
        reference = str(workshop.reference("llama", "bfloat16"))
        ran = run_json("diff-captures", str(shards), str(tmp_path / "live"), "--reference", reference, expected={1})
        live = ran.result["wiring"]["live"]
        foreseen, errors = ENGINE.served(workshop, draft, (3, 6, 7), expected={1})
        scenario.find(
            f"{ran.errors}, exit 1; live {live}, layer set {recorded['measurements']['layer_set']};"
            f" foreseen {foreseen} {errors}"
        )
        assert ran.errors == errors == ["spurious-embedding"]
        assert ran.finding("spurious-embedding")["slot"] == 0
        assert live == recorded["measurements"]["slots"] == foreseen == [0, 3, 6]

    def test_exported_hook(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        scenario.expect("the exported file records on both ranks where the package can't be imported")
        recorded = ENGINE.capture(server, workshop, tmp_path / "live", "--sequences", "2")
        scenario.find(f"{recorded['measurements']['sequences']} sequences of ranks {recorded['measurements']['ranks']}")
        assert recorded["measurements"]["ranks"] == ["tp0", "tp1"]
        assert recorded["measurements"]["sequences"] == 2


class TestRightIds:
    """Ids that mean what the head was trained on; a prefix cache, chunks of 64 tokens, other people's traffic."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("sglang-right")

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, sglang: Path, workshop: Workshop, folder: Path) -> Iterator[Server]:
        target, draft = ENGINE.target(workshop), ENGINE.draft(workshop, "right", nested([2, 5, 6]))
        hook = sglang_hook(SGLANG, folder / "spool")
        options = ["--chunked-prefill-size", str(CHUNK)]
        with sglang_server(sglang, target, draft, folder, hook=hook, options=options) as server:
            yield server

    @pytest.fixture(scope="class")
    @classmethod
    def undisturbed(cls, server: Server, workshop: Workshop, folder: Path) -> Path:
        ENGINE.capture(server, workshop, folder / "undisturbed", "--conditions", "batch,chunk,prefix")
        return folder / "undisturbed"

    def test_parity(self, undisturbed: Path, workshop: Workshop, scenario: Scenario) -> None:
        scenario.expect("pass, exit 0, live (3, 6, 7)")
        ran = ENGINE.compare(workshop, (3, 6, 7), undisturbed, expected={0})
        scenario.find(f"{ran.result['verdict']}, exit {ran.status}, live {ran.result['wiring']['live']}")
        assert ran.result["verdict"] == "pass"
        assert ran.result["wiring"]["live"] == [3, 6, 7]

    def test_ranks(self, undisturbed: Path, scenario: Scenario) -> None:
        scenario.expect("both ranks have every sequence, bit for bit the same")
        ranks = {tuple(sequence["ranks"]) for sequence in manifest(undisturbed)["sequences"]}
        different = unequal_ranks(undisturbed)
        scenario.find(
            f"{len(manifest(undisturbed)['sequences'])} sequences of {sorted(ranks)}, {len(different)} differ"
        )
        assert ranks == {("tp0", "tp1")}
        assert different == []

    def test_draft_input(self, undisturbed: Path, scenario: Scenario) -> None:
        scenario.expect("what fc got is the slots side by side, bit for bit")
        scenario.find(draft_inputs(undisturbed))
        assert draft_inputs(undisturbed) == {"equal"}

    def test_conditions(self, undisturbed: Path, workshop: Workshop, scenario: Scenario) -> None:
        check_conditions(undisturbed, ENGINE.compare(workshop, (3, 6, 7), undisturbed, expected={0}), scenario)

    def test_acceptance(self, undisturbed: Path, scenario: Scenario) -> None:
        scenario.expect("drafts, drafted and accepted tokens of the capture's own requests")
        acceptance = manifest(undisturbed)["live"]["acceptance"]
        scenario.find(acceptance)
        assert acceptance["drafts"] > 0
        assert acceptance["draft_tokens"] == 3 * acceptance["drafts"]
        assert 0 <= acceptance["accepted_tokens"] <= acceptance["draft_tokens"]
        assert not acceptance["other_traffic"]

    def test_chat_template(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        check_chat_template("sglang", server, ENGINE.target(workshop), tmp_path, scenario)

    def test_under_traffic(
        self, server: Server, workshop: Workshop, undisturbed: Path, tmp_path: Path, scenario: Scenario
    ) -> None:
        def send(token_ids: list[int]) -> None:
            server.post(
                "/generate", {"input_ids": token_ids, "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
            )

        check_under_traffic(ENGINE, server, workshop, undisturbed, tmp_path, send, scenario)

    def test_foreign_requests(self, server: Server, scenario: Scenario) -> None:
        scenario.expect("requests without the token's signature leave no file")
        for identifier in ("somebody-else", "eagle-parity.0123456789ab.0123456789abcdef01234567.0"):
            body = {"input_ids": [1, 2, 3], "rid": identifier, "sampling_params": {"max_new_tokens": 2}}
            server.post("/generate", body)
        left = files_left(server)
        scenario.find(left)
        assert left == ["token"]

    def test_full_disk(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        check_full_disk("sglang", server, workshop, tmp_path, scenario)

    def test_killed(self, server: Server, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        check_killed("sglang", server, workshop, tmp_path, scenario)


class TestDeepseek:
    """Latent attention, whose class reads ids in its own way; the hook comes as a plugin, without a flag."""

    @pytest.fixture(scope="class")
    @classmethod
    def spool(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("sglang-deepseek") / "spool"

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, sglang: Path, workshop: Workshop, spool: Path) -> Iterator[Server]:
        target, draft = ENGINE.target(workshop, "deepseek"), ENGINE.draft(workshop, "deepseek", nested([2, 5, 7]))
        flags = sglang_hook(SGLANG, spool)
        hook = flags[flags.index("--forward-hooks") + 2 :]
        environment = {SPOOL_ENV: str(spool), "EAGLE_PARITY_TEST_MLA": "1"}
        with sglang_server(sglang, target, draft, spool.parent, hook=hook, environment=environment) as server:
            yield server

    def test_first_id_rule(
        self, server: Server, spool: Path, workshop: Workshop, tmp_path: Path, scenario: Scenario
    ) -> None:
        scenario.expect("live (2, 5, 7): this release adds one only where the first id is 1; plugin, no flag")
        recorded = ENGINE.capture(server, workshop, tmp_path / "live", "--spool", str(spool))["measurements"]
        ran = ENGINE.compare(workshop, (2, 5, 7), tmp_path / "live", family="deepseek", expected={0})
        draft = ENGINE.draft(workshop, "deepseek", nested([2, 5, 7]))
        foreseen, errors = ENGINE.served(workshop, draft, (2, 5, 7), family="deepseek", expected={0})
        scenario.find(
            f"{ran.result['verdict']}, live {ran.result['wiring']['live']}, foreseen {foreseen} {errors},"
            f" ranks {recorded['ranks']}, {recorded['tap']}"
        )
        assert ran.result["wiring"]["live"] == recorded["slots"] == foreseen == [2, 5, 7]
        assert unequal_ranks(tmp_path / "live") == []
        assert draft_inputs(tmp_path / "live") == {"equal"}


@pytest.mark.full
class TestTopLevelIds:
    """Ids where SGLang doesn't read them."""

    def test_default_wiring(self, sglang: Path, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        scenario.expect("live is the default (2, 4, 5), layer-mismatch, and check-config had said so")
        draft = ENGINE.draft(workshop, "top-level", {"eagle_aux_hidden_state_layer_ids": [2, 5, 6]})
        server = plain_server(sglang, workshop, draft, tmp_path)
        found = ENGINE.wirings(server, workshop, draft, (3, 6, 7), tmp_path / "live", expected={1})
        scenario.find(found)
        found.check([2, 4, 5])
        assert set(found.compared.errors) == {"layer-mismatch"}


@pytest.mark.full
class TestUnsortedIds:
    """SGLang concatenates in the order of its layers, whatever the list's."""

    def test_sorted_order(self, sglang: Path, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        scenario.expect("live (3, 6, 7), slot-order against a head trained on (7, 3, 6)")
        draft = ENGINE.draft(workshop, "unsorted", nested([6, 2, 5]))
        server = plain_server(sglang, workshop, draft, tmp_path)
        found = ENGINE.wirings(server, workshop, draft, (7, 3, 6), tmp_path / "live", expected={1})
        scenario.find(found)
        found.check([3, 6, 7])
        assert found.compared.errors == ["slot-order"]


@pytest.mark.full
class TestQwen3:
    """Another class with the same rule."""

    def test_parity(self, sglang: Path, workshop: Workshop, tmp_path: Path, scenario: Scenario) -> None:
        scenario.expect("live (3, 6, 7), pass")
        draft = ENGINE.draft(workshop, "right", nested([2, 5, 6]))
        with plain_server(sglang, workshop, draft, tmp_path, family="qwen3") as server:
            recorded = ENGINE.capture(server, workshop, tmp_path / "live")["measurements"]
        ran = ENGINE.compare(workshop, (3, 6, 7), tmp_path / "live", family="qwen3", expected={0})
        scenario.find(f"{ran.result['verdict']}, live {ran.result['wiring']['live']}, {recorded['target_class']}")
        assert ran.result["wiring"]["live"] == recorded["slots"] == [3, 6, 7]
