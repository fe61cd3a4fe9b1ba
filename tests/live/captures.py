"""A server captured and compared, what the scenarios look at in that, and traffic beside it."""

from __future__ import annotations

import json
import random
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx

from live.tiny_models import BOS
from live.tool import Ran, run_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import torch

    from live.servers import Server
    from live.workshop import Workshop

_SENDERS = 2
"""Threads of traffic: enough to share every batch with it."""


@dataclass(frozen=True)
class CapturedEngine:
    """An engine as its scenarios use it.

    Attributes:
        name: the subcommand of ``capture``.
        engine: for ``--engine``.
        dtype: of targets and drafts.
        names_spool: whether ``capture`` is told where the spool is; SGLang's launch says it.
    """

    name: str
    engine: str
    dtype: str
    names_spool: bool

    def with_engine(self, engine: str) -> CapturedEngine:
        """The same with other options of the engine."""
        return replace(self, engine=engine)

    def target(self, workshop: Workshop, family: str = "llama") -> Path:
        """Of a family."""
        return workshop.target(family, self.dtype)

    def draft(self, workshop: Workshop, name: str, settings: dict[str, Any]) -> Path:
        """With these settings in its config."""
        return workshop.draft(name, settings, dtype=self.dtype)

    def words(self, server: Server, workshop: Workshop, *options: str) -> list[str]:
        """A capture's command line without its output; the workshop's prompts unless options name other tokens."""
        words = ["capture", self.name, "--server", server.url, *options]
        if not {"--replay", "--prompts"} & set(options):
            words += ["--prompts", str(workshop.prompts())]
        if self.names_spool:
            words += ["--spool", str(server.folder / "spool")]
        return words

    def capture(
        self, server: Server, workshop: Workshop, output: Path, *options: str, expected: set[int] | None = None
    ) -> dict[str, Any]:
        """A capture's own result."""
        return run_json(*self.words(server, workshop, *options), "--output", str(output), expected=expected).result

    def compare(
        self, workshop: Workshop, trained: tuple[int, ...], live: Path, *, family: str = "llama", expected: set[int]
    ) -> Ran:
        """The live capture against what a trainer would have stored of these boundaries."""
        sides = [str(workshop.trained(family, self.dtype, trained)), str(live)]
        reference = str(workshop.reference(family, self.dtype))
        return run_json("diff-captures", *sides, "--reference", reference, expected=expected)

    def served(
        self, workshop: Workshop, draft: Path, trained: tuple[int, ...], *, family: str = "llama", expected: set[int]
    ) -> tuple[list[Any], list[str]]:
        """The wiring that check-config foresees, and its errors."""
        words = ["check-config", str(draft), "--target", str(self.target(workshop, family)), "--engine", self.engine]
        stated = ",".join(str(boundary) for boundary in trained)
        ran = run_json(*words, "--trained-boundaries", stated, expected=expected)
        return ran.result["wiring"]["served"][0]["boundaries"], ran.errors

    def wirings(
        self,
        server: Server,
        workshop: Workshop,
        draft: Path,
        trained: tuple[int, ...],
        output: Path,
        *,
        expected: set[int],
    ) -> Wirings:
        """A server of the Llama target from its start to its end: foreseen, captured, compared.

        Args:
            server: not started.
            workshop: of the run.
            draft: with which it is started.
            trained: boundaries of the head's training.
            output: the capture.
            expected: statuses of check-config and of diff-captures.
        """
        foreseen, foretold = self.served(workshop, draft, trained, expected=expected)
        with server:
            recorded = self.capture(server, workshop, output)["measurements"]
        return Wirings(
            foreseen, foretold, recorded["slots"], self.compare(workshop, trained, output, expected=expected)
        )


@dataclass(frozen=True)
class Wirings:
    """The wiring of one server by three ways.

    Attributes:
        foreseen: by check-config.
        foretold: its errors.
        recorded: by the layer set of the running module.
        compared: diff-captures, which measured it.
    """

    foreseen: list[Any]
    foretold: list[str]
    recorded: list[Any]
    compared: Ran

    @property
    def live(self) -> list[Any]:
        """As it was measured."""
        wiring: list[Any] = self.compared.result["wiring"]["live"]
        return wiring

    def __str__(self) -> str:
        found = self.compared.errors or self.compared.result["verdict"]
        return f"{found}, live {self.live}, foreseen {self.foreseen} {self.foretold}"

    def check(self, wiring: list[int]) -> None:
        """All three are this one."""
        assert self.live == self.recorded == self.foreseen == wiring


def manifest(capture: Path) -> dict[str, Any]:
    """The capture's manifest."""
    content: dict[str, Any] = json.loads((capture / "manifest.json").read_text("utf-8"))
    return content


def tensors(path: Path) -> dict[str, torch.Tensor]:
    """Of one file."""
    from safetensors.torch import load_file

    return load_file(path)


def unequal_ranks(capture: Path) -> list[str]:
    """Files of other ranks that differ from the first one's in a bit."""
    import torch

    found = []
    for path in sorted(capture.glob("ranks/*/sequence_*.safetensors")):
        own = tensors(path)
        first = tensors(capture / path.name)
        if any(not torch.equal(tensor, first[name]) for name, tensor in own.items()):
            found.append(str(path.relative_to(capture)))
    return found


def rank_distance(capture: Path) -> float:
    """How far any row of any rank is from the first rank's, relative to that one's norm; ids are equal."""
    import torch

    largest = 0.0
    for path in sorted(capture.glob("ranks/*/sequence_*.safetensors")):
        first = tensors(capture / path.name)
        for name, tensor in tensors(path).items():
            if tensor.is_floating_point():
                difference = (tensor.double() - first[name].double()).norm(dim=-1)
                largest = max(largest, float((difference / first[name].double().norm(dim=-1)).max()))
            else:
                assert torch.equal(tensor, first[name]), f"{path.name}: {name}"
    return largest


def draft_inputs(capture: Path) -> set[str]:
    """What the manifest says of the sequences' draft inputs."""
    return {sequence["draft_input"] for sequence in manifest(capture)["sequences"]}


@contextmanager
def traffic(send: Callable[[list[int]], None]) -> Iterator[list[int]]:
    """Other people's requests, for as long as the block lasts; gives the count, in a list of one number.

    Args:
        send: one request of token ids, answered when it returns. Half of them begin alike, so that a prefix cache has
            something to find.
    """
    stop, lock, sent = threading.Event(), threading.Lock(), [0]

    def run(seed: int) -> None:
        generator = random.Random(seed)  # noqa: S311  prompts are no secrets
        shared = [BOS, *range(3, 43)]
        while not stop.is_set():
            own = [generator.randrange(256) for _ in range(generator.randrange(5, 90))]
            try:
                send([*shared, *own] if generator.random() < 0.5 else [BOS, *own])
            except httpx.HTTPError:
                return  # the server was ended on purpose
            with lock:
                sent[0] += 1

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(_SENDERS)]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        stop.set()
        for thread in threads:
            thread.join()
