"""The hook in vLLM, on objects with the names that vLLM's have: the V1 runner with its drafter, the V2 speculator."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import inspect
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from located_rank import ReadRank
from safetensors import safe_open
from torch import nn

from eagle_parity.capture.assembly import SessionParts
from eagle_parity.capture.spool.folder import SPOOL_ENV, read_token
from eagle_parity.capture.spool.request_ids import new_session, request_id
from eagle_parity.capture.vllm import CaptureEndpoint, CaptureMethods, endpoint, recorder, register, spooled_files
from eagle_parity.capture.vllm.endpoint import proof
from eagle_parity.capture.vllm.facts import layer_set

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HIDDEN, SLOTS = 4, 3


class Config:
    def to_dict(self) -> dict[str, Any]:
        return {"architectures": ["LlamaForCausalLM"]}


class Target(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Module()
        vars(self.model)["aux_hidden_state_layers"] = (2, 4, 6)


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model: Any = nn.Module()
        self.model.fc = nn.Linear(SLOTS * HIDDEN, HIDDEN)

    def combine_hidden_states(self, hidden_states: torch.Tensor) -> torch.Tensor:
        combined: torch.Tensor = self.model.fc(hidden_states)
        return combined


class Drafter:
    """``SpecDecodeBaseProposer`` (``v1/spec_decode/llm_base_proposer.py``)."""

    def __init__(self) -> None:
        self.model = Head()

    def propose(
        self,
        num_speculative_tokens: int,
        target_token_ids: torch.Tensor,
        target_positions: torch.Tensor,
        target_hidden_states: torch.Tensor,
        common_attn_metadata: Any,
    ) -> torch.Tensor:
        del target_token_ids, target_positions, common_attn_metadata
        return self.model.combine_hidden_states(target_hidden_states)[:num_speculative_tokens]


class V1Runner:
    """``GPUModelRunner`` (``v1/worker/gpu_model_runner.py``)."""

    def __init__(self) -> None:
        self.model = Target()
        self.drafter = Drafter()
        self.input_ids = SimpleNamespace(gpu=torch.zeros(64, dtype=torch.int32))
        self.positions = torch.zeros(64, dtype=torch.int64)
        self.mrope = False
        self.padded_batch = True
        self.input_batch = SimpleNamespace(req_ids=[], num_prompt_tokens=np.zeros(8, dtype=np.int32))

    def get_model(self) -> nn.Module:
        return self.model

    def _get_positions(self, num_tokens: int) -> torch.Tensor:
        positions = self.positions[:num_tokens]
        return positions.expand(3, -1) if self.mrope else positions

    def propose_draft_token_ids(  # noqa: PLR0917  as vLLM has it
        self,
        scheduler_output: Any,
        hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        common_attn_metadata: Any,
        sampled_token_ids: Any = None,
        spec_decode_metadata: Any = None,
    ) -> torch.Tensor:
        del sampled_token_ids, spec_decode_metadata
        count = scheduler_output.total_num_scheduled_tokens
        return self.drafter.propose(
            2,
            self.input_ids.gpu[:count],
            self._get_positions(count),
            torch.cat([state[:count] for state in aux_hidden_states or [hidden_states]], dim=-1),
            common_attn_metadata,
        )

    def step(
        self, spans: Sequence[tuple[str, int, int, int]], *, padding: int = 0, sampled: Sequence[Sequence[int]] = ()
    ) -> torch.Tensor:
        """One forward; of each request the first and the last position, and the length of its prompt."""
        drafts = SimpleNamespace(
            num_draft_tokens=[max(0, stop - max(start, prompt) - 1) for _, start, stop, prompt in spans]
        )
        widest = max((len(row) for row in sampled), default=0)
        # As the rejection sampler leaves it: -1 behind what was sampled.
        chosen = torch.tensor([[*row, *[-1] * (widest - len(row))] for row in sampled]) if sampled else None
        positions = torch.cat([torch.arange(start, stop) for _, start, stop, _ in spans])
        count = len(positions)
        self.positions[:count] = positions
        self.input_ids.gpu[:count] = positions.int() + 100
        self.input_batch.req_ids = [name for name, *_ in spans]
        self.input_batch.num_prompt_tokens[: len(spans)] = [prompt for *_, prompt in spans]
        starts = torch.tensor([0, *np.cumsum([stop - start for _, start, stop, _ in spans])])
        metadata = SimpleNamespace(query_start_loc_cpu=starts, num_actual_tokens=count)
        return self.propose_draft_token_ids(
            SimpleNamespace(total_num_scheduled_tokens=count),
            torch.zeros(count + padding, HIDDEN),
            states(positions, padding),
            metadata,
            chosen if self.padded_batch or not sampled else [list(row) for row in sampled],
            drafts if any(drafts.num_draft_tokens) else None,
        )


class Speculator:
    """``BaseSpeculator`` (``v1/worker/gpu/spec_decode/speculator.py``)."""

    def __init__(self) -> None:
        self.model = Head()

    def propose(  # noqa: PLR0917  as vLLM has it
        self,
        input_batch: Any,
        last_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        num_rejected: torch.Tensor | None = None,
        last_sampled: torch.Tensor | None = None,
        dummy_run: bool = False,
        is_profile: bool = False,
    ) -> torch.Tensor:
        del dummy_run, is_profile, input_batch, num_rejected, last_sampled
        return self.model.combine_hidden_states(torch.cat(aux_hidden_states or [last_hidden_states], dim=-1))


class V2Runner:
    """``GPUModelRunner`` (``v1/worker/gpu/model_runner.py``)."""

    def __init__(self) -> None:
        self.model = Target()
        self.speculator = Speculator()

    def get_model(self) -> nn.Module:
        return self.model

    def step(
        self,
        spans: Sequence[tuple[str, int, int, int]],
        *,
        padding: int = 0,
        sampled: Sequence[Sequence[int]] = (),
        **more: Any,
    ) -> torch.Tensor:
        positions = torch.cat([torch.arange(start, stop) for _, start, stop, _ in spans])
        padded = torch.cat([positions, torch.zeros(padding, dtype=torch.int64)])
        batch = SimpleNamespace(
            # Behind num_reqs stand the dummies that pad the batch.
            req_ids=[*(name for name, *_ in spans), "dummy"],
            num_reqs=len(spans),
            query_start_loc_np=np.cumsum([0, *(stop - start for _, start, stop, _ in spans), padding]),
            prefill_len_np=np.array([prompt for *_, prompt in spans] + [0]),
            input_ids=padded.int() + 100,
            positions=padded,
            # Requests stand elsewhere in the runner's own tables.
            idx_mapping=torch.arange(len(spans) + 1).flip(0) + 3,
        )
        if sampled:
            drafted = [max(0, stop - max(start, prompt) - 1) for _, start, stop, prompt in spans]
            rejected = [count + 1 - len(row) for count, row in zip(drafted, sampled, strict=True)]
            last = torch.zeros(16, dtype=torch.int64)
            last[batch.idx_mapping[: len(spans)]] = torch.tensor([row[-1] for row in sampled])
            more |= {"num_rejected": torch.tensor([*rejected, 0]), "last_sampled": last}
        return self.speculator.propose(batch, torch.zeros(len(padded), HIDDEN), states(positions, padding), **more)


def states(positions: torch.Tensor, padding: int) -> list[torch.Tensor]:
    rows = torch.cat([positions, torch.zeros(padding, dtype=torch.int64)])[:, None].float()
    return [rows + torch.arange(HIDDEN) / 10 + slot for slot in range(SLOTS)]


def worker_of(runner: Any) -> Any:
    model = SimpleNamespace(
        hf_config=Config(),
        get_total_num_hidden_layers=lambda: 8,
        get_hidden_size=lambda: HIDDEN,
        dtype=torch.float32,
        enforce_eager=True,
        model="target",
        quantization=None,
    )
    config = SimpleNamespace(
        model_config=model,
        cache_config=SimpleNamespace(enable_prefix_caching=True),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=64),
        compilation_config=SimpleNamespace(mode=3, cudagraph_mode=None),
        parallel_config=SimpleNamespace(data_parallel_size=1, data_parallel_rank=0),
        speculative_config=SimpleNamespace(
            method="eagle3", model="head", draft_model_config=SimpleNamespace(hf_config=Config())
        ),
    )

    class Worker(CaptureMethods):
        model_runner = runner
        vllm_config = config

    return Worker()


class Session:
    def __init__(self, spool: Path) -> None:
        self.spool, self.name = spool, new_session()

    def rid(self, number: int) -> str:
        return f"cmpl-{request_id(read_token(self.spool), self.name, number)}-0-1a2b3c4d"

    @property
    def parts(self) -> SessionParts:
        return SessionParts(self.spool / self.name)

    @property
    def content(self) -> Any:
        return self.parts.ranks["tp1"].content

    def whole(self, number: int, tokens: int, first: int = 0) -> ReadRank:
        return ReadRank(self.parts.locate("tp1", number, tokens, first=first))


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parts of vLLM that the hook asks for its rank: one of two."""
    state = ModuleType("vllm.distributed.parallel_state")
    pipeline = SimpleNamespace(world_size=1, rank_in_group=0)
    vars(state).update(
        get_tensor_model_parallel_world_size=lambda: 2,
        get_tensor_model_parallel_rank=lambda: 1,
        get_pp_group=lambda: pipeline,
    )
    distributed = ModuleType("vllm.distributed")
    vars(distributed)["parallel_state"] = state
    for module in (ModuleType("vllm"), distributed, state):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv(SPOOL_ENV, str(tmp_path / "spool"))
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)
    return tmp_path / "spool"


