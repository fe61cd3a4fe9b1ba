"""What one model's hooks record: the states that the target hands on, or what the draft's ``fc`` received."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.hook_log import LogOnce, log_exception, text_of
from eagle_parity.capture.sglang.beside import Beside
from eagle_parity.capture.sglang.facts import (
    draft_facts,
    engine_version,
    parallel_context,
    parallel_facts,
    server_facts,
    target_facts,
)
from eagle_parity.capture.sglang.forward import PREFILL_MODES, Forward, spans_of
from eagle_parity.capture.spool.request_ids import has_ours
from eagle_parity.capture.spool.session import MAX_FAILURE_CHARS
from eagle_parity.capture.spool.worker import Spool
from eagle_parity.capture.worker_facts import rank_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import nn

    from eagle_parity.capture.spool.request_ids import Mark

_OWNER = "_eagle_parity_tap"
"""Of a hooked module: a server with the flag and the plugin has two hooks on each, and one of them counts."""

_spools: dict[str, Spool] = {}
"""One a process: the runners of target and draft live in the same one and share counters."""


class Tap:
    """What one model's hooks share; target and draft have one each."""

    def __init__(self, folder: str, max_tokens: int, beside: Sequence[int] = ()) -> None:
        self.folder = folder
        self.max_tokens = max_tokens
        self.beside = Beside(beside)
        self.inner: Any = None  # the module that holds the decoder layers
        self.fc: Any = None
        self.fc_input: torch.Tensor | None = None
        self.broken = False
        self._log = LogOnce()

    def on_forward(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Called by torch after each hooked module's forward."""
        if self.broken:
            return
        marks: list[Mark | None] = []
        try:
            if module.__dict__.setdefault(_OWNER, self) is self:
                self._on_module(module, args, output, marks)
        except Exception as error:  # noqa: BLE001  nothing may reach the engine
            self._let_go()
            self._fail(marks, error)

    def _on_module(self, module: nn.Module, args: tuple[Any, ...], output: object, marks: list[Mark | None]) -> None:
        name = type(module).__name__
        if name.endswith("LogitsProcessor"):
            self._on_logits(args, marks)
            self._let_go()
        elif hasattr(module, "layers") or hasattr(module, "fc"):
            self.inner = module
            self._keep_fc(module)
            if _is_others(args):
                self._let_go()
            self.beside.watch(module)
        elif "Norm" in name:
            self.beside.on_final_norm(output)
        elif not hasattr(module, "model"):  # a wrapper's language model has one
            # fc runs before the draft's logits processor, which knows whose rows these are.
            self.fc, self.fc_input = module, args[0] if args else None

    def _let_go(self) -> None:
        """Of what was kept of a forward: it ends here, or is somebody else's, or failed."""
        self.fc_input = None
        self.beside.let_go()

    def _keep_fc(self, inner: Any) -> None:
        """Of what ran before it, the draft's model says which was its ``fc``."""
        if getattr(inner, "fc", None) is not self.fc:
            self.fc, self.fc_input = None, None

    def _on_logits(self, args: tuple[Any, ...], marks: list[Mark | None]) -> None:
        forward = Forward(args)
        if forward.batch is None:
            self._log.warn("a logits processor is called without a forward batch by position: it is not recorded")
        elif not hasattr(forward.batch, "rids"):
            self._give_up(f"this release's {type(forward.batch).__name__} has no rids, so rows can't be told apart")
        request_ids = forward.request_ids
        if not request_ids or not has_ours(request_ids):
            return
        spool = self._spool(request_ids)
        marks.extend(spool.marks(request_ids))
        sessions = {mark.session for mark in marks if mark is not None}
        is_draft = self.fc is not None or hasattr(self.inner, "fc")  # a head of one slot skips its fc
        for session in sessions:
            if not spool.described(session, "draft" if is_draft else "target"):
                spool.describe(session, self._facts(forward, is_draft=is_draft))
        mode, lengths = forward.mode, forward.lengths
        if mode not in PREFILL_MODES or lengths is None:
            for session in sessions:
                spool.count(session, f"rows of {mode}", int(forward.hidden_states.shape[0]))
        elif sessions:
            self._write(forward, marks, lengths, is_draft=is_draft)

    def _write(self, forward: Forward, marks: Sequence[Mark | None], lengths: Sequence[int], *, is_draft: bool) -> None:
        spool, spans = self._spool(), spans_of(lengths, len(marks))
        token_ids, _ = forward.token_ids()
        for session in {mark.session for mark in marks if mark is not None}:
            spool.count(session, "padding rows", max(0, int(token_ids.shape[0]) - spans[-1].stop))
        ids = {"token_ids": token_ids, "positions": forward.positions}
        states = self._draft_input() if is_draft else self._target_states(forward)
        if isinstance(states, str):
            spool.fail(marks, states)
        elif states:
            spool.write("draft" if is_draft else "aux", {**ids, **states}, marks, spans, mode=forward.mode)

    def _target_states(self, forward: Forward) -> dict[str, torch.Tensor] | str:
        """The auxiliary states, what is recorded beside them, and the last one; or why they aren't there."""
        beside, (aux, _) = self.beside.take(self.inner), forward.aux()
        if not aux:
            return (
                "the target hands over no auxiliary states: this server runs no EAGLE-3 head, and captures by no list"
                " of ids"
            )
        if isinstance(beside, str):
            return beside
        return {**aux, **beside, "last_state": forward.hidden_states}

    def _draft_input(self) -> dict[str, torch.Tensor]:
        return {} if self.fc_input is None else {"draft_input": self.fc_input}

    def _fail(self, marks: Sequence[Mark | None], error: Exception) -> None:
        try:
            if self.folder in _spools:
                _spools[self.folder].fail(marks, error)
            else:
                self._log.warn(f"nothing was recorded of a forward: {text_of(error, MAX_FAILURE_CHARS)}")
        except Exception:  # noqa: BLE001  nothing may reach the engine
            self._end()
            log_exception("the capture hook failed; the server goes on without it")

    def _end(self) -> None:
        self.broken = True
        self.beside.end()
        self._let_go()

    def _give_up(self, reason: str) -> None:
        self._end()
        self._log.warn(f"nothing is captured: {reason}")

    def _spool(self, request_ids: Sequence[object] = ()) -> Spool:
        if self.folder not in _spools:
            try:
                rank = rank_name(parallel_facts())
            except Exception as error:
                # Without a rank's name nothing is recorded, but that can be told to whoever asked.
                nameless = Spool(self.folder, f"pid{os.getpid()}", max_tokens=0)
                nameless.fail(nameless.marks(request_ids), error)
                raise
            _spools[self.folder] = Spool(self.folder, rank, max_tokens=self.max_tokens)
        return _spools[self.folder]

    def _facts(self, forward: Forward, *, is_draft: bool) -> dict[str, Any]:
        if is_draft:
            return {"draft": draft_facts(self.inner, self.fc)}
        hidden, (_, aux_from) = forward.hidden_states, forward.aux()
        server, server_from = server_facts()
        return {
            "engine": {"name": "sglang", "version": engine_version()},
            "parallel": parallel_facts(),
            "server": server,
            "variants": {
                "auxiliary_states": aux_from,
                "token_ids": forward.token_ids()[1],
                "parallel": parallel_context()[1],
                "server": server_from,
            },
            "tap": f"logits_processor arguments: {aux_from}{self.beside.told}",
            "target": target_facts(self.inner, int(hidden.shape[-1]), str(hidden.dtype).removeprefix("torch.")),
        }


def _is_others(args: tuple[Any, ...]) -> bool:
    """Whether a module is called with a forward batch of other people's requests alone."""
    batch = next((one for one in args if hasattr(one, "rids")), None)
    return batch is not None and not has_ours(batch.rids)
