"""A ``Server`` for tests, whose workers are real spools driven by hand: what it is sent it records, as told."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from eagle_parity.capture.servers.server import Counters, Generation, NoAnswerError
from eagle_parity.capture.servers.spooled_limit import spooled_limit
from eagle_parity.capture.spool.folder import make_spool
from eagle_parity.capture.spool.worker import Spool
from eagle_parity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

HIDDEN, SLOTS, LAYERS = 8, 3, 6


def states_of(token_ids: Sequence[int]) -> list[torch.Tensor]:
    """The slots of a sequence: ``[T, HIDDEN]`` each, of its ids and positions alone."""
    rows = torch.tensor(token_ids)[:, None].float() + torch.arange(len(token_ids))[:, None] / 64
    return [rows * (slot + 1) + torch.arange(HIDDEN) / 8 for slot in range(SLOTS)]


class RecordingServer:
    """See ``Server``.

    Args:
        spool: the folder of its workers' spool.
        ranks: their names.

    Attributes:
        chunk: tokens that the scheduler computes of a sequence at once.
        cache: whether a prefix that was computed under the same salt is taken from a cache.
        together: how many requests the scheduler waits for before it computes them in one forward.
        answers: called with a request's number and its tokens before it is answered.
        fetched: called whenever the parts are asked for.
        choices: what each rank generates behind a prompt, token by token; None for a server that gives no ids.
        accepted: how many of the rows behind the prompt each rank stores; all by default.
    """

    engine = "sglang"
    version = "0.5.23"
    url = "http://127.0.0.1:30000"

    def __init__(self, spool: Path, ranks: Sequence[str] = ("tp0", "tp1")) -> None:
        self.spool = spool
        self.token = make_spool(spool)
        self.ranks = [Spool(spool, rank) for rank in ranks]
        self.chunk = 1_000_000
        self.cache = False
        self.together = 1
        self.longest: int | None = 64
        self.answers: Callable[[int, Sequence[int]], None] = lambda _number, _tokens: None
        self.fetched: Callable[[], None] = lambda: None
        self.choices: Callable[[str, Sequence[int]], list[int]] | None = None
        self.accepted: dict[str, int] = {}
        self.temperatures: list[float] = []
        self.generated = False
        self.sent: list[tuple[str, str, tuple[int, ...]]] = []
        self.recordings: list[str] = []
        self.counts: list[Counters] = []
        self.facts: dict[str, Any] = {}
        self.kinds: tuple[str, ...] = ("aux", "draft")
        self._computed: dict[str, tuple[int, ...]] = {}
        self._waiting: list[tuple[str, Sequence[int], int]] = []
        self._lock = threading.Lock()
        self._engine = threading.Lock()
        self._barrier: threading.Barrier | None = None

    def wait_for(self, requests: int) -> None:
        """Computes as many requests as come in one forward, once they are there."""
        self.together = requests
        self._barrier = threading.Barrier(requests, action=self._compute_all, timeout=10)

    def architectures(self) -> list[str]:
        """As ``Server`` has it."""
        return ["LlamaForCausalLM"]

    def max_tokens(self) -> int | None:
        """As ``Server`` has it."""
        return self.longest

    @contextmanager
    def recording(self, session: str = "", *, generated: bool = False) -> Iterator[None]:
        """As ``Server`` has it."""
        del session
        self.generated = generated
        self.recordings.append("on")
        try:
            yield
        finally:
            self.recordings.append("off")

    def encode_text(self, text: str) -> list[int]:
        """As ``Server`` has it."""
        return list(text.encode())

    def encode_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """As ``Server`` has it."""
        return self.encode_text(str(messages))

    def generate(
        self, token_ids: Sequence[int], *, request_id: str, salt: str, new_tokens: int, temperature: float = 0.0
    ) -> Generation:
        """Computes it on every rank, and answers."""
        self.temperatures.append(temperature)
        self.answers(int(request_id.rpartition(".")[2]), token_ids)
        with self._lock:
            self.sent.append((request_id, salt, tuple(token_ids)))
            former = self._computed.get(salt, ())
            cached = len(former) if self.cache and tuple(token_ids[: len(former)]) == former else 0
            self._computed[salt] = tuple(token_ids)
            request = (request_id, token_ids, min(cached, len(token_ids) - 1))
            self._waiting.append(request)
        if self._barrier is None:
            with self._engine:  # a worker computes one forward after the other
                self._waiting.remove(request)
                self._compute([request])
        else:
            self._barrier.wait()
        output = None
        if self.choices is not None:
            output = tuple(self.choices("tp0", token_ids)[:new_tokens])
            if self.generated:
                for spool in self.ranks:
                    self._decode(spool, request_id, token_ids, self.choices(spool.rank, token_ids)[:new_tokens])
        return Generation(
            new_tokens,
            drafts=4,
            draft_tokens=12,
            accepted_tokens=max(0, new_tokens - 4),
            output_ids=output,
        )

    def _decode(self, spool: Spool, request_id: str, prompt: Sequence[int], chosen: Sequence[int]) -> None:
        """A forward a token; the last one is never computed."""
        rows = self.accepted.get(spool.rank, len(chosen) - 1)
        states = states_of([*prompt, *chosen])
        for index in range(min(rows, len(chosen) - 1)):
            at = len(prompt) + index
            tensors = {"token_ids": torch.tensor(chosen[index : index + 1]), "positions": torch.tensor([at])}
            tensors |= {"sampled_ids": torch.tensor(chosen[index + 1 : index + 2])}
            tensors |= {f"slot.{slot}": state[at : at + 1] for slot, state in enumerate(states)}
            tensors |= {"last_state": states[0][at : at + 1] + 1}
            spool.write("generated", tensors, spool.marks([request_id]), [slice(0, 1)], mode="DECODE")

    def _compute_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._compute(waiting)

    def _compute(self, waiting: Sequence[tuple[str, Sequence[int], int]]) -> None:
        position = {identifier: first for identifier, _, first in waiting}
        while True:
            spans = [
                (identifier, tokens, position[identifier], min(len(tokens), position[identifier] + self.chunk))
                for identifier, tokens, _ in waiting
                if position[identifier] < len(tokens)
            ]
            if not spans:
                return
            for spool in self.ranks:
                self._forward(spool, spans)
            position.update({identifier: stop for identifier, _, _, stop in spans})

    def _forward(self, spool: Spool, spans: Sequence[tuple[str, Sequence[int], int, int]]) -> None:
        marks = spool.marks([identifier for identifier, *_ in spans])
        for session in {mark.session for mark in marks if mark is not None}:
            if not spool.described(session, "target"):
                spool.describe(session, self._facts_of(spool.rank))
        where, end = [], 0
        for _, _, start, stop in spans:
            where.append(slice(end, end + stop - start))
            end += stop - start
        slots = [
            torch.cat([states_of(tokens)[index][start:stop] for _, tokens, start, stop in spans])
            for index in range(SLOTS)
        ]
        ids = {
            "token_ids": torch.cat([torch.tensor(tokens[start:stop]) for _, tokens, start, stop in spans]),
            "positions": torch.cat([torch.arange(start, stop) for _, _, start, stop in spans]),
        }
        aux = {f"slot.{index}": slot for index, slot in enumerate(slots)} | {"last_state": slots[0] + 1}
        tensors = {"aux": aux, "draft": {"draft_input": torch.cat(slots, dim=1)}}
        for kind in self.kinds:
            spool.write(kind, ids | tensors[kind], marks, where, mode="EXTEND")

    def _facts_of(self, rank: str) -> dict[str, Any]:
        number = int(rank.rpartition("tp")[2])
        return {
            "engine": {"name": "sglang", "version": self.version},
            "parallel": {"tp_size": 2, "tp_rank": number, "attn_tp_size": 2, "attn_tp_rank": number},
            "server": {"model_path": "/models/target"},
            "tap": "a test",
            "target": {
                "model_class": "LlamaModel",
                "config": {"architectures": ["LlamaForCausalLM"], "_name_or_path": "/models/target"},
                "num_layers": LAYERS,
                "hidden_size": HIDDEN,
                "dtype": "float32",
                "layer_set": {"list": [1, 3, 5]},
            },
            "draft": {"model_class": "LlamaModel", "normed_before_fc": False},
            **self.facts,
        }

    def counters(self) -> Counters | None:
        """As ``Server`` has it."""
        return self.counts.pop(0) if self.counts else None

    def limit(self, session: str) -> str | None:
        """As ``Server`` has it."""
        return spooled_limit(self.spool, session, self.token)

    def fetch(self, session: str, into: Path) -> Path:
        """As ``Server`` has it."""
        del into
        self.fetched()
        if not (self.spool / session).is_dir():
            raise InputError(self.url, "its workers recorded nothing")
        return self.spool / session

    def discard(self, session: str) -> None:
        """As ``Server`` has it."""
        shutil.rmtree(self.spool / session)


def gone(*_: object) -> None:
    """An answer of a server that has died."""
    raise NoAnswerError(RecordingServer.url, "no answer", expected="a running server")