@pytest.fixture(params=["v1", "v2"])
def server(request: pytest.FixtureRequest, spool: Path) -> tuple[Any, Any, Session]:
    runner: Any = V1Runner() if request.param == "v1" else V2Runner()
    worker = worker_of(runner)
    started = worker.eagle_parity_start()
    assert "error" not in started, started
    return worker, runner, Session(spool)


def test_facts_of_the_live_objects(server: tuple[Any, Any, Session]) -> None:
    worker, runner, _ = server
    facts = worker.eagle_parity_info()
    assert facts["target"]["layer_set"] == {"list": [2, 4, 6]}
    assert facts["parallel"] == {"tp_size": 2, "tp_rank": 1, "pp_size": 1, "pp_rank": 0, "dp_size": 1, "dp_rank": 0}
    assert facts["server"]["runner"] == ("v1" if isinstance(runner, V1Runner) else "v2")
    assert facts["draft"]["fc_weight"] == [HIDDEN, SLOTS * HIDDEN]
    assert facts["capturing"] is True
    assert json.loads(json.dumps(facts)) == facts


def test_chunks_batches_and_other_people(server: tuple[Any, Any, Session]) -> None:
    _, runner, session = server
    runner.step([("other", 0, 3, 3), (session.rid(0), 0, 4, 7), (session.rid(1), 0, 2, 6)])
    runner.step([(session.rid(1), 2, 6, 6), ("other", 3, 5, 3), (session.rid(0), 4, 7, 7)], padding=3)
    runner.step([("other", 5, 9, 3)])
    for number, tokens in ((0, 7), (1, 6)):
        assembled = session.whole(number, tokens)
        assert assembled.token_ids.tolist() == [100 + position for position in range(tokens)]
        assert torch.equal(torch.stack(assembled.slots), torch.stack(states(torch.arange(tokens), 0)))
        assert assembled.draft_input_state() == "equal"
    assert session.content["tokens"] == 13
    assert session.parts.shape_of("tp1", 0) == (2, 0, False)


