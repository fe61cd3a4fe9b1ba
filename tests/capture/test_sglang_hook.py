"""The hook in SGLang, on small modules that call each other as SGLang's do."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from located_rank import ReadRank
from safetensors import safe_open
from torch import nn

from eagle_parity.capture import hook_log
from eagle_parity.capture.assembly import Incomplete, SessionParts
from eagle_parity.capture.sglang import factory, facts, modules, register, tap
from eagle_parity.capture.spool.folder import SPOOL_ENV, read_token
from eagle_parity.capture.spool.request_ids import new_session, request_id
from eagle_parity.capture.worker_facts import rank_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HIDDEN, LAYERS = 8, 4


class Config:
    def to_dict(self) -> dict[str, Any]:
        return {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(LAYERS))
        self.layers_to_capture = [1, 2, 3]
        self.config = Config()

    def forward(self, input_ids: torch.Tensor | None, positions: torch.Tensor, batch: Any) -> Any:
        del input_ids, batch
        hidden = (positions[:, None] + torch.arange(HIDDEN) / HIDDEN).float()
        aux = []
        for index, layer in enumerate(self.layers):
            if index in self.layers_to_capture:
                aux.append(hidden.clone())
            hidden = hidden + layer(hidden)
        return hidden, aux


class LogitsProcessor(nn.Module):
    """``LogitsProcessor.forward`` from 0.5.10 to 0.5.23, as far as the hook sees it."""

    def forward(
        self, input_ids: Any, hidden_states: Any, lm_head: Any, logits_metadata: Any, aux_hidden_states: Any = None
    ) -> Any:
        del input_ids, lm_head, logits_metadata, aux_hidden_states
        return hidden_states


class Target(nn.Module):
    def __init__(self, *, packed: bool = False) -> None:
        super().__init__()
        self.model = Model()
        self.logits_processor = LogitsProcessor()
        self.packed = packed

    def forward(self, input_ids: torch.Tensor | None, positions: torch.Tensor, batch: Any) -> Any:
        hidden, aux = self.model(input_ids, positions, batch)
        states: Any = torch.cat(aux, dim=1) if self.packed else aux
        self.logits_processor(input_ids, hidden, None, batch, states)
        return torch.cat(aux, dim=1)


class Wrapper(nn.Module):
    """Kimi and its kin: the language model gets no token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.language_model = Target()

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, batch: Any) -> Any:
        batch.input_ids = input_ids
        return self.language_model(None, positions, batch)


class DraftModel(nn.Module):
    """``llama_eagle3`` from 0.5.12 on has ``layers``; before it, and ``kimi_k25_eagle3``, ``midlayer``."""

    def __init__(self, *, midlayer: bool, norm: bool = False) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * HIDDEN, HIDDEN)
        if norm:
            self.fc_norm = nn.ModuleList([nn.Identity()])
        if midlayer:
            self.midlayer = nn.Linear(HIDDEN, HIDDEN)
        else:
            self.layers = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN)])

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, batch: Any) -> Any:
        del input_ids, positions
        return self.fc(batch.spec_info)


