"""What the hook in SGLang records beside the auxiliary states, on modules that call each other as SGLang's do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from located_rank import ReadRank
from safetensors import safe_open
from torch import nn

from eagle_parity.capture.assembly import SessionParts
from eagle_parity.capture.sglang import factory, loading, modules, tap
from eagle_parity.capture.spool.folder import make_spool
from eagle_parity.capture.spool.request_ids import new_session, request_id

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN, LAYERS, TOKENS = 4, 3, 5


class Layer(nn.Module):
    """Adds one, and writes the sum into the tensor that it was given, as fused norms do."""

    def forward(self, positions: torch.Tensor, hidden_states: torch.Tensor, forward_batch: Any) -> torch.Tensor:
        del positions, forward_batch
        return hidden_states.add_(1)


class RMSNorm(nn.Module):
    def __init__(self, *, pair: bool) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, hidden_states: torch.Tensor) -> Any:
        normed = hidden_states / hidden_states.norm(dim=-1, keepdim=True)
        return (normed, hidden_states) if self.pair else normed


class Inner(nn.Module):
    def __init__(self, *, pair: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RMSNorm(pair=pair)
        self.layers_to_capture = [1, 2]

    def forward(self, embedded: torch.Tensor, batch: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        hidden, aux = embedded.clone(), []
        for index, layer in enumerate(self.layers):
            if index in self.layers_to_capture:
                aux.append(hidden.clone())
            hidden = layer(batch.positions, hidden, forward_batch=batch)
        normed = self.norm(hidden)
        return (normed[0] if self.norm.pair else normed), aux


class LogitsProcessor(nn.Module):
    def forward(self, *args: Any) -> None:
        del args


class Target(nn.Module):
    """The modules by SGLang's names."""

    def __init__(self, *, pair: bool = True) -> None:
        super().__init__()
        self.model = Inner(pair=pair)
        self.logits_processor = LogitsProcessor()

    def run(self, rid: str, embedded: torch.Tensor) -> None:
        batch = SimpleNamespace(
            rids=[rid],
            positions=torch.arange(TOKENS),
            forward_mode=SimpleNamespace(name="EXTEND"),
            extend_seq_lens_cpu=[TOKENS],
        )
        hidden, aux = self.model(embedded, batch)
        self.logits_processor(torch.arange(TOKENS), hidden, None, batch, aux)


@pytest.fixture
def hooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(tap, "parallel_facts", lambda: {"tp_size": 1, "tp_rank": 0})
    monkeypatch.setattr(tap, "_spools", {})
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)

    def hook(beside: list[int], *, pair: bool = True) -> tuple[Target, str]:
        target = Target(pair=pair)
        hook = factory({"spool": str(tmp_path), "beside": beside})
        for name, module in target.named_modules():
            if name in {*modules.TARGET_MODULES, *modules.FINAL_NORMS}:
                module.register_forward_hook(hook)
        return target, make_spool(tmp_path)

    return hook


def embedded() -> torch.Tensor:
    return torch.arange(TOKENS * HIDDEN, dtype=torch.float32).reshape(TOKENS, HIDDEN) + 1


def record(target: Target, token: str, session: str) -> None:
    target.run("warm-up", embedded())
    target.run(request_id(token, session, 0), embedded())


def test_both_ends_are_recorded_as_they_were(hooked: Any, tmp_path: Path) -> None:
    target, token = hooked([0, LAYERS])
    session = new_session()
    record(target, token, session)
    assembled = ReadRank(SessionParts(tmp_path / session).locate("tp0", 0, TOKENS))
    assert sorted(assembled.beside) == [0, LAYERS]
    # Every layer overwrites its input: a reference that was kept would hold the last state.
    assert len(assembled.states) == LAYERS + 1
    for boundary, state in enumerate(assembled.states):
        assert torch.equal(state, embedded() + boundary)
    assert len(assembled.slots) == LAYERS - 1
    facts = SessionParts(tmp_path / session).ranks["tp0"].facts
    assert "boundary 0 from the first layer's input, boundary 3 from the final norm" in facts["tap"]