def test_generated_tokens_are_counted_not_stored(server: tuple[Any, Any, Session]) -> None:
    _, runner, session = server
    runner.step([(session.rid(0), 0, 3, 3)])
    runner.step([(session.rid(0), 3, 6, 3)])
    # A chunk's end with drafts behind it.
    runner.step([(session.rid(1), 0, 5, 4)])
    assert session.content["tokens"] == 7
    assert session.content["skipped"] == {"rows of generated tokens": 4}
    assert session.whole(1, 4).forwards == 1


def generating(runner: Any, spool: Path) -> Session:
    started = worker_of(runner).eagle_parity_start(generated=True)
    assert "error" not in started, started
    return Session(spool)


def chosen(session: Session, number: int, first: int, tokens: int = 99) -> ReadRank:
    assembled = ReadRank(session.parts.locate_generated("tp1", number, first, tokens))
    assert assembled.sampled_ids is not None
    return assembled


@pytest.mark.parametrize("kind", ["v1", "v1-lists", "v2"])
def test_rows_of_generated_tokens_that_were_accepted(spool: Path, kind: str) -> None:
    runner: Any = V2Runner() if kind == "v2" else V1Runner()
    if kind == "v1-lists":
        runner.padded_batch = False
    session = generating(runner, spool)
    runner.step([("other", 0, 3, 3), (session.rid(0), 0, 3, 3)], sampled=[[7], [103]])
    # Two drafts behind the first token, both rejected; then two of three accepted; then no drafts.
    runner.step([(session.rid(0), 3, 6, 3)], sampled=[[204]])
    runner.step([(session.rid(0), 4, 8, 3), ("other", 3, 5, 3)], sampled=[[105, 106, 207], [8]], padding=2)
    runner.step([("other", 4, 7, 3), (session.rid(0), 7, 8, 3)], sampled=[[9, 9, 9], [208]])
    assembled = chosen(session, 0, 3)
    assert assembled.token_ids.tolist() == [103, 104, 105, 106, 107]
    assert assembled.sampled_ids is not None
    assert assembled.sampled_ids.tolist() == [204, 105, 106, 207, 208]
    assert torch.equal(torch.stack(assembled.slots), torch.stack(states(torch.arange(3, 8), 0)))
    assert session.whole(0, 3).sampled_ids is None
    assert session.content["skipped"] == {"rows of rejected drafts": 3}
    assert session.content["tokens"] == 8
    assert chosen(session, 0, 3, 2).token_ids.tolist() == [103, 104]
    assert session.parts.generated_forwards("tp1", 0) == 3


