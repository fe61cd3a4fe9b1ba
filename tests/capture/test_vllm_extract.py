"""The hook in vLLM on a server that captures without a draft, on a worker with the attributes of vLLM's V1 runner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from located_rank import ReadRank

from eagle_parity.capture.assembly import SessionParts
from eagle_parity.capture.servers.vllm import VllmServer
from eagle_parity.capture.spool.folder import SPOOL_ENV, make_spool
from eagle_parity.capture.spool.request_ids import new_session, request_id
from eagle_parity.capture.vllm import CaptureMethods, live_objects, recorder

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN, LAYERS, TOKENS = 4, 2, 5


class Drafter:
    """Hands back the sampled token, like vLLM's ``ExtractHiddenStatesProposer``; its model combines nothing."""

    model = SimpleNamespace()

    def propose(self, sampled_token_ids: torch.Tensor) -> torch.Tensor:
        return sampled_token_ids


class Runner:
    def __init__(self, rid: str) -> None:
        self.drafter = Drafter()
        self.model = SimpleNamespace(model=SimpleNamespace(aux_hidden_state_layers=(0, 1, 2)))
        self.input_batch = SimpleNamespace(req_ids=[rid], num_prompt_tokens=[TOKENS])
        self.input_ids = SimpleNamespace(gpu=torch.arange(TOKENS + 1))

    def _get_positions(self, count: int) -> torch.Tensor:
        return torch.arange(count)

    def propose_draft_token_ids(
        self, hidden_states: torch.Tensor, aux_hidden_states: list[torch.Tensor], common_attn_metadata: Any
    ) -> str:
        del hidden_states, aux_hidden_states, common_attn_metadata
        return "drafts"


def make_worker(rid: str, method: str) -> Any:
    model_config = SimpleNamespace(
        hf_config=None,
        get_total_num_hidden_layers=lambda: LAYERS,
        get_hidden_size=lambda: HIDDEN,
        dtype=torch.float32,
        enforce_eager=True,
        model="target",
        quantization=None,
    )
    config = SimpleNamespace(
        model_config=model_config,
        compilation_config=SimpleNamespace(),
        cache_config=SimpleNamespace(enable_prefix_caching=True),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=64),
        speculative_config=SimpleNamespace(method=method, model=method),
    )
    return SimpleNamespace(model_runner=Runner(rid), vllm_config=config)


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SPOOL_ENV, str(tmp_path))
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)
    sizes = dict.fromkeys(("tp_size", "pp_size", "dp_size"), 1) | dict.fromkeys(("tp_rank", "pp_rank", "dp_rank"), 0)
    monkeypatch.setattr(recorder, "parallel_facts", lambda _worker: sizes)
    return tmp_path


def test_a_server_without_a_draft_records_a_reference(spool: Path) -> None:
    session = new_session()
    worker = make_worker(request_id(make_spool(spool), session, 0), live_objects.EXTRACT)
    methods = CaptureMethods
    facts = methods.eagle_parity_start(worker)
    assert "error" not in facts
    assert "draft" not in facts
    assert facts["target"]["layer_set"] == {"list": [0, 1, 2]}
    # Nothing of the drafter is wrapped: there is no fc.
    assert "propose" not in vars(worker.model_runner.drafter)

    states = [torch.full((TOKENS + 1, HIDDEN), float(boundary)) for boundary in range(LAYERS + 1)]
    metadata = SimpleNamespace(num_actual_tokens=TOKENS + 1, query_start_loc_cpu=torch.tensor([0, TOKENS + 1]))
    assert worker.model_runner.propose_draft_token_ids(states[0], states, metadata) == "drafts"
    assembled = ReadRank(SessionParts(spool / session).locate("tp0", 0, TOKENS))
    assert [float(slot[0, 0]) for slot in assembled.states] == [0.0, 1.0, 2.0]
    assert assembled.draft_input_state() == "absent"

    assert methods.eagle_parity_stop(worker)["capturing"] is False
    assert "propose_draft_token_ids" not in vars(worker.model_runner)


def test_another_method_without_a_head_is_refused(spool: Path) -> None:
    worker = make_worker(request_id(make_spool(spool), new_session(), 0), "medusa")
    assert "not an EAGLE-3 head" in CaptureMethods.eagle_parity_start(worker)["error"]
    assert "propose_draft_token_ids" not in vars(worker.model_runner)


def test_what_vllm_counts_without_a_head_is_no_acceptance() -> None:
    server = VllmServer.__new__(VllmServer)
    server.facts = [{"server": {"method": live_objects.EXTRACT}}]
    assert server.counters() is None