def test_requests_of_others_are_not_copied(hooked: Any) -> None:
    target, _ = hooked([0, LAYERS])
    target.run("warm-up", embedded())
    (hook,) = target.logits_processor._forward_hooks.values()
    beside = hook.__self__.beside
    held: list[set[str]] = []
    target.logits_processor.register_forward_pre_hook(lambda *_: held.append(set(beside.states)))
    target.run("somebody's", embedded())
    assert held == [set()]
    assert not beside.states


def test_a_model_that_is_compiled_whole_still_runs(hooked: Any, tmp_path: Path) -> None:
    """As SGLang compiles it for prefill graphs: what torch can't trace of a hook there would end the server."""
    target, token = hooked([0, LAYERS])
    target.run("warm-up", embedded())
    target.model.forward = torch.compile(target.model.forward, backend="eager", fullgraph=True)
    session = new_session()
    target.run(request_id(token, session, 0), embedded())
    assembled = ReadRank(SessionParts(tmp_path / session).locate("tp0", 0, TOKENS))
    assert torch.equal(assembled.states[0], embedded())


def test_a_tap_that_has_ended_keeps_nothing(hooked: Any) -> None:
    target, token = hooked([0, LAYERS])
    target.run("warm-up", embedded())
    (hook,) = target.logits_processor._forward_hooks.values()
    hook.__self__._end()
    target.run(request_id(token, new_session(), 0), embedded())
    assert not hook.__self__.beside.states


def test_the_first_forward_of_a_server_is_told_not_recorded(hooked: Any, tmp_path: Path) -> None:
    target, token = hooked([0])
    session = new_session()
    target.run(request_id(token, session, 0), embedded())
    parts = SessionParts(tmp_path / session)
    assert parts.ranks_of(0) == []
    assert "boundary 0 was not seen" in parts.ranks["tp0"].content["failures"][0]


@pytest.mark.parametrize(
    ("beside", "pair", "told"),
    [
        ([0, LAYERS], False, f"boundary {LAYERS} was not seen"),
        ([0, LAYERS + 1], True, f"the target has {LAYERS} layers"),
    ],
)
def test_what_is_not_surely_that_boundary_is_not_recorded(
    hooked: Any, tmp_path: Path, beside: list[int], pair: bool, told: str
) -> None:
    target, token = hooked(beside, pair=pair)
    session = new_session()
    record(target, token, session)
    parts = SessionParts(tmp_path / session)
    assert parts.ranks_of(0) == []
    assert told in parts.ranks["tp0"].content["failures"][0]


def test_nothing_is_recorded_beside_unless_asked_for(hooked: Any, tmp_path: Path) -> None:
    target, token = hooked([])
    session = new_session()
    record(target, token, session)
    (part,) = tmp_path.glob(f"{session}/tp0-*-aux.safetensors")
    with safe_open(part, framework="pt") as file:
        assert sorted(file.keys()) == ["last_state", "positions", "request", "slot.0", "slot.1", "token_ids"]
    assert not target.model.layers[0]._forward_pre_hooks


class Runner(SimpleNamespace):
    """As much of a model runner as the plugin looks at."""


@pytest.mark.parametrize(
    ("draft_worker", "speculates", "asked"), [(False, False, [[0, 1, 2]]), (True, False, []), (False, True, [])]
)
def test_the_list_goes_to_a_target_without_speculation_alone(
    monkeypatch: pytest.MonkeyPatch, draft_worker: bool, speculates: bool, asked: list[list[int]]
) -> None:
    got: list[list[int]] = []
    monkeypatch.setenv(loading.LAYER_IDS_ENV, "0,1,2")
    runner = Runner(
        is_draft_worker=draft_worker,
        spec_algorithm=SimpleNamespace(is_none=lambda: not speculates),
        model=SimpleNamespace(set_eagle3_layers_to_capture=got.append),
    )
    loading._ask_for_layers(runner)
    assert got == asked


def test_a_class_without_a_setter_and_an_empty_environment_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(spec_algorithm=SimpleNamespace(is_none=lambda: True), model=SimpleNamespace())
    monkeypatch.delenv(loading.LAYER_IDS_ENV, raising=False)
    loading._ask_for_layers(runner)
    monkeypatch.setenv(loading.LAYER_IDS_ENV, "0")
    loading._ask_for_layers(runner)