def test_a_request_that_was_preempted_computes_its_tokens_again(spool: Path) -> None:
    runner = V1Runner()
    session = generating(runner, spool)
    runner.step([(session.rid(0), 0, 3, 3)], sampled=[[103]])
    runner.step([(session.rid(0), 3, 4, 3)], sampled=[[104]])
    metadata = SimpleNamespace(query_start_loc_cpu=torch.tensor([0, 5]), num_actual_tokens=5)
    runner.positions[:5] = torch.arange(5)
    runner.input_ids.gpu[:5] = torch.arange(5).int() + 100
    runner.propose_draft_token_ids(
        SimpleNamespace(total_num_scheduled_tokens=5),
        torch.zeros(5, HIDDEN),
        states(torch.arange(5), 0),
        metadata,
        torch.tensor([[105]]),
    )
    assert session.whole(0, 3).forwards == 2
    assert chosen(session, 0, 3).token_ids.tolist() == [103, 104]


def test_a_row_that_a_rank_rejected_ends_the_run(spool: Path) -> None:
    runner = V1Runner()
    session = generating(runner, spool)
    runner.step([(session.rid(0), 3, 6, 3)], sampled=[[204]])
    # The scheduler, which asks the first rank, goes on behind what that one accepted.
    runner.step([(session.rid(0), 6, 7, 3)], sampled=[[107]])
    assert chosen(session, 0, 3).token_ids.tolist() == [103]
    assert str(session.parts.locate_generated("tp1", 0, 7, 5)) == "no row of a generated token"