class Draft(nn.Module):
    def __init__(self, *, midlayer: bool = False, norm: bool = False) -> None:
        super().__init__()
        self.model = DraftModel(midlayer=midlayer, norm=norm)
        self.logits_processor = LogitsProcessor()

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, batch: Any, states: torch.Tensor) -> None:
        batch.spec_info = states
        hidden = self.model(input_ids, positions, batch)
        self.logits_processor(input_ids, hidden, None, batch)


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of SGLang that the hook asks for facts, as 0.5.10 has them: one rank of two."""
    state = ModuleType("sglang.srt.distributed.parallel_state")
    pipeline = SimpleNamespace(world_size=1, rank_in_group=0)
    vars(state).update(
        get_tensor_model_parallel_world_size=lambda: 2,
        get_tensor_model_parallel_rank=lambda: 1,
        get_pp_group=lambda: pipeline,
    )
    attention = ModuleType("sglang.srt.layers.dp_attention")
    vars(attention).update(
        get_attention_tp_size=lambda: 2,
        get_attention_tp_rank=lambda: 1,
        get_attention_dp_size=lambda: 1,
        get_attention_dp_rank=lambda: 0,
    )
    arguments = ModuleType("sglang.srt.server_args")
    vars(arguments)["get_global_server_args"] = lambda: SimpleNamespace(chunked_prefill_size=64, model_path=None)
    for name in ("sglang", "sglang.srt", "sglang.srt.distributed", "sglang.srt.layers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for module in (state, attention, arguments):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(tap, "_spools", {})
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)


def hook(model: nn.Module, spool: Path, **config: Any) -> list[Any]:
    """As ``register_forward_hooks`` does it (``model_executor/hook_manager.py``)."""
    made = factory({"spool": str(spool), **config})
    return [
        module.register_forward_hook(made) for name, module in model.named_modules() if name in modules.TARGET_MODULES
    ]


def forward_batch(rids: Sequence[str], lengths: Sequence[int] | None, *, mode: str = "EXTEND", **more: Any) -> Any:
    return SimpleNamespace(
        rids=list(rids), extend_seq_lens_cpu=lengths, forward_mode=SimpleNamespace(name=mode), **more
    )


def run(model: nn.Module, spans: Sequence[tuple[str, int, int]], *, padding: int = 0, **more: Any) -> Any:
    """One forward: requests with the positions that are computed of each."""
    positions = torch.cat([torch.arange(start, stop) for _, start, stop in spans] + [torch.zeros(padding).long()])
    batch = forward_batch([rid for rid, _, _ in spans], [stop - start for _, start, stop in spans], **more)
    batch.positions = positions
    with torch.no_grad():
        return model(positions + 100, positions, batch), batch


class Session:
    def __init__(self, spool: Path) -> None:
        self.spool, self.name = spool, new_session()

    def rid(self, number: int) -> str:
        return request_id(read_token(self.spool), self.name, number)

    @property
    def parts(self) -> SessionParts:
        return SessionParts(self.spool / self.name)

    @property
    def content(self) -> Any:
        return self.parts.ranks["tp1"].content

    def whole(self, number: int, tokens: int, first: int = 0) -> ReadRank:
        return ReadRank(self.parts.locate("tp1", number, tokens, first=first))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "spool")


@pytest.mark.parametrize("packed", [False, True])
def test_a_request_alone(session: Session, packed: bool) -> None:
    target = Target(packed=packed)
    hook(target, session.spool)
    states, _ = run(target, [(session.rid(0), 0, 5)])
    assembled = session.whole(0, 5)
    assert assembled.token_ids.tolist() == [100, 101, 102, 103, 104]
    assert torch.equal(torch.cat(assembled.slots, dim=1), states)
    assert assembled.last_state is not None
    facts = session.content["facts"]
    assert facts["target"]["layer_set"] == {"list": [1, 2, 3]}
    assert (facts["target"]["num_layers"], facts["target"]["hidden_size"]) == (LAYERS, HIDDEN)
    assert facts["target"]["config"]["architectures"] == ["LlamaForCausalLM"]
    assert facts["parallel"]["tp_rank"] == 1
    assert facts["server"] == {"chunked_prefill_size": 64}
    assert facts["variants"] == {
        "auxiliary_states": "one packed tensor" if packed else "a list of states",
        "token_ids": "argument",
        "parallel": "distributed.parallel_state",
        "server": "get_global_server_args",
    }
    assert ("packed" in facts["tap"]) is packed


def test_chunks_batches_and_other_people(session: Session) -> None:
    target = Target()
    hook(target, session.spool)
    run(target, [("other", 0, 3), (session.rid(0), 0, 4), (session.rid(1), 0, 2)])
    run(target, [(session.rid(1), 2, 6), ("other", 3, 5), (session.rid(0), 4, 7)])
    run(target, [("other", 5, 9)])
    for number, tokens in ((0, 7), (1, 6)):
        alone, _ = run(target, [("nobody", 0, tokens)])
        assert torch.allclose(torch.cat(session.whole(number, tokens).slots, dim=1), alone)
    assert session.parts.shape_of("tp1", 0) == (2, 0, False)
    assert session.content["tokens"] == 13


def test_padding_of_rows_and_of_requests(session: Session) -> None:
    target = Target()
    hook(target, session.spool)
    positions = torch.tensor([0, 1, 2, 0, 0, 0])
    # Data-parallel attention pads the batch with dummy requests, which have lengths and no ids.
    batch = forward_batch([session.rid(0)], [3, 1, 1], positions=positions)
    with torch.no_grad():
        target(positions + 100, positions, batch)
    assert session.whole(0, 3).token_ids.tolist() == [100, 101, 102]
    assert session.content["skipped"] == {"padding rows": 3}


def test_decoding_and_verification_are_counted_not_stored(session: Session) -> None:
    target = Target()
    hook(target, session.spool)
    run(target, [(session.rid(0), 0, 3)])
    for mode in ("DECODE", "TARGET_VERIFY", "DRAFT_EXTEND_V2"):
        run(target, [(session.rid(0), 3, 5)], mode=mode)
    run(target, [(session.rid(1), 0, 2)])
    assert session.content["tokens"] == 5
    assert session.content["skipped"] == {"rows of DECODE": 2, "rows of TARGET_VERIFY": 2, "rows of DRAFT_EXTEND_V2": 2}


@pytest.mark.parametrize("midlayer", [False, True])
def test_the_drafts_input_is_what_fc_got(session: Session, midlayer: bool) -> None:
    target, draft = Target(), Draft(midlayer=midlayer)
    hook(target, session.spool)
    hook(draft, session.spool)
    states, batch = run(target, [(session.rid(0), 0, 3), ("other", 0, 2)])
    draft(batch.positions + 101, batch.positions, batch, states)
    assembled = session.whole(0, 3)
    assert assembled.draft_input_state() == "equal"
    assert session.content["facts"]["draft"]["fc_weight"] == [HIDDEN, 3 * HIDDEN]
    assert session.content["facts"]["draft"]["model_class"].endswith("DraftModel")
    shifted = states.roll(HIDDEN, dims=1)
    states, batch = run(target, [(session.rid(1), 0, 3)])
    draft(batch.positions, batch.positions, batch, shifted[:3])
    assert session.whole(1, 3).draft_input_state() == "differs"


def test_a_head_that_normalises_first_is_told(session: Session) -> None:
    target, draft = Target(), Draft(norm=True)
    hook(target, session.spool)
    hook(draft, session.spool)
    states, batch = run(target, [(session.rid(0), 0, 3)])
    draft(batch.positions, batch.positions, batch, states)
    assert session.content["facts"]["draft"]["normed_before_fc"] is True


def test_a_wrappers_language_model_has_its_ids_from_the_batch(session: Session) -> None:
    target = Wrapper()
    hook(target, session.spool)
    run(target, [(session.rid(0), 0, 4)])
    assert session.whole(0, 4).token_ids.tolist() == [100, 101, 102, 103]
    facts = session.content["facts"]
    assert facts["variants"].items() >= {"token_ids": "forward_batch.input_ids"}.items()
    assert facts["target"]["model_class"].endswith("test_sglang_hook.Model")
    assert "draft" not in facts


def test_flags_of_layers_are_read() -> None:
    model = Model()
    vars(model)["layers_to_capture"] = None  # some classes have it so
    for index in (0, 2):
        vars(model.layers[index])["_is_layer_to_capture"] = True
    assert facts.layer_set(model) == {"flags": [0, 2]}
    assert facts.layer_set(SimpleNamespace()) is None


def test_no_states_are_a_failure_that_is_told(session: Session) -> None:
    target = Target()
    hook(target, session.spool)
    positions = torch.arange(3)
    target.logits_processor(
        positions, torch.zeros(3, HIDDEN), None, forward_batch([session.rid(0)], [3], positions=positions)
    )
    assert "no auxiliary states" in session.content["failures"][0]


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ({"extend_seq_lens_cpu": [3]}, "no positions"),
        ({"positions": torch.arange(3)}, "no extend_seq_lens_cpu"),
        ({"positions": torch.arange(3), "extend_seq_lens_cpu": []}, "0 lengths of 1 requests"),
        ({"positions": torch.arange(2), "extend_seq_lens_cpu": [3]}, "positions is (2,)"),
        ({"positions": torch.arange(3), "extend_seq_lens_cpu": [9]}, "the batch has 9 rows"),
    ],
)
def test_a_release_that_is_unknown_is_refused_in_the_record(session: Session, batch: dict[str, Any], told: str) -> None:
    target = Target()
    hook(target, session.spool)
    given = SimpleNamespace(rids=[session.rid(0)], forward_mode=SimpleNamespace(name="EXTEND"), **batch)
    aux = [torch.zeros(3, HIDDEN)]
    target.logits_processor(torch.arange(3), torch.zeros(3, HIDDEN), None, given, aux)
    assert told in session.content["failures"][0]
    assert session.parts.ranks_of(0) == []
    run(target, [(session.rid(1), 0, 3)])
    assert session.whole(1, 3).forwards == 1


@pytest.mark.parametrize("aux", [{"slot": torch.zeros(3, HIDDEN)}, [None], SimpleNamespace(states=[])])
def test_auxiliary_states_in_a_way_that_is_unknown_are_refused(session: Session, aux: Any) -> None:
    target = Target()
    hook(target, session.spool)
    given = forward_batch([session.rid(0)], [3], positions=torch.arange(3))
    target.logits_processor(torch.arange(3), torch.zeros(3, HIDDEN), None, given, aux)
    assert "neither a tensor nor a list of them" in session.content["failures"][0]
    assert session.parts.ranks_of(0) == []


def test_batches_without_request_ids_end_the_hook(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    target = Target()
    hook(target, session.spool)
    for _ in range(3):
        target.logits_processor(torch.arange(3), torch.zeros(3, HIDDEN), None, SimpleNamespace(), None)
    assert caplog.text.count("has no rids") == 1


def test_nothing_reaches_the_engine(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target()
    hook(target, session.spool)

    def broken(*_: object, **__: object) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr("eagle_parity.capture.spool.session.copied_rows", broken)
    states, _ = run(target, [(session.rid(0), 0, 3)])
    assert states.shape == (3, 3 * HIDDEN)
    assert session.content["failures"] == ["MemoryError: none left"]


def test_a_limit_is_told_in_the_forward_that_reaches_it(session: Session) -> None:
    target, draft = Target(), Draft()
    hook(target, session.spool, max_tokens=5)
    hook(draft, session.spool, max_tokens=5)
    states, batch = run(target, [(session.rid(0), 0, 4)])
    draft(batch.positions, batch.positions, batch, states)
    assert session.content["limit"] is None
    states, batch = run(target, [(session.rid(1), 0, 3)])
    assert session.content["limit"] == "max_tokens=5"
    draft(batch.positions, batch.positions, batch, states)
    assert session.content["skipped"] == {"rows beyond the limit": 3}
    assert (session.content["parts"], session.content["tokens"]) == (2, 4)


def test_a_failure_outside_of_our_forwards_is_in_the_record(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target()
    hook(target, session.spool)
    monkeypatch.setattr(tap.Tap, "_keep_fc", lambda *_: 1 / 0)
    for _ in range(3):
        run(target, [("other", 0, 3)])
    assert caplog.text.count("division by zero") == 1  # nobody records yet
    run(target, [(session.rid(0), 0, 3)])
    run(target, [("other", 0, 3)])
    assert session.content["failures"] == ["ZeroDivisionError: division by zero"]
    assert session.whole(0, 3).forwards == 1


def held(model: nn.Module) -> tuple[Any, Any]:
    (hook,) = model.get_submodule("logits_processor")._forward_hooks.values()
    return hook.__self__.fc_input, hook.__self__.beside.states  # type: ignore[attr-defined]  # the tap's method


def test_a_forward_that_fails_leaves_no_tensor_alive(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft()
    hook(draft, session.spool)
    batch = forward_batch([session.rid(0)], [3], positions=torch.arange(3))
    states = torch.zeros(3, 3 * HIDDEN)
    monkeypatch.setattr("eagle_parity.capture.spool.session.copied_rows", lambda *_: 1 / 0)
    draft(batch.positions, batch.positions, batch, states)
    assert held(draft) == (None, {})
    assert session.content["failures"] == ["ZeroDivisionError: division by zero"]
    monkeypatch.setattr(tap.Tap, "_fail", lambda *_: None)
    monkeypatch.setattr(tap.Tap, "_on_logits", lambda *_: 1 / 0)
    draft(batch.positions, batch.positions, batch, states)
    assert held(draft) == (None, {})


def test_what_a_head_gets_of_others_is_let_go_before_their_forward_ends(session: Session) -> None:
    draft = Draft()
    hook(draft, session.spool)
    at_the_end: list[Any] = []
    draft.logits_processor.register_forward_pre_hook(lambda *_: at_the_end.append(held(draft)[0]))
    for rids in (["other"], [session.rid(0)]):
        batch = forward_batch(rids, [3], positions=torch.arange(3))
        draft(batch.positions, batch.positions, batch, torch.zeros(3, 3 * HIDDEN))
    assert at_the_end[0] is None
    assert at_the_end[1] is not None
    assert held(draft)[0] is None


def test_a_log_that_raises_is_kept_from_the_engine(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target()
    hook(target, session.spool)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a handler of the server's")

    for name in ("warning", "error"):
        monkeypatch.setattr(hook_log.logger, name, broken)
    monkeypatch.setattr(tap.Tap, "_on_logits", lambda *_: 1 / 0)
    run(target, [("other", 0, 3)])
    monkeypatch.setattr(hook_log.LogOnce, "warn", broken)
    run(target, [("other", 0, 3)])
    (made,) = target.logits_processor._forward_hooks.values()
    assert made.__self__.broken  # type: ignore[attr-defined]  # the tap's method


def test_arguments_by_name_are_told(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    target = Target()
    hook(target, session.spool)
    batch = forward_batch([session.rid(0)], [3], positions=torch.arange(3))
    for _ in range(2):
        target.logits_processor(torch.arange(3), torch.zeros(3, HIDDEN), None, logits_metadata=batch)
    assert caplog.text.count("without a forward batch by position") == 1


def test_ranks_that_can_t_be_read_are_told_to_who_asked(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "parallel_facts", lambda: 1 / 0)
    target = Target()
    hook(target, session.spool)
    run(target, [("other", 0, 3)])
    run(target, [(session.rid(0), 0, 3)])
    (record,) = session.parts.ranks.values()
    assert record.failures == ["ZeroDivisionError: division by zero"]


def test_a_folder_that_can_t_be_used_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "spool").write_text("a file")
    target = Target()
    hook(target, tmp_path / "spool")
    run(target, [("eagle-parity.", 0, 3)])
    assert "nothing will be captured" in caplog.text


@pytest.mark.parametrize("config", [{}, {"spool": ""}, {"spool": "/dev/null/x"}, {"max_tokens": "many", "spool": "x"}])
def test_a_config_that_can_t_be_used_is_no_error(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(SPOOL_ENV, raising=False)
    monkeypatch.chdir(tmp_path)
    assert factory(config)(nn.Identity(), (), None) is None


def test_two_hooks_of_one_server_record_once(session: Session) -> None:
    target = Target()
    hook(target, session.spool)
    hook(target, session.spool)
    run(target, [(session.rid(0), 0, 3)])
    assert session.parts.shape_of("tp1", 0) == (1, 0, True)


def test_the_token_is_there_before_any_request(session: Session) -> None:
    factory({"spool": str(session.spool)})
    assert read_token(session.spool)


def test_a_removed_hook_leaves_the_module_as_it_was(session: Session) -> None:
    target = Target()
    for handle in hook(target, session.spool):
        handle.remove()
    run(target, [("eagle-parity.", 0, 3)])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in target.modules())


@pytest.mark.parametrize(
    ("context", "title", "parallel", "name"),
    [
        ({"dp_rank": 1}, "", {"dp_size": 2, "dp_rank": 1}, "dp1.tp0"),
        ({"dp_rank": None}, "sglang::scheduler_DP1_TP0", {"dp_size": 2, "dp_rank": 1}, "dp1.tp0"),
        ({"attn_dp_size": 2, "attn_dp_rank": 1, "tp_rank": 1}, "sglang::scheduler_DP1_TP1", {"attn_dp_rank": 1}, "tp1"),
        ({"pp_size": 2, "pp_rank": 1, "dp_rank": 0}, "", {"pp_rank": 1}, "dp0.pp1.tp0"),
    ],
)
def test_replicas_have_names_of_their_own(
    monkeypatch: pytest.MonkeyPatch, context: dict[str, Any], title: str, parallel: dict[str, int], name: str
) -> None:
    sizes = {
        f"{kind}_{what}": int(what == "size")
        for kind in ("tp", "pp", "attn_tp", "attn_dp")
        for what in ("size", "rank")
    }
    module = ModuleType("sglang.srt.runtime_context")
    vars(module)["get_parallel"] = lambda: SimpleNamespace(**(sizes | context))
    vars(module)["get_server_args"] = lambda: SimpleNamespace(dp_size=2)
    titles = ModuleType("setproctitle")
    vars(titles)["getproctitle"] = lambda: title
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "setproctitle", titles)
    found = facts.parallel_facts()
    assert parallel.items() <= found.items()
    assert rank_name(found) == name


def test_a_replica_that_can_t_be_told_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = sys.modules["sglang.srt.server_args"]
    vars(arguments)["get_global_server_args"] = lambda: SimpleNamespace(dp_size=2)
    monkeypatch.setitem(sys.modules, "setproctitle", None)
    with pytest.raises(RuntimeError, match="several replicas"):
        facts.parallel_facts()


def test_the_plugin_hooks_what_is_loaded(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: dict[str, Any] = {}
    registry = ModuleType("sglang.srt.plugins.hook_registry")
    vars(registry)["HookType"] = SimpleNamespace(AFTER="after")
    vars(registry)["HookRegistry"] = SimpleNamespace(
        register=lambda target, hook, kind: registered.update({target: (hook, kind)})
    )
    monkeypatch.setitem(sys.modules, registry.__name__, registry)
    monkeypatch.delenv(SPOOL_ENV, raising=False)
    register()
    assert registered == {}
    monkeypatch.setenv(SPOOL_ENV, str(session.spool))
    register()
    ((target_name, (after_load, kind)),) = registered.items()
    monkeypatch.setitem(sys.modules, registry.__name__, None)
    register()  # a release without plugins: told in the log
    assert target_name == "sglang.srt.model_executor.model_runner.ModelRunner.load_model"
    assert kind == "after"
    target = Target()
    assert after_load("result", SimpleNamespace(model=target)) == "result"
    run(target, [(session.rid(0), 0, 3)])
    assert session.whole(0, 3).forwards == 1
    assert after_load("result", SimpleNamespace()) == "result"  # without a model: told in the log


def test_parts_are_what_the_spool_says_they_are(session: Session) -> None:
    target = Target()
    hook(target, session.spool)
    run(target, [(session.rid(4), 0, 3)])
    with safe_open(session.spool / session.name / "tp1-000000-aux.safetensors", framework="pt") as file:
        names = sorted(file.keys())
        assert json.loads(file.metadata()["requests"]) == [4]
    assert names == ["last_state", "positions", "request", "slot.0", "slot.1", "slot.2", "token_ids"]
    assert isinstance(session.parts.locate("tp1", 4, 5), Incomplete)