def test_the_limit_counts_generated_rows(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLE_PARITY_MAX_TOKENS", "4")
    runner = V1Runner()
    session = generating(runner, spool)
    runner.step([(session.rid(0), 0, 3, 3)], sampled=[[103]])
    for position in range(3, 6):
        runner.step([(session.rid(0), position, position + 1, 3)], sampled=[[101 + position]])
    assert session.content["tokens"] == 4
    assert session.content["limit"] == "max_tokens=4"


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_a_limit_is_told_in_the_forward_that_reaches_it(
    spool: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("EAGLE_PARITY_MAX_TOKENS", "5")
    runner: Any = V1Runner() if kind == "v1" else V2Runner()
    assert "error" not in worker_of(runner).eagle_parity_start()
    session = Session(spool)
    runner.step([(session.rid(0), 0, 4, 4)])
    assert session.content["limit"] is None
    told: list[Any] = []
    drafter = runner.drafter if kind == "v1" else runner.speculator
    combine = drafter.model.combine_hidden_states

    def look(hidden_states: torch.Tensor) -> Any:
        told.append(session.content)
        return combine(hidden_states)

    monkeypatch.setitem(vars(drafter.model), "combine_hidden_states", look)
    runner.step([(session.rid(1), 0, 3, 3)])
    assert [record["limit"] for record in told] == ["max_tokens=5"]  # before the draft runs
    assert session.content["skipped"] == {"rows beyond the limit": 3}
    assert (session.content["parts"], session.content["tokens"]) == (2, 4)


def test_generated_rows_can_be_asked_for_later(server: tuple[Any, Any, Session]) -> None:
    worker, runner, session = server
    for _ in range(2):
        assert "error" not in worker.eagle_parity_start(generated=True)
    runner.step([(session.rid(0), 3, 4, 3)], sampled=[[104]])
    assert chosen(session, 0, 3).forwards == 1
    worker.eagle_parity_stop()
    drafter = runner.drafter if isinstance(runner, V1Runner) else runner.speculator
    for owner in (runner, drafter, drafter.model):
        assert not {"propose", "propose_draft_token_ids", "combine_hidden_states"} & set(vars(owner))


def test_a_release_that_doesnt_say_what_it_sampled_is_refused_for_generated_rows_alone(spool: Path) -> None:
    class Other(Speculator):
        def propose(  # type: ignore[override]  # an older one
            self, input_batch: Any, last_hidden_states: torch.Tensor, aux_hidden_states: Any
        ) -> torch.Tensor:
            return super().propose(input_batch, last_hidden_states, aux_hidden_states)

    runner = V2Runner()
    runner.speculator = Other()
    worker = worker_of(runner)
    assert "has no num_rejected" in worker.eagle_parity_start(generated=True)["error"]
    assert "error" not in worker.eagle_parity_start()
    assert not spool.joinpath("x").exists()


def test_dummy_runs_are_left_out(spool: Path) -> None:
    runner = V2Runner()
    assert "error" not in worker_of(runner).eagle_parity_start()
    session = Session(spool)
    runner.step([(session.rid(0), 0, 3, 3)], dummy_run=True)
    runner.step([(session.rid(0), 0, 3, 3)], is_profile=True)
    assert not (spool / session.name).exists()


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_nothing_is_kept_when_the_step_is_through(spool: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    runner: Any = V1Runner() if kind == "v1" else V2Runner()
    worker = worker_of(runner)
    assert "error" not in worker.eagle_parity_start()
    session = Session(spool)
    recording = vars(worker)["_eagle_parity"]._recording
    head = runner.drafter.model if kind == "v1" else runner.speculator.model
    held: list[bool] = []

    def combine(hidden_states: torch.Tensor) -> torch.Tensor:
        held.append(recording._rows is not None)
        if len(held) > 1:
            raise RuntimeError("out of memory")
        return hidden_states

    # The head combines in a way of its own, so that nothing takes what was kept for its states.
    monkeypatch.setitem(vars(head), "combine_hidden_states", combine)
    runner.step([(session.rid(0), 0, 3, 3)])
    assert recording._rows is None
    with pytest.raises(RuntimeError, match="out of memory"):
        runner.step([(session.rid(0), 0, 3, 3)])
    assert recording._rows is None
    assert held == [True, True]


def test_the_rows_of_the_drafts_input_are_those_before_the_draft_ran(spool: Path) -> None:
    class Overwriting(Drafter):
        def propose(self, num_speculative_tokens: int, *arguments: Any, **named: Any) -> torch.Tensor:
            arguments[0].zero_()  # the runner's own buffer
            return super().propose(num_speculative_tokens, *arguments, **named)

    Overwriting.propose.__signature__ = inspect.signature(Drafter.propose)  # type: ignore[attr-defined]  # by name
    runner = V1Runner()
    runner.drafter = Overwriting()
    assert "error" not in worker_of(runner).eagle_parity_start()
    session = Session(spool)
    runner.step([(session.rid(0), 0, 3, 3)])
    assembled = session.whole(0, 3)
    assert assembled.token_ids.tolist() == [100, 101, 102]
    assert assembled.draft_input_state() == "equal"
    with safe_open(spool / session.name / "tp1-000001-draft.safetensors", framework="pt") as file:
        assert file.get_tensor("token_ids").tolist() == [100, 101, 102]


def test_who_wraps_around_a_capture_stays_when_it_ends(spool: Path) -> None:
    runner = V2Runner()
    worker = worker_of(runner)
    assert "error" not in worker.eagle_parity_start()
    ours = vars(runner.speculator)["propose"]
    called: list[int] = []

    def theirs(*arguments: Any, **named: Any) -> Any:
        called.append(1)
        return ours(*arguments, **named)

    vars(runner.speculator)["propose"] = theirs
    worker.eagle_parity_stop()
    session = Session(spool)
    runner.step([(session.rid(0), 0, 3, 3)])
    assert called == [1]
    assert not (spool / session.name).exists()


def test_positions_in_three_rows(spool: Path) -> None:
    runner = V1Runner()
    runner.mrope = True
    assert "error" not in worker_of(runner).eagle_parity_start()
    session = Session(spool)
    runner.step([(session.rid(0), 0, 5, 5)])
    assert session.whole(0, 5).token_ids.tolist() == [100, 101, 102, 103, 104]


def test_nothing_reaches_the_engine(server: tuple[Any, Any, Session], monkeypatch: pytest.MonkeyPatch) -> None:
    _, runner, session = server

    def broken(*_: object) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr("eagle_parity.capture.spool.session.copied_rows", broken)
    assert runner.step([(session.rid(0), 0, 3, 3)]).shape[1] == HIDDEN
    assert session.content["failures"] == ["MemoryError: none left"]


@pytest.mark.parametrize("gone", ["num_prompt_tokens", "prefill_len_np"])
def test_a_batch_that_is_unknown_is_refused_in_the_record(spool: Path, gone: str) -> None:
    runner: Any = V1Runner() if gone == "num_prompt_tokens" else V2Runner()
    assert "error" not in worker_of(runner).eagle_parity_start()
    session = Session(spool)
    batch = SimpleNamespace(req_ids=[session.rid(0)], num_reqs=1, query_start_loc_np=[0, 3])
    if gone == "num_prompt_tokens":
        runner.input_batch = batch
        metadata = SimpleNamespace(query_start_loc_cpu=[0, 3], num_actual_tokens=3)
        count = SimpleNamespace(total_num_scheduled_tokens=3)
        runner.propose_draft_token_ids(count, torch.zeros(3, HIDDEN), states(torch.arange(3), 0), metadata)
    else:
        runner.speculator.propose(batch, torch.zeros(3, HIDDEN), states(torch.arange(3), 0))
    assert "isn't read as the hook knows" in session.content["failures"][0]
    assert gone in session.content["failures"][0]


def test_a_release_whose_methods_are_unknown_is_refused_at_the_start() -> None:
    class Other:
        model = Head()

        def propose(self, batch: Any, states: Any) -> Any:
            return batch, states

    runner: Any = V2Runner()
    runner.speculator = Other()
    worker = worker_of(runner)
    assert "Other.propose of vLLM None has no input_batch" in worker.eagle_parity_start()["error"]
    assert "propose" not in vars(runner.speculator)
    assert worker.eagle_parity_info()["capturing"] is False


@pytest.mark.parametrize(
    ("runner", "told"),
    [
        (SimpleNamespace(), "no draft head"),
        (SimpleNamespace(drafter=SimpleNamespace(propose=len, model=None)), "EAGLE-3"),
    ],
)
def test_a_server_without_a_head_says_so(runner: Any, told: str) -> None:
    runner.model = Target()
    assert told in worker_of(runner).eagle_parity_start()["error"]


def test_switched_off_nothing_is_wrapped(server: tuple[Any, Any, Session]) -> None:
    worker, runner, session = server
    worker.eagle_parity_start()
    for _ in range(2):
        assert worker.eagle_parity_stop() == {"rank": "tp1", "capturing": False}
    drafter = runner.drafter if isinstance(runner, V1Runner) else runner.speculator
    for owner in (runner, drafter, drafter.model):
        assert not {"propose", "propose_draft_token_ids", "combine_hidden_states"} & set(vars(owner))
    runner.step([(session.rid(0), 0, 3, 3)])
    assert not (session.spool / session.name).exists()


def test_what_another_plugin_had_wrapped_comes_back(spool: Path) -> None:
    runner = V2Runner()
    theirs = functools.partial(runner.speculator.propose)
    vars(runner.speculator)["propose"] = theirs
    worker = worker_of(runner)
    assert "error" not in worker.eagle_parity_start()
    session = Session(spool)
    runner.step([(session.rid(0), 0, 3, 3)])
    assert session.whole(0, 3).forwards == 1
    worker.eagle_parity_stop()
    assert vars(runner.speculator)["propose"] is theirs


def test_files_come_back_in_pieces(server: tuple[Any, Any, Session], monkeypatch: pytest.MonkeyPatch) -> None:
    worker, runner, session = server
    runner.step([(session.rid(0), 0, 3, 3)])
    monkeypatch.setattr(spooled_files, "MAX_CHUNK_BYTES", 100)
    files = worker.eagle_parity_files(session.name)["files"]
    assert sorted(files) == ["tp1-000000-aux.safetensors", "tp1-000001-draft.safetensors", "tp1.json"]
    for name, size in files.items():
        data = b""
        while len(data) < size:
            data += base64.b64decode(worker.eagle_parity_read(session.name, name, len(data))["data"])
        assert data == (session.spool / session.name / name).read_bytes()


@pytest.mark.parametrize(
    ("session", "name"),
    [
        ("../../../etc", "passwd"),
        ("..", "tp1.json"),
        ("own", "../token"),
        ("own", "tp1-../../token"),
        ("own", "tp1-x/../../token.safetensors"),
        ("own", "/etc/passwd"),
        ("own", "tp0.json"),
        ("own", "tp1-000000-aux.safetensors/../tp1.json"),
        ("own", ".part-abc"),
        ("", "token"),
        ("０" * 12, "tp1.json"),  # noqa: RUF001  digits that isalnum takes
        (7, "tp1.json"),
    ],
)
def test_no_other_file_can_be_read(server: tuple[Any, Any, Session], session: Any, name: str) -> None:
    worker, runner, own = server
    runner.step([(own.rid(0), 0, 3, 3)])
    assert "data" not in worker.eagle_parity_read(own.name if session == "own" else session, name, 0)
    assert "data" in worker.eagle_parity_read(own.name, "tp1.json", 0)


class Application:
    """What ``attach_router`` uses of FastAPI."""

    def __init__(self, ranks: Sequence[Any]) -> None:
        self.ranks = ranks
        self.state = SimpleNamespace(engine_client=self)
        self.handler: Any = None

    def post(self, path: str) -> Any:
        assert path == endpoint.ROUTE
        return lambda handler: setattr(self, "handler", handler)

    async def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> list[Any]:
        return [getattr(rank, method)(**kwargs) for rank in self.ranks]

    def call(self, verb: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        async def stream() -> Any:
            yield body[:5]
            yield body[5:]

        request = SimpleNamespace(headers=headers, app=self, stream=stream)
        answer: tuple[int, Any] = asyncio.run(self.handler(verb, request))
        return answer


@pytest.fixture
def application(server: tuple[Any, Any, Session], monkeypatch: pytest.MonkeyPatch) -> Application:
    fastapi, responses = ModuleType("fastapi"), ModuleType("fastapi.responses")
    vars(fastapi)["Request"] = SimpleNamespace
    vars(responses)["JSONResponse"] = lambda content, status_code=200: (status_code, content)
    monkeypatch.setitem(sys.modules, "fastapi", fastapi)
    monkeypatch.setitem(sys.modules, "fastapi.responses", responses)
    application = Application([server[0]])
    CaptureEndpoint().attach_router(application)
    return application


def test_the_route_asks_for_proof(application: Application, spool: Path) -> None:
    token, body = read_token(spool), b'{"session": ""}'
    right = proof(token, "info", b"{}")
    assert application.call("info", b"{}", {endpoint.PROOF_HEADER: right})[0] == 200
    for verb, sent, shown in (
        ("info", b"{}", ""),
        ("info", b"{}", token),
        ("info", b"{}", "ü"),
        ("info", body, right),
        ("stop", b"{}", right),
        ("info", b"x" * 100_000, proof(token, "info", b"x" * 100_000)),
    ):
        status, answer = application.call(verb, sent, {endpoint.PROOF_HEADER: shown})
        assert status == 403
        assert token not in json.dumps(answer)


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [
        ("shutdown", b"{}", 404),
        ("read", b"[", 500),
        ("read", b"[1]", 500),
        ("info", b"", 200),
    ],
)
def test_the_route_takes_its_own_verbs_alone(
    application: Application, spool: Path, verb: str, body: bytes, status: int
) -> None:
    assert application.call(verb, body, {endpoint.PROOF_HEADER: proof(read_token(spool), verb, body)})[0] == status


def test_what_a_verb_doesnt_take_is_an_answer(application: Application, spool: Path) -> None:
    """vLLM would have to catch what a worker's method raises."""
    for verb, body in (("read", b'{"x": 1}'), ("start", b'{"session": [1]}'), ("stop", b'{"session": {}}')):
        headers = {endpoint.PROOF_HEADER: proof(read_token(spool), verb, body)}
        status, answer = application.call(verb, body, headers)
        assert status == 200
        assert "error" in answer["results"][0]


def test_a_route_that_can_t_be_added_ends_no_server(application: Application, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_path: str) -> Any:
        raise RuntimeError("another FastAPI")

    vars(application)["post"] = refuse
    CaptureEndpoint().attach_router(application)
    assert "another FastAPI" in caplog.text


def test_a_spool_that_cant_be_used_ends_no_server(
    application: Application, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spool / "file").write_text("")
    monkeypatch.setenv(SPOOL_ENV, str(spool / "file"))
    CaptureEndpoint().attach_router(application)
    status, answer = application.call("info", b"{}", {})
    assert status == 503
    assert "the spool can't be used" in answer["error"]


def test_a_release_without_the_worker_class_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.v1", None)
    register()


def test_one_of_two_captures_ends(server: tuple[Any, Any, Session], monkeypatch: pytest.MonkeyPatch) -> None:
    worker, runner, first = server
    worker.eagle_parity_stop()
    second = Session(first.spool)
    for session in (first, second):
        assert "error" not in worker.eagle_parity_start(session=session.name)
    assert worker.eagle_parity_stop(session=first.name)["capturing"] is True
    runner.step([(second.rid(0), 0, 3, 3)])
    assert second.whole(0, 3).forwards == 1
    assert worker.eagle_parity_stop(session=second.name)["capturing"] is False
    # One that was killed holds nobody up for good.
    worker.eagle_parity_start(session=first.name)
    monkeypatch.setattr(recorder, "SILENT_SECONDS", -1.0)
    worker.eagle_parity_start(session=second.name)
    assert worker.eagle_parity_stop(session=second.name)["capturing"] is False


def test_what_is_discarded_is_gone(server: tuple[Any, Any, Session]) -> None:
    worker, runner, session = server
    runner.step([(session.rid(0), 0, 3, 3)])
    folder = session.spool / session.name
    assert folder.is_dir()
    assert "error" in worker.eagle_parity_discard("../..")
    assert worker.eagle_parity_discard(session.name) == {"rank": "tp1"}
    assert not folder.exists()
    assert (session.spool / "token").exists()


def test_the_methods_are_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class WorkerBase:
        pass

    base = ModuleType("vllm.v1.worker.worker_base")
    vars(base)["WorkerBase"] = WorkerBase
    for name in ("vllm.v1", "vllm.v1.worker"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, base.__name__, base)
    register()
    former = dict(vars(WorkerBase))
    register()
    assert dict(vars(WorkerBase)) == former
    assert {name for name in former if name.startswith("eagle_parity_")} == {
        f"eagle_parity_{v}" for v in endpoint.VERBS
    }


@pytest.mark.parametrize(
    ("target", "found", "way"),
    [
        (Target(), [2, 4, 6], "model.aux_hidden_state_layers"),
        (SimpleNamespace(language_model=Target()), [2, 4, 6], "language_model.model.aux_hidden_state_layers"),
        (SimpleNamespace(get_language_model=Target), [2, 4, 6], "get_language_model().model.aux_hidden_state_layers"),
        (SimpleNamespace(aux_hidden_state_layers=(1,)), [1], "aux_hidden_state_layers"),
        (
            SimpleNamespace(_output_aux_hidden_states_kwargs={"layer_4": 1, "layer_2": 1}),
            [4, 2],
            "_output_aux_hidden_states_kwargs",
        ),
        (SimpleNamespace(), None, "none"),
    ],
)
def test_layer_sets(target: Any, found: list[int] | None, way: str) -> None:
    assert layer_set(target) == (None if found is None else {"list": found}, way)


def test_the_record_says_by_which_ways_this_release_was_read(server: tuple[Any, Any, Session]) -> None:
    worker, runner, session = server
    runner.step([(session.rid(0), 0, 3, 3)])
    ways = session.content["facts"]["variants"]
    assert ways == worker.eagle_parity_info()["variants"]
    is_v1 = isinstance(runner, V1Runner)
    expected = {
        "runner": "V1",
        "drafter": "model_runner.drafter",
        "draft_model": "drafter.model",
        "positions": "model_runner._get_positions()",
        "auxiliary_states": "propose_draft_token_ids(aux_hidden_states)",
    }
    if not is_v1:
        expected = {
            "runner": "V2",
            "drafter": "model_runner.speculator",
            "draft_model": "speculator.model",
            "positions": "input_batch.positions",
            "auxiliary_states": "propose(aux_hidden_states)",
        }
    assert ways.items() >= expected.items()
    assert (ways["target"], ways["layer_set"]) == ("get_model()", "model.aux_hidden_state_layers")
    assert "sampled_ids" not in ways


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("v1", "sampled_token_ids, a tensor"),
        ("v1-lists", "sampled_token_ids, lists"),
        ("v2", "num_rejected, last_sampled"),
    ],
)
def test_the_record_says_how_sampled_ids_came(spool: Path, kind: str, way: str) -> None:
    runner: Any = V2Runner() if kind == "v2" else V1Runner()
    if kind == "v1-lists":
        runner.padded_batch = False
    session, other = generating(runner, spool), Session(spool)
    runner.step([(session.rid(0), 0, 3, 3), (other.rid(0), 0, 3, 3)], sampled=[[103], [103]])
    runner.step([(session.rid(0), 3, 4, 3), (other.rid(0), 3, 4, 3)], sampled=[[104], [104]])
    for one in (session, other):
        assert one.content["facts"]["variants"]["sampled_ids"] == way


def test_the_ways_through_what_is_around_the_models_are_told() -> None:
    class Wrapper:
        def __init__(self, model: Any) -> None:
            self.model = model

        def unwrap(self) -> Any:
            return self.model

    runner = V1Runner()
    head = runner.drafter.model
    vars(runner)["model"] = Wrapper(SimpleNamespace(runnable=runner.model))
    vars(runner.drafter)["model"] = SimpleNamespace(runnable=head, combine_hidden_states=head.combine_hidden_states)
    ways = worker_of(runner).eagle_parity_start()["variants"]
    assert ways["target"] == "get_model().unwrap().runnable"
    assert ways["draft_model"] == "drafter.model.runnable"


@pytest.mark.parametrize(
    "gone", ["input_ids.gpu", "_get_positions", "input_batch.req_ids", "input_batch.num_prompt_tokens"]
)
def test_a_v1_runner_that_lacks_what_is_read_is_refused_at_the_start(gone: str) -> None:
    class Other(V1Runner):
        if gone == "_get_positions":

            @property
            def _get_positions(self) -> Any:  # as if it weren't there
                raise AttributeError("_get_positions")

    runner = Other()
    owner, _, name = gone.rpartition(".")
    if owner:
        delattr(getattr(runner, owner), name)
    worker = worker_of(runner)
    told = worker.eagle_parity_start()["error"]
    assert f"Other has no {gone}" in told
    assert "the hook knows 0.25.0 to 0.32.0" in told
    assert "propose_draft_token_ids" not in vars(runner)


@pytest.mark.parametrize("aux", [torch.zeros(1, HIDDEN), {"0": torch.zeros(3, HIDDEN)}, [None]])
def test_auxiliary_states_in_a_way_that_is_unknown_are_refused(spool: Path, aux: Any) -> None:
    runner = V2Runner()
    assert "error" not in worker_of(runner).eagle_parity_start()
    session = Session(spool)
    batch = SimpleNamespace(
        req_ids=[session.rid(0)],
        num_reqs=1,
        query_start_loc_np=[0, 3],
        prefill_len_np=[3],
        input_ids=torch.arange(3),
        positions=torch.arange(3),
    )
    arguments = {"aux_hidden_states": aux, "last_hidden_states": torch.zeros(3, HIDDEN), "input_batch": batch}
    with contextlib.suppress(TypeError, RuntimeError):  # the stand-in can't concatenate it either
        runner.speculator.propose(**arguments)
    assert "not a list of states" in session.content["failures"][0]
    assert session.parts.ranks_of(0) == []


def test_sampled_ids_in_a_way_that_is_unknown_are_refused(spool: Path) -> None:
    runner = V1Runner()
    session = generating(runner, spool)
    runner.step([(session.rid(0), 0, 3, 3)], sampled=[[103]])
    metadata = SimpleNamespace(query_start_loc_cpu=torch.tensor([0, 1]), num_actual_tokens=1)
    runner.positions[:1] = 3
    count = SimpleNamespace(total_num_scheduled_tokens=1)
    runner.propose_draft_token_ids(
        count, torch.zeros(1, HIDDEN), states(torch.arange(3, 4), 0), metadata, SimpleNamespace()
    )
    assert "sampled_token_ids is a SimpleNamespace" in session.content["failures"][0]
